"""A user's JSON lines as a task: every bad row is named, none is dropped."""

import json

import pytest

from rollwright.errors import ConfigError, DataError
from rollwright.tasks.registry import load_task

ROWS = [{"id": f"q{k}", "prompt": f"{k}+{k}=", "answer": 2 * k, "level": k % 3} for k in range(60)]


def write(path, rows):
    path.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in rows), "utf-8")
    return path


def test_rows_ids_and_grades(tmp_path):
    """Oracle: the rows themselves; kills losing a row, and numbers that never equal their text."""
    task = load_task(f"jsonl:{write(tmp_path / 'sums.jsonl', ROWS)}", test_share=0.3)
    ids = [*task.ids("train"), *task.ids("test")]
    assert sorted(i.rpartition("/")[2] for i in ids) == sorted(row["id"] for row in ROWS)
    assert 5 < len(task.ids("test")) < 35
    for task_id in ids:
        row = task.row(task_id)
        assert task.prompt(task_id) == row["prompt"]
        assert task.grade(task_id, None, [f" {row['answer']} "], False).status == "right"
        assert task.grade(task_id, None, [f"{row['answer']}0x"], False).status == "wrong"
        assert task.grade(task_id, None, [""], False).status == "no_answer"
        assert task.grade(task_id, None, [f"{row['answer']}"], True).status == "truncated"


def test_ids_do_not_depend_on_the_order_of_rows(tmp_path):
    """Oracle: metamorphic; kills ids by line number."""
    bare = [{"prompt": row["prompt"], "answer": "1"} for row in ROWS]
    one = load_task(f"jsonl:{write(tmp_path / 'a.jsonl', bare)}")
    (tmp_path / "other").mkdir()
    two = load_task(f"jsonl:{write(tmp_path / 'other' / 'a.jsonl', bare[::-1])}")
    for split in ("train", "test"):
        assert set(one.ids(split)) == set(two.ids(split))
        assert all(one.prompt(i) == two.prompt(i) for i in one.ids(split))


@pytest.mark.parametrize(
    "bad, message",
    [
        ({"question": "2+2"}, r"line 3: no field 'prompt' \(given: 'question'\)"),
        ({"prompt": "2+2"}, r"line 3: no field 'answer' \(given: 'prompt'\); add it; or give a reward"),
        ({"prompt": "2+2", "answer": None}, r"line 3: no field 'answer'"),
        ({"prompt": 4, "answer": 4}, r"line 3: field 'prompt' is 4, expected a non-empty string"),
        ({"prompt": "x", "answer": [4]}, r"line 3: field 'answer' is \[4\]"),
        ({"prompt": "x", "answer": 4, "id": [1]}, r"line 3: field 'id'"),
        ("{oops", r"line 3: not valid JSON"),
        ("[1, 2]", r"line 3: got list"),
        ({"id": "q0", "prompt": "other", "answer": 1}, r"line 3: id 'q0' is given twice"),
    ],
)
def test_a_bad_row_is_named(tmp_path, bad, message):
    """Oracle: the line that was made bad; kills skipping rows, and counting blank lines wrongly."""
    path = write(tmp_path / "rows.jsonl", [ROWS[0], "", bad, ROWS[1]])
    with pytest.raises(DataError, match=message):
        load_task(f"jsonl:{path}", test_share=0.0)


def test_files_that_cannot_be_used(tmp_path):
    """Oracle: the error tree."""
    with pytest.raises(DataError, match="no dataset at"):
        load_task(f"jsonl:{tmp_path / 'none.jsonl'}")
    with pytest.raises(DataError, match="no training row"):
        load_task(f"jsonl:{write(tmp_path / 'empty.jsonl', [])}")
    with pytest.raises(ConfigError, match="jsonl:<path>"):
        load_task("jsonl")
    held_out = write(tmp_path / "test.jsonl", [ROWS[5]])
    train = write(tmp_path / "train.jsonl", ROWS)
    with pytest.raises(DataError, match=r"test\.jsonl, line 1: this prompt is also in the training data"):
        load_task(f"jsonl:{train}", test=str(held_out))
    apart = load_task(f"jsonl:{write(tmp_path / 'train.jsonl', ROWS[:5])}", test=str(held_out))
    assert apart.ids("test") == ("jsonl:train/test/q5",)


def test_rows_without_answer_need_a_reward(tmp_path):
    """Oracle: closed form of the reward; kills losing the row's other fields on the way to it."""
    path = write(tmp_path / "free.jsonl", [{"prompt": "say x", "want": 3}])

    def count(prompt, completion, want):
        return completion.count("x") / want

    task = load_task(f"jsonl:{path}", test_share=0.0, reward=count)
    (task_id,) = task.ids("train")
    verdict = task.grade(task_id, None, ["xx"], False)
    assert (verdict.score, verdict.status, verdict.rewards) == (2 / 3, "wrong", {"count": 2 / 3})
    assert task.grade(task_id, None, ["xxx"], False).status == "right"
