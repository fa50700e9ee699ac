"""How many wide-area workers a learner needs: the rule against simulations, choices against all choices."""

from __future__ import annotations

import itertools
import random
from functools import cache

import numpy as np
import pytest

from rollwright.drive.virtual import (
    Broadcast,
    Constant,
    EngineModel,
    LearnerModel,
    LogNormal,
    Model,
    ServiceModel,
    TaskModel,
)
from rollwright.errors import ConfigError
from rollwright.lab.simulate import SimulationReport, simulate
from rollwright.lab.simulation.capacity import Demand, num_needed, provision, rate_of
from rollwright.methods.grpo import grpo
from rollwright.runner import Settings

TRAIN, CAP, AHEAD, STEPS = 6.0, 1500, 10, 36
BROADCAST = Broadcast(copy_seconds=5.0, latency_seconds=0.2, kind="chain", chunks=16)


def engine(num: int) -> EngineModel:
    return EngineModel(
        num, 4, step_seconds=0.02, sequence_seconds=0.002, prefill_seconds=1e-5, broadcast=BROADCAST
    )


def demand(num_workers: int, staleness: int = AHEAD) -> Demand:
    lengths = np.minimum(200 * np.exp(np.random.default_rng(0).normal(size=200_000)), CAP)
    return Demand(
        num_rollouts=8 * 4,
        train_seconds=TRAIN,
        mean_tokens=float(np.maximum(1, np.round(lengths)).mean()),
        longest_seconds=CAP * engine(1).decode_seconds(4),
        broadcast_seconds=BROADCAST.arrives_after(num_workers - 1),
        staleness=staleness,
    )


@cache
def wide_area(num_workers: int, num_ahead: int = AHEAD) -> SimulationReport:
    """Simulate a central learner with remote workers that get weights along a chain."""
    model = Model(
        engine=engine(num_workers),
        tasks=TaskModel(Constant(32), LogNormal(200, 1.0)),
        services=ServiceModel(Constant(0), Constant(0), Constant(0)),
        learner=LearnerModel(TRAIN, 0.0),
    )
    settings = Settings(
        seed=0, tasks=tuple(f"t/{i}" for i in range(256)), num_steps=STEPS, num_tasks=8, context=4000,
        max_tokens=CAP, chunk=0, num_ahead=num_ahead, rollout_deadline=1e9,
    )  # fmt: skip
    return simulate(grpo(4), settings, model)


def busy(report: SimulationReport) -> float:
    """Return the learner's busy share in the middle of the run: neither the start nor the last steps."""
    steps = report.steps[13 : STEPS - AHEAD]
    learning = sum(step.learn_seconds for step in steps)
    return learning / (learning + sum(step.rollouts_seconds for step in steps))


def test_the_rule_predicts_the_knee() -> None:
    """Oracle: simulation. With a tenth fewer workers than N* the learner waits, with a tenth more it never
    does: the knee lies between."""
    predicted = num_needed(engine(1), demand(20))
    fewer, more = int(0.9 * predicted), round(1.1 * predicted)
    shares = {num: busy(wide_area(num)) for num in (fewer, more)}
    print(f"predicted {predicted}, busy shares {shares}")
    assert shares[fewer] < 0.97 and shares[more] > 0.99


def test_the_way_of_weights_counts_as_age() -> None:
    """Oracle: the bound. Nothing is older than num_ahead + ⌈T_broadcast / T_train⌉, and something is older
    than num_ahead alone: with `Demand.num_ahead` the bound S holds."""
    num = round(1.1 * num_needed(engine(1), demand(20)))
    wanted = demand(num, staleness=AHEAD)
    assert wanted.versions_on_the_way == 2 and wanted.num_ahead == AHEAD - 2
    assert max(wide_area(num, AHEAD).ages) > AHEAD
    assert max(wide_area(num, wanted.num_ahead).ages) <= AHEAD


def test_without_room_for_the_way_the_learner_waits_whatever_the_workers() -> None:
    """Oracle: metamorphic. Where T_broadcast + T_rollout > S · T_train, twice the workers do not help."""
    num = num_needed(engine(1), demand(20))
    tight = demand(2 * num, staleness=3)
    assert not tight.is_covered and demand(num).is_covered
    assert busy(wide_area(2 * num, 2)) < 0.9


@pytest.mark.parametrize("seed", range(60))
def test_the_cheapest_workers_are_activated(seed: int) -> None:
    """Oracle: enumeration of all choices of three kinds."""
    rng = random.Random(seed)
    kinds = [
        EngineModel(
            rng.randint(1, 6),
            rng.randint(1, 8),
            step_seconds=rng.uniform(0.01, 0.1),
            price=rng.uniform(0.1, 4),
        )
        for _ in range(3)
    ]
    wanted = Demand(rng.randint(10, 60), 10.0, rng.uniform(100, 400))
    rates = [rate_of(kind, wanted) for kind in kinds]
    prices = {
        nums: sum(num * kind.price for num, kind in zip(nums, kinds, strict=True))
        for nums in itertools.product(*[range(kind.num_workers + 1) for kind in kinds])
        if sum(num * rate for num, rate in zip(nums, rates, strict=True)) >= wanted.rate * (1 - 1e-9)
    }
    if not prices:
        with pytest.raises(ConfigError, match="add workers"):
            provision(kinds, wanted)
        return
    assert prices[provision(kinds, wanted)] == pytest.approx(min(prices.values()), rel=1e-9)


def test_a_chain_in_chunks_beats_a_star() -> None:
    """Oracle: closed form. (M / bw) · (1 + (n − 1) / chunks) against n · M / bw."""
    for num in (2, 8, 64):
        chain = Broadcast(4.0, 0.0, "chain", 16).arrives_after(num - 1)
        assert chain == pytest.approx(4.0 * (1 + (num - 1) / 16))
        assert chain < Broadcast(4.0, 0.0, "star").arrives_after(num - 1) == 4.0 * num


def test_what_cannot_be_is_refused() -> None:
    """Oracle: the contract."""
    with pytest.raises(ConfigError, match="expected all of them > 0"):
        Demand(0, 1.0, 1.0)
    with pytest.raises(ConfigError, match="allow more staleness"):
        _ = Demand(1, 1.0, 1.0, broadcast_seconds=3.5, staleness=3).num_ahead
