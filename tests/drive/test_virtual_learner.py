"""The modelled learner: its workers, what it does beside the rollouts, and workers that change sides."""

from __future__ import annotations

import dataclasses
import random
from functools import cache
from typing import Any

import pytest

from rollwright.drive.virtual import (
    Constant,
    EngineModel,
    LearnerModel,
    LogNormal,
    Model,
    ServiceModel,
    TaskModel,
)
from rollwright.drive.virtual.balance import Balance
from rollwright.drive.virtual.model import StepCost
from rollwright.errors import ConfigError
from rollwright.lab.simulate import SimulationReport, simulate
from rollwright.lab.simulation.compare import compare
from rollwright.lab.simulation.setup import Setup, standard
from rollwright.methods.grpo import grpo
from rollwright.runner import Settings


def run(
    learner: LearnerModel,
    engine: EngineModel | None = None,
    tasks: TaskModel | None = None,
    planner: Any = None,
    **changes: Any,
) -> SimulationReport:
    """Simulate GRPO; by default 4 groups of 4 with 100 tokens each and a prompt of 60, a second a token."""
    engine = engine or EngineModel(
        num_workers=1, num_slots=16, step_seconds=1.0, sequence_seconds=0.0, prefill_seconds=0.0
    )
    model = Model(
        engine=engine,
        tasks=tasks or TaskModel(Constant(60), Constant(100)),
        services=ServiceModel(Constant(0), Constant(0), Constant(0)),
        learner=learner,
        planner=planner,
    )
    fields: dict[str, Any] = {"seed": 0, "tasks": tuple(f"t/{i}" for i in range(40)), "num_steps": 1}
    fields |= {"num_tasks": 4, "context": 10**6, "max_tokens": 10**5, "chunk": 0, "rollout_deadline": 1e9}
    return simulate(grpo(changes.pop("each", 4)), Settings(**{**fields, **changes}), model)


# ------------------------------------------------------------ closed forms


@pytest.mark.parametrize("num", [1, 4])
def test_workers_share_the_tokens_of_an_update(num: int) -> None:
    """Oracle: closed form. 2 s and 16 · 160 tokens of 0.01 s over the workers, after 100 s of rollouts."""
    report = run(LearnerModel(2.0, 0.01, num))
    assert report.seconds == pytest.approx(100 + 2 + 16 * 160 * 0.01 / num)


@pytest.mark.parametrize(
    ("spare", "share", "saved"), [(1.0, 1.0, 9.6), (1.0, 0.5, 4.8), (0.05, 1.0, 5.0), (0.0, 1.0, 0.0)]
)
def test_prompts_are_worked_through_beside_the_rollouts_as_far_as_they_fit(
    spare: float, share: float, saved: float
) -> None:
    """Oracle: closed form (Rollplex). Of 16 · 160 tokens 16 · 60 are prompts: 9.6 s, of which ``share`` does
    not wait for responses, and as many as ``spare`` of the 100 s of rollouts allow cost nothing. What is
    trained stays the same."""
    plain = run(LearnerModel(2.0, 0.01))
    early = run(LearnerModel(2.0, 0.01, prefix_early=True, prefix_share=share, spare=spare))
    assert plain.seconds - early.seconds == pytest.approx(saved)
    assert early.fates == plain.fates and early.spent["learner_tokens"] == plain.spent["learner_tokens"]


@pytest.mark.parametrize("floor", [0.0, 0.03, 0.06])
def test_only_arithmetic_that_decoding_leaves_free_is_used(floor: float) -> None:
    """Oracle: closed form. 16 sequences of 100 tokens: a step takes 1 s, of which 16 · floor are arithmetic;
    the prompts' 4 · 60 tokens of prefill take 0.1 s each, all of it arithmetic. The rest of the 124 s is
    free, and 60 s of prompts fit into a half of it only where decoding leaves enough.

    Kills: the whole of the rollouts' time taken as free, prefill not counted, the second step's free time
    counted from the run's start."""
    engine = EngineModel(
        1, 16, step_seconds=1.0, sequence_seconds=0.0, prefill_seconds=0.1, floor_seconds=floor
    )
    plain = run(LearnerModel(2.0, 0.1), engine, num_steps=2)
    early = run(LearnerModel(2.0, 0.1, prefix_early=True, prefix_share=0.625, spare=0.5), engine, num_steps=2)
    free = 100 - 16 * 100 * floor
    saved = [min(16 * 60 * 0.625 * 0.1, 0.5 * free)] * 2
    found = [a.learn_seconds - b.learn_seconds for a, b in zip(plain.steps, early.steps, strict=True)]
    assert found == pytest.approx(saved)
    assert [step.rollouts_seconds for step in early.steps] == pytest.approx([124.0, 124.0])


def test_rollplex_is_quicker_where_prompts_are_long_and_changes_nothing_else() -> None:
    """Oracle: metamorphic. With the roofline of a real device the step is shorter than in turn, by no more
    than the prompts' share of the update; with short prompts there is little to gain."""
    found = {}
    for prompt in (8000, 100):
        setup = Setup(
            4, "H800", "Qwen3-8B", num_tasks=8, tasks=TaskModel(Constant(prompt), LogNormal(300, 1.0)),
            max_tokens=1024, num_steps=3, num_warm=1,
        )  # fmt: skip
        serial, early = compare(setup, [standard(setup)[name] for name in ("sync", "rollplex")])
        assert early.report.fates == serial.report.fates and early.report.ages == serial.report.ages
        hidden = serial.step_seconds - early.step_seconds
        learning = sum(step.learn_seconds - 5.0 for step in serial.report.steps[1:]) / 2
        assert 0 < hidden < 0.5 * learning
        found[prompt] = early.speedup
    print(found)
    assert found[8000] > 1.1 > 1.05 > found[100]


def test_gradients_of_complete_groups_are_made_while_others_roll_out() -> None:
    """Oracle: by hand (FlexMARL's micro-batches). One worker with one slot: groups of one with 100 tokens
    end at 100, 200, 300, 400 s; each takes 1.6 s of gradients. Only the last one makes the update wait."""
    engine = EngineModel(1, 1, step_seconds=1.0, sequence_seconds=0.0, prefill_seconds=0.0)
    plain = run(LearnerModel(2.0, 0.01), engine, each=1)
    streams = run(LearnerModel(2.0, 0.01, streams=True), engine, each=1)
    assert plain.seconds == pytest.approx(400 + 2 + 4 * 1.6)
    assert streams.seconds == pytest.approx(400 + 2 + 1.6)
    assert streams.ages == plain.ages == {0: 4}, "every sample is of the current version"
    assert streams.fates == plain.fates


def test_streams_are_quicker_on_a_skewed_batch() -> None:
    """Oracle: metamorphic. The same rollouts of long-tailed length and an update of a third of the step: most
    of it is hidden."""
    engine = EngineModel(4, 8, step_seconds=0.01, sequence_seconds=0.0, prefill_seconds=0.0)
    tasks = TaskModel(Constant(16), LogNormal(100, 1.0))
    found = [
        run(LearnerModel(0.5, 0.0003, streams=on), engine, tasks, num_tasks=16, num_steps=3)
        for on in (False, True)
    ]
    assert found[0].fates == found[1].fates
    hidden = found[0].seconds - found[1].seconds
    assert hidden > 0.8 * sum(step.learn_seconds - 0.5 for step in found[0].steps)


# ------------------------------------------------------------ the planner (Libra)


def test_the_split_is_the_best_of_all_splits() -> None:
    """Oracle: enumeration over random costs; within the gain it stays where it is."""
    rng = random.Random(0)
    for _ in range(300):
        costs = [StepCost(rng.uniform(1, 100), 1.0, rng.uniform(1, 100)) for _ in range(rng.randint(1, 5))]
        num, window = rng.randint(2, 20), rng.randint(1, 3)
        now = rng.randint(1, num - 1)
        rollouts = sum(cost.rollout_seconds for cost in costs[-window:])
        training = sum(cost.train_seconds for cost in costs[-window:])
        longer = {m: max(rollouts / (num - m), training / m) for m in range(1, num)}
        got = Balance(window, 0.1).num_training(costs, num, now)
        if min(longer.values()) >= 0.9 * longer[now]:
            assert got == now
        else:
            assert longer[got] == min(longer.values())


@cache
def drifting(num_training: int | None) -> SimulationReport:
    """Simulate lengths that grow by 9% a step, where reading contexts makes long ones dear to roll out.

    12 workers are split for good, or as the planner says.
    """
    num = 11 if num_training is None else 12 - num_training
    engine = EngineModel(
        num, 256, step_seconds=0.004, sequence_seconds=0.0, kv_seconds=4e-6, prefill_seconds=0.0
    )
    return run(
        LearnerModel(0.0, 0.001, num_training or 1),
        engine,
        TaskModel(Constant(16), LogNormal(100, 0.3), growth=0.09),
        None if num_training else Balance(),
        num_tasks=8,
        num_steps=26,
        num_ahead=2,
        each=8,
    )


def test_a_split_that_is_planned_anew_beats_every_static_one() -> None:
    """Oracle: enumeration. As lengths drift, no split that stays is as quick as the planner's."""
    static = {num: drifting(num).seconds for num in (4, 5, 6, 7, 8)}
    planned = drifting(None)
    best = min(static, key=lambda num: static[num])
    assert 4 < best < 8, "the best one is inside the range"
    print("planned", planned.seconds, "static", static, "splits", planned.splits)
    assert planned.seconds < min(static.values())
    assert len(set(planned.splits)) > 3 and planned.splits[4] > planned.splits[-4]


def test_nothing_is_lost_when_workers_change_sides() -> None:
    """Oracle: conservation. The ledger balances, and every sampled token is trained, as without a planner."""
    planned, static = drifting(None), drifting(6)
    assert planned.fates["trained"] == planned.spent["sampled_tokens"] > 0
    # Lengths grow with the version under which a turn begins, so the two runs need not sample the same.
    assert planned.engine.num_lost == 0 and planned.reason == static.reason == "all steps done"


def test_the_lent_time_is_not_counted_as_idle() -> None:
    """Oracle: closed form. Idle share = 1 − busy / (all workers' time − lent time)."""
    report = drifting(None)
    whole = report.seconds * 11 - report.engine.lent_seconds
    assert report.engine_idle_share == pytest.approx(1 - report.engine.busy_seconds / whole)
    assert report.engine.lent_seconds > 0


@pytest.mark.parametrize(
    "build",
    [
        lambda: Balance(window=0),
        lambda: Balance(gain=-0.1),
        lambda: Balance(start=1.0),
        lambda: LearnerModel(num_workers=0),
        lambda: LearnerModel(spare=1.5),
        lambda: LearnerModel(prefix_share=-0.5),
        lambda: dataclasses.replace(LearnerModel(), token_seconds=-1),
    ],
)
def test_what_cannot_be_is_refused(build: Any) -> None:
    """Oracle: the contract."""
    with pytest.raises(ConfigError):
        build()
