"""Rows of a JSON lines file under each grader by name: verdicts by hand; our mistakes have no score."""

import json

import pytest

from rollwright.drive.world import World
from rollwright.errors import ConfigError, DataError, UnknownName
from rollwright.events import Score, Scored
from rollwright.tasks import _graders
from rollwright.tasks.registry import load_task
from rollwright.testing.fake import ToyTokenizer
from rollwright.tree import Node, Origin


def task_of(tmp_path, *rows, **options):
    path = tmp_path / "rows.jsonl"
    full = [{"id": f"q{k}", "prompt": f"question {k}", **row} for k, row in enumerate(rows)]
    path.write_text("".join(json.dumps(row) + "\n" for row in full))
    return load_task(f"jsonl:{path}", test_share=0.0, **options)


def verdicts(task, *responses, truncated=False):
    [task_id] = task.ids("train")
    return [task.grade(task_id, None, [response], truncated) for response in responses]


SETUP = "create table t (a int, b int); insert into t values (1, 2), (3, 4)"
BY_HAND = [
    ("exact", "5/4", {}, [(" 5/4\n", "right"), ("1 1/4", "wrong"), (" ", "no_answer")]),
    ("math", "5/4", {}, [("so \\boxed{1 1/4}", "right"), ("\\boxed{5/3}", "wrong"), ("", "no_answer")]),
    ("math", 50, {"percent": "number"}, [("The answer is 50\\%.", "right")]),
    ("math", 50, {"percent": "value"}, [("The answer is 50\\%.", "wrong")]),
    ("choice", "E", {}, [("\\boxed{(E)}", "right"), ("\\boxed{Earth}", "no_answer"), ("B", "wrong")]),
    ("text", "The Nile", {}, [("Answer: nile.", "right"), ("Answer: Rhine", "wrong")]),
    ("text", "The Nile", {"mode": "exact"}, [("\\boxed{nile}", "wrong"), ("\\boxed{The Nile}", "right")]),
    ("numeric", 2.5, {"abs_tol": 0.1}, [("#### 2.58", "right"), ("#### 2.61", "wrong")]),
    ("json", {"a": [1, 2]}, {}, [('{"a": [1, 2]}', "right"), ('{"a": [2, 1]}', "wrong"), ("a", "no_answer")]),
    ("json", "[1.0]", {"rel_tol": 0.1}, [("```json\n[1.05]\n```", "right"), ("[true]", "wrong")]),
    ("regex", "ab+", {}, [("<think>x</think> abb ", "right"), ("abc", "wrong")]),
    ("sql", "select a from t", {"setup": SETUP},
     [("select a from t order by a desc", "right"), ("select b from t", "wrong"), ("x", "runtime_error")]),
    ("sql", "select a from t order by a", {"setup": SETUP, "is_ordered": True},
     [("select a from t order by a desc", "wrong")]),
    ("code", ["assert f(2) == 4", {"function": "f", "args": [3], "expected": 9}], {"partial": False},
     [("```python\ndef f(x):\n    return x * x\n```", "right"),
      ("```python\ndef f(x):\n    return 2 * x\n```", "wrong"),
      ("I do not know.", "no_answer")]),
    ("code", {"stdin": "3\n", "stdout": "9"}, {},
     [("```python\nprint(int(input()) ** 2)\n```", "right"), ("```python\n1 / 0\n```", "runtime_error")]),
]  # fmt: skip


@pytest.mark.parametrize("name, answer, settings, expected", BY_HAND)
def test_verdicts_by_hand(tmp_path, name, answer, settings, expected):
    """Oracle: hand; kills a grader that is not the named one, and settings that do not arrive."""
    task = task_of(tmp_path, {"answer": answer}, grader=name, grader_settings=settings)
    found = verdicts(task, *[response for response, _ in expected])
    assert [verdict.status for verdict in found] == [status for _, status in expected]
    assert [verdict.score for verdict in found] == [float(status == "right") for _, status in expected]
    assert task.grader_version.startswith(name)


def test_a_row_has_its_own_grader_and_settings(tmp_path):
    """Oracle: hand; kills the task's settings that go to a row's other grader, and a row's that get lost."""
    rows = [
        {"answer": 10},
        {"answer": 10, "grader_settings": {"rel_tol": 0.3}},
        {"answer": "B", "grader": "choice"},
        {"answer": "10", "grader": "exact"},
    ]
    task = task_of(tmp_path, *rows, grader="numeric", grader_settings={"rel_tol": 0.1})
    q0, q1, q2, q3 = task.ids("train")

    def status(task_id, response):
        return task.grade(task_id, None, [response], False).status

    assert [status(q0, said) for said in ("10.9", "11.2")] == ["right", "wrong"]
    assert [status(q1, said) for said in ("10.9", "11.2")] == ["right", "right"]
    assert [status(q2, said) for said in ("B", "10")] == ["right", "no_answer"]
    assert [status(q3, said) for said in ("10", "10.9")] == ["right", "wrong"]


def test_in_a_text_that_was_cut_only_a_closed_answer_counts(tmp_path):
    """Oracle: hand: 12 may be the beginning of 123; kills a reward for half a number."""

    def one(name, answer, said):
        task = task_of(tmp_path, {"answer": answer}, grader=name)
        return verdicts(task, said, truncated=True)[0].status

    assert one("math", 12, "so \\boxed{12} and on it go") == "right"
    assert one("math", 12, "\\boxed{12} or rather \\boxed{1") == "right"
    assert one("math", 12, "The answer is 12") == one("numeric", 12, "12") == "truncated"
    assert one("math", 12, "\\boxed{12") == one("exact", "12", "12") == "truncated"
    assert one("json", [1], "```json\n[1]\n```\nthat is") == "right"
    assert one("json", [1], "```json\n[1]\n```\nor\n```json\n[2") == one("json", [1], "[1]") == "truncated"
    assert one("regex", "a+", "aaa") == "truncated"


def test_case_r14_a_grader_s_own_mistake_is_no_score(tmp_path, monkeypatch):
    """Oracle: the case R14: status and None, never a silent zero; kills a broad except that returns 0."""

    def broken(response, gold, **settings):
        raise ValueError("signal only works in main thread")

    task = task_of(tmp_path, {"answer": "1/3"}, grader="math")
    monkeypatch.setitem(_graders._GRADERS, "math", broken)
    [verdict] = verdicts(task, "\\boxed{1/3}")
    assert (verdict.score, verdict.status) == (None, "grader_error")
    assert "ValueError: signal only works" in verdict.detail


def test_answers_that_our_side_got_wrong_are_no_score(tmp_path):
    """Oracle: hand: the gold query fails, the pattern never ends: nothing of that is the model's fault."""
    task = task_of(tmp_path, {"answer": "select z from t"}, grader="sql", grader_settings={"setup": SETUP})
    [verdict] = verdicts(task, "select a from t")
    assert (verdict.score, verdict.status) == (None, "bad_data")
    task = task_of(tmp_path, {"answer": "(a+)+b"}, grader="regex", grader_settings={"timeout_s": 0.5})
    [verdict] = verdicts(task, "a" * 40)
    assert (verdict.score, verdict.status) == (None, "grader_error")


@pytest.mark.parametrize(
    "row, options, message",
    [
        ({"answer": ["assert 1 < 2"]}, {"grader": "code"}, "cannot be checked from outside"),
        ({"answer": [{"stdin": "1"}]}, {"grader": "code"}, "line 1: field 'answer' .* is no test"),
        ({"answer": []}, {"grader": "code"}, "there are no tests"),
        ({"answer": "Earth"}, {"grader": "choice"}, "line 1: field 'answer' is 'Earth', expected one of the"),
        ({"answer": "F"}, {"grader": "choice", "grader_settings": {"num_options": 4}}, "first 4 letters"),
        ({"answer": "many"}, {"grader": "numeric"}, "line 1: .* expected a number"),
        ({"answer": "{a}"}, {"grader": "json"}, "line 1: .* expected JSON"),
        ({"answer": "(a"}, {"grader": "regex"}, "line 1: .* expected a regular expression"),
        ({"answer": " "}, {"grader": "math"}, "line 1: .* not empty"),
        ({"answer": [1]}, {"grader": "math"}, "line 1: .* expected a string or a number"),
        ({"answer": 1, "grader": "maths"}, {}, "line 1: unknown grader 'maths', did you mean 'math'"),
        ({"answer": 1, "grader": ["math"]}, {}, "line 1: 'grader' is "),
        ({"answer": 1, "grader_settings": {"x": 1}}, {"grader": "math"}, "line 1: unknown setting"),
    ],
)
def test_a_row_that_cannot_be_graded_stops_the_run_before_it_starts(tmp_path, row, options, message):
    """Oracle: the line that was made bad; kills bad data that shows itself in the middle of a run only."""
    with pytest.raises(DataError, match=message):
        task_of(tmp_path, row, **options)


def test_bad_options_are_refused(tmp_path):
    """Oracle: the error tree; kills settings that are accepted and ignored."""
    with pytest.raises(UnknownName, match="did you mean 'math'"):
        task_of(tmp_path, {"answer": 1}, grader="mat")
    with pytest.raises(UnknownName, match="did you mean 'rel_tol'"):
        task_of(tmp_path, {"answer": 1}, grader="numeric", grader_settings={"reltol": 0.1})
    with pytest.raises(ConfigError, match="one of 'value', 'number', 'either'"):
        task_of(tmp_path, {"answer": 1}, grader="math", grader_settings={"percent": "both"})
    with pytest.raises(ConfigError, match="rel_tol=-1"):
        task_of(tmp_path, {"answer": 1}, grader="numeric", grader_settings={"rel_tol": -1.0})
    with pytest.raises(ConfigError, match="leave one of them out"):
        task_of(tmp_path, {"answer": 1}, grader="math", reward=lambda prompt, completion: 1.0)


def test_the_record_keeps_the_status(tmp_path):
    """Oracle: hand; kills a status that is lost, or a missing score read as 0, on the way to the journal."""
    bad = {"answer": "select z from t", "grader": "sql", "grader_settings": {"setup": SETUP}}
    task = task_of(tmp_path, bad, {"answer": 5, "grader": "numeric"})
    world = World(task, ToyTokenizer())
    tokens = tuple(ToyTokenizer().encode("7"))
    found = []
    for task_id in task.ids("train"):
        root = Node(id="g/r", parent=None, at=0, origin=Origin.PROMPT, tokens=tokens)
        leaf = Node(
            **{"id": "g/l", "parent": "g/r", "at": len(tokens), "origin": Origin.SAMPLED, "tokens": tokens},
            **{"policy": "policy", "version": 0, "logprobs": (0.0,) * len(tokens)},
        )
        nodes = {"g/r": root, "g/l": leaf}
        event = world.score(Score(ask="s", group="g", leaf="g/l"), task_id, nodes, False)
        assert isinstance(event, Scored)
        found.append((event.reward, event.status))
    assert found == [(None, "bad_data"), (0.0, "wrong")]
