"""Schedulers side by side: which steps are measured, and what each scheduler promises on one small setup."""

from __future__ import annotations

from functools import cache

import pytest

from rollwright.drive.virtual import Constant, LogNormal, TaskModel
from rollwright.errors import ConfigError
from rollwright.lab.simulation.compare import Row, compare
from rollwright.lab.simulation.setup import Scheduler, Setup, standard

SMALL = Setup(
    8, num_tasks=16, each=4, tasks=TaskModel(Constant(64), LogNormal(400, 1.0)), max_tokens=4096, num_steps=7,
    num_warm=2,
)  # fmt: skip


@cache
def row(name: str) -> Row:
    [_, found] = compare(SMALL, [Scheduler("base"), standard(SMALL)[name]])
    return found


def test_the_warm_up_and_the_steps_that_roll_out_alone_are_left_out() -> None:
    """Oracle: hand. Steps 2 to 6 of a synchronous run, 2 to 5 of one that is a step ahead.

    Kills: the last steps counted, which no next step slows down; the warm-up counted.
    """
    for name, last in (("sync", 7), ("async", 6)):
        steps = row(name).report.steps[2:last]
        seconds = sum(step.rollouts_seconds + step.learn_seconds for step in steps)
        assert row(name).tokens_per_second == pytest.approx(sum(step.num_trained for step in steps) / seconds)
        assert row(name).step_seconds == pytest.approx(seconds / len(steps))


def test_the_first_scheduler_is_what_the_others_are_compared_with() -> None:
    """Oracle: hand. The same scheduler again has ratios of 1, a quicker one more."""
    assert row("sync").speedup == row("sync").rollout_speedup == row("sync").tail_ratio == 1.0
    [base, april] = compare(SMALL, [Scheduler("base"), standard(SMALL)["april"]])
    assert april.speedup == pytest.approx(april.tokens_per_second / base.tokens_per_second)
    assert april.rollout_speedup == pytest.approx(april.rollout_rate / base.rollout_rate)


@pytest.mark.parametrize("name", ["april", "copris", "seer", "areal", "roll_flash", "async", "rollplex"])
def test_each_is_quicker_than_rollouts_and_training_in_turn(name: str) -> None:
    """Oracle: metamorphic. More trained tokens a second; those that stay synchronous train nothing old."""
    found = row(name)
    assert found.speedup > 1.0
    assert (found.age_max > 0) == (name not in ("seer", "rollplex"))
    # A group that may be carried no further makes a batch larger (`Settings.max_carry`).
    num, is_bounded = sum(found.report.ages.values()), name in ("areal", "roll_flash")
    assert num >= 7 * 64 if is_bounded else num == 7 * 64


def test_a_cluster_without_workers_is_refused() -> None:
    """By hand: before, `simulate --workers 0` ended in a division by zero."""
    with pytest.raises(ConfigError, match="num_workers = 0; expected at least 1"):
        Setup(num_workers=0)


def test_a_worker_must_be_left_for_rollouts() -> None:
    """Oracle: the contract."""
    with pytest.raises(ConfigError, match="leave one"):
        Scheduler("all train", num_training=8).build(SMALL)
