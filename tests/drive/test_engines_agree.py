"""The same runner under the inline and the virtual driver, with the same answers, decides the same."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from drive_help import run_inline, run_virtual, small_model

from rollwright.discovery import load_method, method_factories
from rollwright.stage import Ask, AskScore, Plan, PlanView, Want
from rollwright.testing.fake import ToyTask
from rollwright.testing.hand import plain_method


@dataclass(frozen=True, slots=True)
class ForkOnce:
    """Sample a rollout, then branch a second one off its middle."""

    def plan(self, view: PlanView, num: int, rng: np.random.Generator) -> Plan:
        first = yield Want([Ask(view.root, num)])
        forks = yield Want([Ask(node.id, at=node.num_steps // 2) for node in first])
        yield Want([AskScore(node.id) for node in (*first, *forks)])


@pytest.mark.parametrize(
    ("task", "method", "changes"),
    [
        (ToyTask(), plain_method(), {}),
        (ToyTask(max_turns=3), plain_method(), {}),
        (ToyTask(max_turns=3, context=14), plain_method(), {"chunk": 2}),
        (ToyTask(bad="55"), plain_method(), {"on_failure": "drop_group"}),
        (ToyTask(bad="55"), plain_method(), {"retries": 2}),
        (ToyTask(), plain_method(generate=ForkOnce()), {"chunk": 3}),
    ],
    ids=["one turn", "dialogue", "tight context", "broken grader", "retries", "forks"],
)
def test_inline_and_virtual_runs_decide_the_same(task, method, changes):
    """Oracle: metamorphic. Batches, reports and ledger are equal though answers arrive in another order.

    Kills: a virtual engine that loses a chunk, reports a wrong stop, or labels the old version.
    """
    inline, virtual = run_inline(task, method, **changes), run_virtual(task, method, **changes)
    assert inline.reason == virtual.reason == "all steps done"
    assert inline.batches == virtual.batches
    assert len(inline.reports) == 4 and inline.batches
    assert inline.runner.ledger.fates == virtual.runner.ledger.fates
    assert inline.reports == virtual.reports


@pytest.mark.parametrize("name", sorted(method_factories()))
def test_every_method_decides_the_same_under_both(name):
    """Oracle: metamorphic, over all registered methods. One that declares that it goes by arrival may
    train on other groups, but each rollout that both trained on is the same, and both ledgers balance."""
    method = load_method(name)
    inline, virtual = (run(ToyTask(num_tasks=40), method) for run in (run_inline, run_virtual))
    for ran in (inline, virtual):
        ran.runner.ledger.check()
        assert ran.reason == "all steps done" and ran.batches
    if "arrival" not in method.declares:
        assert inline.batches == virtual.batches
        assert inline.reports == virtual.reports
    first, second = ({g.id: g for b in ran.batches[:1] for g in b.groups} for ran in (inline, virtual))
    both = first.keys() & second.keys()
    assert both and all(first[key] == second[key] for key in both)


@pytest.mark.parametrize("size", [(1, 1), (1, 64), (7, 2)])
def test_the_number_of_workers_and_slots_changes_no_decision(size):
    """Oracle: metamorphic; cases D03 and D05 (numbers are given before work is spread)."""
    model = small_model(num_workers=size[0], num_slots=size[1])
    one = run_virtual(ToyTask(max_turns=2))
    other = run_virtual(ToyTask(max_turns=2), model=model)
    assert one.batches == other.batches
    assert one.driver.now != other.driver.now


def test_failing_workers_change_no_token():
    """Oracle: metamorphic. What a lost worker had acknowledged is kept, the rest is sampled again.

    Kills: an engine that forgets the asks of a failed worker, or answers them from the beginning.
    """
    calm = run_virtual(ToyTask(), chunk=2)
    rough = run_virtual(ToyTask(), model=small_model(failure_seconds=9.0, restart_seconds=3.0), chunk=2)
    use = rough.driver.engine.account()
    assert use.num_failures > 5 and use.num_lost > 0
    assert calm.texts() == rough.texts()
    assert calm.runner.ledger.fates == rough.runner.ledger.fates
