"""What controls may open and hold back while tokens flow: grants, priorities and a number in flight."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from rollwright.events import Event, Observed, Reset, Started, Submit
from rollwright.stage import Action, Ask, AskScore, Grant, Plan, PlanView, StepView, Want
from rollwright.testing.hand import Hand, plain_method


@dataclass(frozen=True, slots=True)
class AtMost:
    """Let ``max_flying`` asks fly, and open a group in place of every complete one, up to ``num``."""

    max_flying: int
    num: int = 0

    def __call__(self, event: Event, view: StepView) -> Sequence[Action]:
        is_short = sum(not group.is_complete for group in view.groups) < view.num_tasks
        return [Grant(1, 4)] if is_short and len(view.groups) < self.num else []


@dataclass(frozen=True, slots=True)
class LastFirst:
    """Rollouts of a group with priorities 0, 1, 2, ..."""

    def plan(self, view: PlanView, num: int, rng: np.random.Generator) -> Plan:
        nodes = yield Want([Ask(view.root, priority=k) for k in range(num)])
        yield Want([AskScore(node.id) for node in nodes])


def flying(hand: Hand) -> list[str]:
    return [ask for ask, command in hand.owed.items() if isinstance(command, Submit)]


@pytest.mark.parametrize("limit", [1, 3, 5])
def test_no_more_than_the_limit_fly_and_a_freed_place_is_taken_at_once(limit):
    """Oracle: a count by hand after every event, the runner pickled on the way."""
    hand = Hand(plain_method(4, control=(AtMost(limit),)))
    hand.start()
    left = 8
    while left:
        assert len(flying(hand)) == min(limit, left)
        hand.runner = pickle.loads(pickle.dumps(hand.runner))
        hand.sample(flying(hand)[-1], (3, 0))
        left -= 1
    hand.finish_rollouts([0.0, 1.0])
    assert sum(len(group.trajectories) for group in hand.batch.groups) == 8


def test_larger_priorities_go_first_then_older_groups():
    """Oracle: by hand. One place, groups with priorities 0 to 3; the younger one is ready first."""
    hand = Hand(plain_method(4, control=(AtMost(1),), generate=LastFirst()))
    first, second = [command.group for command in hand.send(Started()) if isinstance(command, Reset)]
    hand.send(Observed(ask=f"{second}/root", tokens=(1, 2)))
    (ask,) = flying(hand)
    assert hand.owed[ask].priority == 3
    hand.sample(ask, (0,))
    hand.reset()
    seen = []
    while flying(hand):
        (ask,) = flying(hand)
        seen.append((hand.owed[ask].priority, hand.owed[ask].group))
        hand.sample(ask, (0,))
    # The younger group's 2 flies already when the older one arrives.
    assert seen == [(2, second), (3, first), (2, first), (1, first), (1, second), (0, first), (0, second)]


def test_a_control_opens_a_group_while_others_run():
    """Oracle: by hand. Two groups of one step run; as soon as one is complete, a third is open."""
    hand = Hand(plain_method(4, control=(AtMost(100, num=3),)))
    hand.start()
    first = next(iter(hand.runner.groups))
    for ask in [ask for ask in flying(hand) if ask.startswith(first)]:
        hand.sample(ask, (0,))
    assert len(hand.runner.groups) == 2, "the first group still awaits its scores"
    hand.finish_rollouts([0.0, 1.0])
    assert len(hand.runner.groups) == 3
    hand.reset()
    hand.finish_rollouts([0.0, 1.0])
    assert hand.batch is not None and len(hand.batch.groups) == 3
