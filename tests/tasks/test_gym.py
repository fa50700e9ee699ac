"""Datasets of reasoning-gym as tasks."""

import pytest

from rollwright.errors import ConfigError, DataError, UnknownName
from rollwright.tasks import gym as module
from rollwright.tasks.registry import load_task

pytest.importorskip("reasoning_gym")


@pytest.mark.parametrize("dataset", ["leg_counting", "chain_sum", "simple_equations", "spell_backward"])
def test_entries_are_the_datasets_own(dataset):
    """Oracle: reasoning-gym itself; right answers score 1, no content is in both splits."""
    import reasoning_gym

    task = load_task(f"gym:{dataset}", size=120, seed=7)
    theirs = reasoning_gym.create_dataset(dataset, size=120, seed=7)
    questions = {}
    for split in ("train", "test"):
        for task_id in task.ids(split):
            entry = theirs[int(task_id.rpartition("/")[2])]
            assert task.prompt(task_id).startswith(entry["question"])
            verdict = task.grade(task_id, None, [f"so <answer> {entry['answer']}</answer>"], False)
            assert (verdict.score, verdict.status) == (1.0, "right")
        questions[split] = {task.entry(i)["question"] for i in task.ids(split)}
    assert not questions["train"] & questions["test"]
    assert len(task.ids("train")) + len(task.ids("test")) == 120


def test_ids_do_not_depend_on_the_size():
    """Oracle: metamorphic; kills numbering by place in the split."""
    small, large = (load_task("gym:leg_counting", size=size) for size in (50, 90))
    assert small.ids("train") == large.ids("train")[: len(small.ids("train"))]
    assert all(small.prompt(i) == large.prompt(i) for i in small.ids("test"))
    wrong = small.ids("train")[0].replace("train", "test")
    with pytest.raises(DataError, match="not in split"):
        small.prompt(wrong)


def test_scores_and_statuses_are_kept():
    """Oracle: the dataset's documented partial score len(answer)/len(text); kills rounding to 0 or 1."""
    task = load_task("gym:simple_equations", size=40)
    task_id = task.ids("train")[0]
    answer = task.entry(task_id)["answer"]
    part = task.grade(task_id, None, [f"<answer>x = {answer}</answer>"], False)
    assert part.score == pytest.approx(len(answer) / (len(answer) + 4)) and part.status == "wrong"
    first = task.grade(task_id, None, [f"<answer>no</answer> <answer>{answer}</answer>"], True)
    assert (first.score, first.status) == (1.0, "right")
    assert task.grade(task_id, None, [answer], False).status == "no_answer"
    assert task.grade(task_id, None, ["<answer>4"], True).status == "truncated"
    plain = load_task("gym:simple_equations", size=40, tags=False)
    assert plain.grade(task_id, None, [f" {answer}\n"], False).status == "right"


class Broken:
    def __init__(self, family, how):
        self.family, self.how = family, how

    def __getitem__(self, index):
        return self.family[index]

    def score_answer(self, answer, entry):
        if self.how is None:
            raise KeyError("solution")
        return self.how


@pytest.mark.parametrize("how", [None, float("nan"), float("inf"), "text"])
def test_a_scorer_that_fails_is_not_scored(monkeypatch, how):
    """Oracle: the law that a failure is never a reward; kills a broad except that returns 0."""
    task = load_task("gym:leg_counting", size=20)
    task_id = task.ids("train")[0]
    broken = Broken(task.family, how)
    monkeypatch.setattr(module, "_build", lambda *_: broken)
    verdict = task.grade(task_id, None, ["<answer>4</answer>"], False)
    assert (verdict.score, verdict.status) == (None, "grader_error")
    assert verdict.detail


def test_bad_names_and_settings():
    """Oracle: the error tree, with a suggestion."""
    with pytest.raises(UnknownName, match="did you mean 'leg_counting'"):
        load_task("gym:leg_countng")
    with pytest.raises(ConfigError, match="max_animal"):
        load_task("gym:leg_counting", max_animal=3)
    with pytest.raises(ConfigError, match="gym:<dataset>"):
        load_task("gym")
