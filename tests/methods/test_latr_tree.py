"""The laws of LATR's tree: its width, its records, its turns, and nothing that depends on the schedule."""

from __future__ import annotations

import dataclasses
import pickle
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from methods_help import run, sampled

import rollwright.testing.fake as fake
from rollwright.events import Published, Submit
from rollwright.methods.april import april
from rollwright.methods.latr import latr
from rollwright.testing.fake import FakeEngine, ToyTask
from rollwright.tree import Group, StopReason

TASK = ToyTask(max_tokens=20, context=64)
TALK = ToyTask(max_tokens=10, context=128, max_turns=3)
BUSY = {"tau_abs": 0.15, "tau_rel": 0.2, "tau_ed": 0.8, "lookahead": 4}


class Width(FakeEngine):
    """Counts how many asks of one group were ever in flight at the same time."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        self.widest = 0

    def submit(self, command: Submit, prefix: Sequence[int]) -> None:
        super().submit(command, prefix)
        groups = Counter(live.command.group for live in self.live.values())
        self.widest = max(self.widest, *groups.values())


@pytest.mark.parametrize("task", [TASK, TALK])
@pytest.mark.parametrize("share", [1.0, 0.5])
@pytest.mark.parametrize("tau_ed", [0.0, 0.8, 1.0])
def test_width_never_exceeds_k_and_groups_are_full(task: ToyTask, share: float, tau_ed: float) -> None:
    """Oracle: closed form. Never more than K asks of a group in flight; K rollouts each, all distinct."""
    engine = Width()
    options = {**BUSY, "tau_ed": tau_ed, "share": share}
    result = run(latr(each=6, **options), task=task, engine=engine, num_steps=4)
    assert engine.widest <= 6
    for group in (g for batch in result.batches for g in batch.groups):
        assert len(group.trajectories) == 6
        assert len({t.leaf for t in group.trajectories}) == 6
    forced = [n for g, t in result.trained() for n, _ in g.path(t.leaf) if n.forced]
    assert forced, "nothing branched"


@pytest.mark.parametrize("task", [TASK, TALK])
def test_the_order_of_arrival_changes_nothing(task: ToyTask) -> None:
    """Oracle: metamorphic. Any order of arrival and any chunk gives the same trees, bit for bit."""
    for share in (1.0, 0.5):
        method = latr(each=6, **BUSY, share=share)
        want = run(method, task=task).batches
        for arrival in range(4):
            got = run(method, task=task, engine=FakeEngine(arrival=arrival), chunk=1 + arrival).batches
            assert got == want


@pytest.mark.parametrize("task", [TASK, TALK])
def test_recorded_logprobs_are_the_models_also_of_forced_tokens(task: ToyTask) -> None:
    """Oracle: slow reference. Each token's logprob is the policy's at its whole prefix, forced or not."""
    result = run(latr(each=6, **BUSY), task=task)
    for group, t in result.trained():
        response = group.response(t)
        tokens = [*response.prompt, *response.tokens]
        for i in np.flatnonzero(response.is_sampled):
            at = len(response.prompt) + i
            logits = fake.toy_logits(tokens[:at], 6, int(response.versions[i]))
            want = logits[tokens[at]] - np.logaddexp.reduce(logits)
            assert response.logp_old[i] == pytest.approx(want, abs=1e-12)


def test_a_branch_takes_a_likely_token_that_was_not_taken() -> None:
    """Oracle: enumeration. At every branch both thresholds hold, and the token is the likelier one of the
    top two that the rollout it left did not take."""
    result = run(latr(each=6, **BUSY), task=TASK)
    num = 0
    for group in (g for batch in result.batches for g in batch.groups):
        for node in (n for n in group.nodes.values() if n.forced):
            left = group.nodes[node.parent]
            prefix = [x for n, k in group.path(left.id)[:-1] for x in n.tokens[:k]] + [
                *left.tokens[: node.at]
            ]
            logits = fake.toy_logits(prefix, 6, node.version)
            p = np.exp(logits - np.logaddexp.reduce(logits))
            best = np.argsort(-p)[:2]
            assert p[best[1]] > 0.15 and p[best[0]] - p[best[1]] < 0.2
            assert node.tokens[0] == next(x for x in best if x != left.tokens[node.at])
            num += 1
    assert num > 20


def test_limits_of_turns_hold_over_segments() -> None:
    """Oracle: closed form. No turn has more than max_tokens sampled tokens and no rollout more turns than
    allowed; a turn that was cut says so, and one that was only segmented does not."""
    result = run(latr(each=6, **BUSY), task=TALK, num_steps=5)
    num_cut = 0
    for group, t in result.trained():
        response = group.response(t)
        turns = Counter(response.turns[response.is_sampled].tolist())
        assert max(turns.values()) <= 10 and len(turns) <= 3
        is_cut = any(n == 10 and not ends(group, t.leaf, turn) for turn, n in turns.items())
        assert t.any_turn_cut == is_cut
        num_cut += is_cut
    assert num_cut > 0
    assert {t.stop for _, t in result.trained()} <= {StopReason.TERMINATED, StopReason.TURNS}


def ends(group: Group, leaf: str, turn: int) -> bool:
    """Whether the turn's last sampled token is the end token."""
    response = group.response(next(t for t in group.trajectories if t.leaf == leaf))
    mine = [
        x
        for x, k, s in zip(response.tokens, response.turns, response.is_sampled, strict=True)
        if k == turn and s
    ]
    return mine[-1] == 0


def test_interrupted_segments_give_the_same_tree() -> None:
    """Oracle: metamorphic. Carried over by APRIL's control and resumed, a tree grows as if left alone."""
    task = ToyTask(num_tasks=40, max_tokens=60, context=128)
    tree = latr(each=4, **BUSY)
    carried = dataclasses.replace(april(each=4), generate=tree.generate, name="april with trees")
    whole = run(tree, task=task, num_steps=8, chunk=1, publish=False)
    parts = run(carried, task=task, num_steps=8, chunk=1, publish=False)
    want, got = (
        {g.id: [sampled(g, t) for g_, t in r.trained() if g_ is g] for g, _ in r.trained()}
        for r in (whole, parts)
    )
    both = want.keys() & got.keys()
    assert len(both) > 15
    assert {name: got[name] for name in both} == {name: want[name] for name in both}
    assert any(n.stop is StopReason.INTERRUPTED for g, t in parts.trained() for n, _ in g.path(t.leaf))


def test_a_tree_survives_pickling_in_the_middle() -> None:
    """Oracle: metamorphic. A runner pickled after every event goes on to the same batch."""
    from rollwright.drive.inline import InlineDriver
    from rollwright.drive.world import World
    from rollwright.runner import Runner, Settings

    method = dataclasses.replace(latr(each=5, **BUSY), objective=None, reduce=None)
    settings = Settings(1, tuple(TALK.ids("train")), 2, 2, 128, 10, max_turns=3, is_dialogue=True, chunk=3)
    batches: dict[bool, list[Any]] = {False: [], True: []}

    class Forgetful(InlineDriver):
        def feed(self, events: Any) -> None:
            self.runner = pickle.loads(pickle.dumps(self.runner))
            super().feed(events)

    for is_pickled, driver in ((False, InlineDriver), (True, Forgetful)):

        def train(batch: Any, kept: list[Any] = batches[is_pickled]) -> Published:
            kept.append(batch)
            return Published(step=batch.step, version=batch.version + 1)

        world = World(TALK, fake.ToyTokenizer(), (0,))
        driver(Runner(method, settings), FakeEngine(), world, train).run()
    assert batches[True] == batches[False] != []


def test_failed_branches_are_not_replaced_and_not_scored() -> None:
    """Oracle: ledger law. An engine that loses every third ask for good: groups shrink, nothing hangs."""

    class Flaky(FakeEngine):
        num_submits = 0

        def submit(self, command: Submit, prefix: Sequence[int]) -> None:
            type(self).num_submits += 1
            super().submit(command, prefix)
            self.live[command.ask].is_lost = self.num_submits % 5 == 0  # type: ignore[attr-defined]

        def _advance(self, live: Any) -> Any:
            if getattr(live, "is_lost", False):
                del self.live[live.command.ask]
                return self._event(live, StopReason.FAILED)
            return super()._advance(live)

    result = run(latr(each=6, **BUSY), task=TASK, engine=Flaky(), num_steps=3, retries=0)
    sizes = [len(g.trajectories) for batch in result.batches for g in batch.groups]
    assert max(sizes) <= 6 and min(sizes) < 6
    assert sum(report.metrics["num_failed"] for report in result.reports) > 0
