"""Sums: instances, split and grader."""

import numpy as np
import pytest

from rollwright.errors import ConfigError, DataError, EnvironmentFault
from rollwright.tasks.registry import load_task
from rollwright.tasks.sums import sums

TASK = sums()


def test_every_pair_is_one_instance_and_its_mirror_is_in_its_split():
    """Oracle: enumeration of the 400 pairs. Broken by: a split that looks at the order of the two."""
    splits = {split: [TASK.pair(i) for i in TASK.ids(split)] for split in ("train", "test")}
    assert sorted(splits["train"] + splits["test"]) == [(a, b) for a in range(1, 21) for b in range(1, 21)]
    for pairs in splits.values():
        assert len(pairs) > 150 and {(b, a) for a, b in pairs} == set(pairs)


def test_instances_are_the_same_as_ever():
    """Oracle: golden. Broken by: another order of the pairs, which would mix up old runs' ids."""
    ids = ("sums/train/0", "sums/train/77", "sums/test/5")
    assert [TASK.prompt(i) for i in ids] == [
        "Calculate 7 + 16 and reply with the result only.",
        "Calculate 8 + 10 and reply with the result only.",
        "Calculate 3 + 9 and reply with the result only.",
    ]
    with pytest.raises(DataError, match="unknown task id"):
        TASK.prompt("sums/test/4000")


@pytest.mark.parametrize(
    ("reply", "truncated", "score", "status"),
    [
        ("{}", False, 1.0, "right"),
        ("a + b = {}.", False, 1.0, "right"),
        ("The result is {}\n", False, 1.0, "right"),
        ("**{}**", False, 1.0, "right"),
        ("10-{}", False, 1.0, "right"),
        ("{} or 99", False, 0.0, "wrong"),
        ("99{}", False, 0.0, "wrong"),
        ("{}.5", False, 0.0, "wrong"),
        ("{},000", False, 0.0, "wrong"),
        ("3.{}", False, 0.0, "wrong"),
        ("3,{}", False, 0.0, "wrong"),
        ("-{}", False, 0.0, "wrong"),
        ("−{}", False, 0.0, "wrong"),
        ("0{}", False, 0.0, "wrong"),
        ("{}²", False, 1.0, "right"),
        ("", False, 0.0, "no_answer"),
        ("twelve", False, 0.0, "no_answer"),
        ("{}", True, 0.0, "truncated"),
        ("", True, 0.0, "truncated"),
    ],
)
def test_statuses(reply, truncated, score, status):
    """Oracle: the documented table. Broken by: any number counts, or a reply that never ends."""
    task_id = "sums/train/3"
    text = reply.replace("{}", str(sum(TASK.pair(task_id))))
    verdict = TASK.grade(task_id, TASK.reset(task_id), [text], truncated)
    assert (verdict.score, verdict.status) == (score, status)


def test_listing_numbers_does_not_pay():
    """Oracle: exhaustive: one reply for all tasks is right for as many as have its last number as sum."""
    reply = " ".join(map(str, range(2, 41)))
    right = [TASK.grade(i, i, [reply], False).score for i in TASK.ids("train")]
    assert sum(right) == sum(sum(TASK.pair(i)) == 40 for i in TASK.ids("train"))


def test_demonstrations_are_right_without_noise():
    """Oracle: the grader."""
    rng = np.random.default_rng(0)
    for noise, low, high in ((0.0, 1.0, 1.0), (1.0, 0.0, 0.0), (0.5, 0.3, 0.7)):
        scores = [TASK.grade(i, i, TASK.demonstrate(i, rng, noise), False).score for i in TASK.ids("train")]
        assert low <= np.mean(scores) <= high


def test_errors():
    """Oracle: the error tree."""
    with pytest.raises(ConfigError, match="largest=1"):
        load_task("sums", largest=1)
    with pytest.raises(EnvironmentFault):
        TASK.step("sums/train/0", "12")
