"""Turns taken together: the same rollouts, in more time."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from methods_help import run

from rollwright.drive.virtual import (
    Constant,
    EngineModel,
    LearnerModel,
    LogNormal,
    Model,
    ServiceModel,
    TaskModel,
)
from rollwright.lab.simulate import SimulationReport, simulate
from rollwright.method import Method
from rollwright.methods.grpo import grpo
from rollwright.runner import Settings
from rollwright.stages.generate.lockstep import Lockstep
from rollwright.testing.fake import ToyTask
from rollwright.tree import Group, Trajectory

LOCKSTEP = dataclasses.replace(grpo(each=4), generate=Lockstep())


def test_what_is_sampled_is_what_independent_rollouts_sample() -> None:
    """Oracle: other implementation. Tokens, logprobs, turns and credit of dialogues are GRPO's.

    Kills: a rollout that is left behind at a barrier, an end that asks for another turn.
    """
    found: list[list[Any]] = []
    for method in (grpo(each=4), LOCKSTEP):
        result = run(method, task=ToyTask(max_turns=3, max_tokens=9, context=60), num_steps=2)
        found.append(
            [
                (g.id, t.index, g.response(t).tokens, t.num_turns, t.advantages, t.stop, _logprobs(g, t))
                for g, t in result.trained()
            ]
        )
    assert found[0] == found[1]
    assert any(row[3] > 1 for row in found[0])


def _logprobs(group: Group, trajectory: Trajectory) -> list[float]:
    response = group.response(trajectory)
    return [float(x) for x in response.logp_old[response.is_sampled]]


def dialogues(method: Method, wait: Any) -> SimulationReport:
    """Simulate 4 dialogues of 3 turns with 10 tokens of a second each."""
    model = Model(
        engine=EngineModel(1, 8, step_seconds=1.0, sequence_seconds=0.0, prefill_seconds=0.0),
        tasks=TaskModel(Constant(5), Constant(10), Constant(2), end_share=0.0),
        services=ServiceModel(Constant(0), wait, Constant(0)),
        learner=LearnerModel(0.0, 0.0),
    )
    settings = Settings(
        seed=0, tasks=("t/0",), num_steps=1, num_tasks=1, context=1000, max_tokens=50, max_turns=3,
        is_dialogue=True, chunk=0, rollout_deadline=1e9,
    )  # fmt: skip
    return simulate(method, settings, model)


def test_every_turn_waits_for_the_slowest_environment_of_the_group() -> None:
    """Oracle: closed form where all environments take 7 s: 3 · (10 + 7) s either way; metamorphic where they
    do not: the barrier costs time, and what is trained stays the same."""
    for method in (LOCKSTEP, grpo(each=4)):
        assert dialogues(method, Constant(7)).seconds == pytest.approx(51)
    slow, free = (dialogues(method, LogNormal(7, 1.0)) for method in (LOCKSTEP, grpo(each=4)))
    assert slow.fates == free.fates
    assert slow.seconds > 1.05 * free.seconds
