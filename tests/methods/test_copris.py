"""CoPRIS: always the same number in flight, nothing thrown away, logprobs joined across versions."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from methods_help import SlotEngine, run

from rollwright.errors import ConfigError
from rollwright.methods.april import april
from rollwright.methods.copris import copris
from rollwright.methods.grpo import grpo
from rollwright.testing.fake import FakeEngine, ToyTask, toy_logits
from rollwright.tree import Group, Node, Origin, Trajectory

LONG = ToyTask(num_tasks=40, max_tokens=100, context=128)


class Counting(SlotEngine):
    """Notes how many asks it holds whenever it decodes."""

    def __init__(self, num_slots: int, **fields: Any) -> None:
        super().__init__(num_slots, **fields)
        self.held: list[int] = []

    def step(self) -> list[Any]:
        self.held.append(len(self.live))
        return super().step()


@pytest.mark.parametrize("num_flying", [6, 10, 17])
def test_exactly_c_are_in_flight_until_the_stop(num_flying: int) -> None:
    """Oracle: a count at every decode step. It is C in all of them; APRIL's is larger, then smaller."""
    engine = Counting(64)
    run(copris(each=4, num_flying=num_flying), task=LONG, engine=engine, num_steps=8, chunk=1)
    assert set(engine.held) == {num_flying}
    other = Counting(64)
    run(april(each=4), task=LONG, engine=other, num_steps=8, chunk=1)
    assert len(set(other.held)) > 5


def test_no_token_is_discarded_and_batches_are_full() -> None:
    """Oracle: ledger law. Every sampled token was trained or still waits; every batch has its groups."""
    result = run(copris(each=4, num_flying=12), task=LONG, engine=SlotEngine(12), num_steps=12, chunk=1)
    fates = result.ledger.fates
    assert fates["trained"] + fates["held"] == result.ledger.spent["sampled_tokens"]
    assert fates["trained"] > 0 < fates["held"]
    assert [len(batch.groups) for batch in result.batches] == [4] * 12
    assert {len(g.trajectories) for batch in result.batches for g in batch.groups} == {4}


def test_joined_logprobs_are_those_of_each_version() -> None:
    """Oracle: slow reference. L of a rollout over several versions is each version's own logprob."""
    result = run(copris(each=3, num_flying=8), task=LONG, num_steps=8, chunk=1)
    num_mixed = 0
    for group, t in result.trained():
        response = group.response(t)
        num_mixed += len(set(response.versions.tolist())) > 1
        tokens = [*response.prompt, *response.tokens]
        for i, version in enumerate(response.versions.tolist()):
            at = len(response.prompt) + i
            logits = toy_logits(tokens[:at], 6, version)
            want = logits[tokens[at]] - np.logaddexp.reduce(logits)
            assert response.logp_old[i] == pytest.approx(want, abs=1e-12)
    assert num_mixed > 3


def test_ratios_to_the_joined_logprobs_are_exact_and_to_one_version_are_not() -> None:
    """Oracle: enumeration. Two tokens of three words, the first by policy A, the second by B: weighted by
    exp(log π − L), the mean reward over what A and B sample is the mean reward of π; with A's logprobs for
    both tokens it is another number."""
    rng = np.random.default_rng(3)
    tables = {name: rng.normal(size=(4, 3)) for name in ("A", "B", "pi")}
    logps = {name: x - np.logaddexp.reduce(x, axis=1, keepdims=True) for name, x in tables.items()}
    reward = rng.normal(size=(3, 3))
    exact = joined = single = 0.0
    for first, second in itertools.product(range(3), repeat=2):
        by = {name: (table[3, first], table[first, second]) for name, table in logps.items()}
        root = Node("r", None, 0, Origin.PROMPT, (9,))
        one = Node("a", "r", 1, Origin.SAMPLED, (first,), version=0, logprobs=(by["A"][0],))
        two = Node("b", "a", 1, Origin.SAMPLED, (second,), start=1, version=1, logprobs=(by["B"][1],))
        group = Group("g", "t", {n.id: n for n in (root, one, two)})
        response = group.response(Trajectory("b", 0))
        sampled = math.exp(by["A"][0] + by["B"][1])
        new = sum(by["pi"])
        exact += math.exp(new) * reward[first, second]
        joined += sampled * math.exp(new - response.logp_old.sum()) * reward[first, second]
        single += sampled * math.exp(new - sum(by["A"])) * reward[first, second]
    assert joined == pytest.approx(exact, abs=1e-12)
    assert abs(single - exact) > 0.01


def test_steps_take_less_time_than_grpo_s_at_the_same_slots() -> None:
    """Oracle: metamorphic. Decode iterations a step and idle slots, against GRPO on the same engine."""
    found = {}
    for method in (grpo(each=4), copris(each=4, num_flying=16)):
        result = run(method, task=LONG, engine=SlotEngine(16), num_steps=15, chunk=1)
        found[method.name] = (result.engine.num_iterations / len(result.batches), result.engine.idle_share)
    print("decode iterations a step, idle share of slots:", found)
    assert found["copris"][0] < 0.6 * found["grpo"][0], found
    assert found["copris"][1] == 0.0, found


def test_samples_are_grpo_s_own() -> None:
    """Oracle: other implementation. With unchanged weights a rollout is GRPO's, token for token."""
    found = []
    for method in (copris(each=3, num_flying=7), grpo(each=3)):
        result = run(method, task=LONG, num_steps=10, chunk=1, publish=False)
        found.append({(g.id, g.nodes[t.leaf].stream): g.response(t).tokens for g, t in result.trained()})
    both = found[0].keys() & found[1].keys()
    assert len(both) > 60
    assert all(found[0][name] == found[1][name] for name in both)


def test_arrival_changes_what_is_trained_only() -> None:
    """Oracle: metamorphic. In any order of arrival C is kept and a rollout samples the same."""
    known: dict[Any, Any] = {}
    for arrival in (None, 3, 11):
        engine = FakeEngine(arrival=arrival)
        result = run(
            copris(each=3, num_flying=7), task=LONG, engine=engine, num_steps=6, chunk=1, publish=False
        )
        for group, t in result.trained():
            name = (group.id, group.nodes[t.leaf].stream)
            assert known.setdefault(name, group.response(t).tokens) == group.response(t).tokens


@pytest.mark.parametrize("options", [{"num_flying": 0}, {"each": 0}])
def test_what_cannot_be_is_refused(options: dict[str, int]) -> None:
    """Oracle: the contract."""
    with pytest.raises(ConfigError, match="expected at least 1"):
        copris(**options)
