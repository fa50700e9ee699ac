"""The laws of credit: baselines, and steps that nobody sampled."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from rollwright.method import Method
from rollwright.testing.scenarios import SCENARIOS, broken, played
from rollwright.tree import Group, Trajectory

EQUAL_SCORES = (0.0, 1.0, 0.3, -2.0)


def law_baseline(method: Method) -> None:
    """Equal scores move nothing; an unscored member gets zero and moves no baseline; nor does one alone."""
    may_move = "equal_rewards_move" in method.all_declared
    for group in sample_groups(method):
        for score in EQUAL_SCORES:
            if not may_move:
                _expect_zero(method, rewarded(group, [score] * len(group.trajectories)), f"all {score}")
        if not may_move:
            alone = msgspec.structs.replace(group, trajectories=group.trajectories[:1])
            _expect_zero(method, rewarded(alone, [1.0]), "a group of one")
        _expect_zero(method, rewarded(group, [None] * len(group.trajectories)), "nothing scored")
        _unscored_is_absent(method, group)


def _expect_zero(method: Method, group: Group, what: str) -> None:
    for t in credited(method, group).trajectories:
        if any(t.advantages or ()):
            seen = f"advantages {t.advantages} with {what}"
            raise broken(4, "baseline", method, seen, "exactly 0; or declare 'equal_rewards_move'")


def _unscored_is_absent(method: Method, group: Group) -> None:
    num = len(group.trajectories)
    if num < 3:
        return
    scores = [float(i % 2) + 0.1 * i for i in range(num)]
    for lost in range(num):
        partly = [None if i == lost else score for i, score in enumerate(scores)]
        got = credited(method, rewarded(group, partly)).trajectories
        if any(got[lost].advantages or ()):
            seen = f"advantages {got[lost].advantages} for an unscored rollout"
            raise broken(4, "baseline", method, seen, "exactly 0")
        rest = rewarded(group, scores)
        members = tuple(t for i, t in enumerate(rest.trajectories) if i != lost)
        want = credited(method, msgspec.structs.replace(rest, trajectories=members)).trajectories
        left = [t for i, t in enumerate(got) if i != lost]
        if [t.advantages for t in left] != [t.advantages for t in want]:
            seen = f"rollout {lost} unscored: the others have {[_firsts(t) for t in left]}"
            raise broken(4, "baseline", method, seen, f"{[_firsts(t) for t in want]}, as without it")


def _firsts(trajectory: Trajectory) -> float | None:
    return (trajectory.advantages or (None,))[0]


def law_not_sampled(method: Method) -> None:
    """One advantage per response step; exactly zero on steps that no model call of the rollout sampled."""
    for scenario in (SCENARIOS[1], SCENARIOS[0]):
        for batch in played(method, scenario.name).batches:
            for group in batch.groups:
                for t in group.trajectories:
                    _check_columns(method, group, t)


def _check_columns(method: Method, group: Group, trajectory: Trajectory) -> None:
    response = group.response(trajectory)
    name = f"rollout {trajectory.index} of {group.id}"
    advantages = trajectory.advantages
    if advantages is None or len(advantages) != len(response.tokens):
        seen = f"{None if advantages is None else len(advantages)} advantages of {name}"
        raise broken(5, "not sampled", method, seen, f"{len(response.tokens)}, one per response step")
    for step, value in enumerate(advantages):
        if value and not response.is_sampled[step]:
            seen = f"advantage {value} at step {step} of {name}, which was not sampled"
            raise broken(5, "not sampled", method, seen, "0")


def sample_groups(method: Method) -> list[Group]:
    """Return real groups of the method, single answers and dialogues, as its credit sees them."""
    groups: list[Group] = []
    for scenario in SCENARIOS[:2]:
        batches = played(method, scenario.name).batches
        groups += [group for batch in batches for group in batch.groups if group.trajectories][:6]
    if not groups:
        raise broken(4, "baseline", method, "no batch in any scenario", "something to train on")
    return groups


def rewarded(group: Group, scores: Sequence[float | None]) -> Group:
    """Return the group without credit and with these rewards and scores."""
    changed = [
        msgspec.structs.replace(t, reward=score, score=score, advantages=None, weight=1.0)
        for t, score in zip(group.trajectories, scores, strict=True)
    ]
    return msgspec.structs.replace(group, trajectories=tuple(changed), baseline=None)


def credited(method: Method, group: Group) -> Group:
    """Apply the method's chain of credits."""
    for stage in method.credit:
        group = stage(group)
    return group
