"""Random interleavings of everything that can happen: the runner never waits for nothing and loses nothing.

Oracles: the ledger's law after every event; folding the events through a fresh runner (byte-identical
decisions); each trained token sampled again from prefix, stream, position and version.
"""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollwright.discovery import load_method
from rollwright.runner import Settings
from rollwright.stages.control.close_at_target import CloseAtTarget
from rollwright.testing.chaos import Chaos, Meddle, Odds, check_fold, check_tokens
from rollwright.testing.fake import ToyTask
from rollwright.testing.hand import plain_method

SMALL = {"each": 3}
METHODS = {
    "plain": plain_method(3),
    "meddle": plain_method(3, control=(Meddle(),)),
    "close": plain_method(3, control=(CloseAtTarget(),)),
    "grpo": load_method("grpo", **SMALL),
    "dapo": load_method("dapo", **SMALL, max_rounds=3),
    "vigor": load_method("vigor", each=4, first=2),
    "april": load_method("april", **SMALL),
    "rlep": load_method("rlep", **SMALL),
    "latr": load_method("latr", **SMALL, tau_abs=0.15, tau_rel=0.3, lookahead=3),
    "latr+meddle": dataclasses.replace(
        load_method("latr", **SMALL, tau_abs=0.15, tau_rel=0.3, lookahead=3),
        control=(Meddle(3, forks=False),),
    ),
}
odd = st.sampled_from([0.0, 0.0, 0.02, 0.1])
odds = st.builds(
    Odds, fail=odd, lose_worker=odd, interrupt=odd, fire_timer=odd, crash=odd, pickle=odd, late=odd
)


def world(turns=1, seed=3, bad="\n", **changes):
    task = ToyTask(num_tasks=6, max_turns=turns, max_tokens=8, context=30, bad=bad)
    fields = {
        "seed": seed,
        "tasks": tuple(task.ids("train")),
        "num_steps": 3,
        "num_tasks": 2,
        "context": task.context,
        "max_tokens": task.max_tokens,
        "max_turns": turns,
        "is_dialogue": turns > 1,
        "chunk": 3,
    }
    return task, Settings(**{**fields, **changes})


def check(method, task, run_settings, seed, odds):
    chaos = Chaos(method, run_settings, task, seed, odds)
    chaos.run()
    folded = check_fold(method, run_settings, chaos.journal)
    assert folded.ledger == chaos.runner.ledger
    for batch in chaos.batches:
        for group in batch.groups:
            check_tokens(group, run_settings.seed)
    assert len(set(chaos.opened)) == len(chaos.opened)
    visits = [group.rpartition("#") for group in chaos.opened]
    for task_id in run_settings.tasks:
        mine = [int(visit) for name, _, visit in visits if name == task_id]
        assert mine == list(range(len(mine))), "a visit was skipped or repeated"
    return chaos


@settings(max_examples=40, deadline=None)
@given(
    name=st.sampled_from(sorted(METHODS)),
    turns=st.sampled_from([1, 1, 3]),
    bad=st.sampled_from(["\n", "4"]),
    on_failure=st.sampled_from(["drop_sample", "drop_group", "stop"]),
    retries=st.sampled_from([0, 1]),
    max_age=st.sampled_from([None, 0]),
    seed=st.integers(0, 10_000),
    odds=odds,
)
def test_no_interleaving_breaks_a_run(name, turns, bad, on_failure, retries, max_age, seed, odds):
    """Any method, any order, any failures: it ends, and every decision replays."""
    task, run_settings = world(turns, bad=bad, on_failure=on_failure, retries=retries, max_age=max_age)
    check(METHODS[name], task, run_settings, seed, odds)


@settings(max_examples=20, deadline=None)
@given(name=st.sampled_from(sorted(METHODS)), seed=st.integers(0, 10_000), stop=st.sampled_from([0.01, 0.1]))
def test_a_stop_at_any_instant_ends_the_run(name, seed, stop):
    """After the user's stop the step is finished, and nothing new is begun."""
    task, run_settings = world(num_steps=50)
    chaos = check(METHODS[name], task, run_settings, seed, Odds(stop=stop))
    assert chaos.finished in ("stopped by the user", "all steps done")


@settings(max_examples=20, deadline=None)
@given(
    name=st.sampled_from(sorted(METHODS)),
    seed=st.integers(0, 10_000),
    unit=st.sampled_from(["rollouts", "sampled_tokens", "grader_calls", "learner_tokens"]),
    amount=st.integers(0, 60),
)
def test_any_budget_ends_the_run(name, seed, unit, amount):
    """A spent budget ends the run with its name; the overrun is at most one step's work."""
    task, run_settings = world(num_steps=10_000, budget={unit: amount})
    chaos = check(METHODS[name], task, run_settings, seed, Odds())
    assert unit in chaos.finished
    assert chaos.runner.ledger.spent[unit] <= amount + 2 * 4 * 2 * 8


@pytest.mark.parametrize("name", sorted(METHODS))
@pytest.mark.parametrize("turns", [1, 3])
def test_evaluation_trains_nothing(name, turns):
    """Every scored token gets the fate evaluation; no batch leaves the runner."""
    task, run_settings = world(turns, is_evaluation=True, num_steps=1)
    chaos = check(METHODS[name], task, run_settings, 1, Odds())
    fates = chaos.runner.ledger.fates
    assert chaos.finished == "evaluated" and not chaos.batches
    assert fates["trained"] == fates["stale"] == fates["filtered"] == 0
    assert fates["evaluation"] > 0
