"""Bounded staleness under everything that can happen: arrivals, failures, crashes, lost workers, aborts.

Oracles: the age of every trained token, recomputed from its versions; the ledger after every event; the
journal folded through a fresh runner; each token sampled again from its prefix, stream and version.
"""

import random

import pytest

from rollwright.discovery import load_method
from rollwright.ledger import Fate
from rollwright.runner import Settings
from rollwright.runner.batch import age
from rollwright.stages.control.close_at_target import CloseAtTarget
from rollwright.testing.chaos import Chaos, Meddle, Odds, check_fold, check_tokens
from rollwright.testing.fake import ToyTask
from rollwright.testing.hand import plain_method

METHODS = {
    "grpo": load_method("grpo", each=2),
    "dapo": load_method("dapo", each=2, max_rounds=3),
    "april": load_method("april", each=2),
    "close": plain_method(2, control=(CloseAtTarget(),)),
    "meddle": plain_method(2, control=(Meddle(),)),
    "copris": load_method("copris", each=2, num_flying=6),
}
CARRIES = ("april", "close", "meddle", "copris")
NUM_STEPS = 4


class Watched(Chaos):
    """Notes for which step each group was opened, and counts how many steps are open at once."""

    def __init__(self, *given):
        super().__init__(*given)
        self.opened_for, self.most_open = {}, 0

    def send(self, event):
        super().send(event)
        runner = self.runner
        for group in runner.groups.values():
            self.opened_for.setdefault(group.id, group.opened_step)
        self.most_open = max(self.most_open, len(runner.steps))
        if len(self.journal) % 8 == 0:
            assert runner.is_done or not runner.is_started or runner.waits(), "nothing is waited for"


def history(seed, **changes):
    """Run one random history and check it; return it."""
    dice = random.Random(seed)
    name = dice.choice(sorted(METHODS))
    turns = dice.choice([1, 1, 3])
    task = ToyTask(num_tasks=6, max_turns=turns, max_tokens=4, context=18, bad=dice.choice(["\n", "4"]))

    def odd():
        return dice.choice([0.0, 0.0, 0.02, 0.1])

    max_carry = dice.choice([0, 1, 2, 3])
    fields = {
        "seed": 3,
        "tasks": tuple(task.ids("train")),
        "num_steps": NUM_STEPS,
        "num_tasks": 2,
        "context": task.context,
        "max_tokens": task.max_tokens,
        "max_turns": turns,
        "is_dialogue": turns > 1,
        "chunk": dice.choice([1, 2]),
        "num_ahead": dice.choice([0, 1, 2, 3]),
        "max_carry": max_carry,
        "retries": dice.choice([0, 2]),
        "backoff": dice.choice([0.0, 1.0]),
        "retries_by_kind": dice.choice([{}, {"worker": 1}]),
        "quarantine_after": dice.choice([0, 1]),
        "min_group": dice.choice([1, 2]),
    }
    settings = Settings(**{**fields, **changes})
    odds = Odds(fail=odd(), lose_worker=odd(), interrupt=odd(), fire_timer=odd() / 4, crash=odd(), late=odd())
    chaos = Watched(METHODS[name], settings, task, seed, odds)
    chaos.run(max_events=20_000)
    if seed % 5 == 0:  # the dear checks
        assert check_fold(METHODS[name], settings, chaos.journal).ledger == chaos.runner.ledger
        for batch in chaos.batches:
            for group in batch.groups:
                check_tokens(group, settings.seed)
    check(name, chaos, settings)
    return chaos


def check(name, chaos, settings):
    """The bound, that nothing starves, where the tokens are, and that it ended for a reason."""
    runner = chaos.runner
    assert runner.end_reason == "all steps done" or "the learner" in runner.end_reason
    assert chaos.most_open <= settings.num_ahead + 1
    for batch in chaos.batches:
        for group in batch.groups:
            late = batch.step - chaos.opened_for[group.id]
            most = settings.max_carry if name in CARRIES else 0
            assert 0 <= late <= most, f"{group.id} was carried over {late} steps"
            for trajectory in group.trajectories:
                found = age(group, trajectory.leaf, batch.version)
                assert found <= settings.num_ahead + late, f"{trajectory.leaf} is {found} versions old"
    fates = runner.ledger.fates
    assert fates[Fate.STALE.value] == 0, "nothing was thrown away for its age"
    if runner.end_reason == "all steps done":
        for group in (*runner.groups.values(), *runner.held.values()):
            assert group.opened_step + settings.max_carry >= NUM_STEPS, f"{group.id} starves"
        if not (runner.groups or runner.held):
            assert fates[Fate.HELD.value] == 0


@pytest.mark.parametrize(
    "block", [pytest.param(k, marks=[pytest.mark.slow] if k >= 3 else []) for k in range(10)]
)
def test_the_bound_holds_in_500_random_histories(block):
    """Property: age ≤ num_ahead + steps carried ≤ num_ahead + max_carry; all ends, nothing starves."""
    for seed in range(50 * block, 50 * (block + 1)):
        history(seed)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(95))
def test_the_bound_holds_in_10000_random_histories(block):
    """The other 9,500 of the 10,000."""
    for seed in range(500 + 100 * block, 600 + 100 * block):
        history(seed)


def test_the_histories_reach_the_bound():
    """The property is not empty: ages of num_ahead + max_carry, carried groups and open steps occur."""
    ages, carried, most_open = set(), set(), 0
    for seed in range(120):
        chaos = history(seed, num_ahead=2, max_carry=1)
        most_open = max(most_open, chaos.most_open)
        for batch in chaos.batches:
            for group in batch.groups:
                carried.add(batch.step - chaos.opened_for[group.id])
                ages |= {age(group, t.leaf, batch.version) for t in group.trajectories}
    assert ages == {0, 1, 2, 3} and carried == {0, 1} and most_open == 3
