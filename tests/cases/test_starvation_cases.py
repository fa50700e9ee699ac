"""Case S08, its second half: a task that is never trained is seen. The first: test_staleness_cases.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rollwright.discovery import load_method
from rollwright.drive.virtual import Constant, EngineModel, LearnerModel, Model, ServiceModel, VirtualDriver
from rollwright.drive.virtual.content import ModelledContent
from rollwright.lab.bias import Bias, report
from rollwright.method import Method
from rollwright.runner import Runner, Settings
from rollwright.store.journal import Journal
from rollwright.store.layout import JOURNAL

DURATIONS = (1, 1, 1, 6)  # of each task, in steps
NUM_STEPS = 24


class Durations(ModelledContent):
    """A rollout takes as many tokens as its task says, ten for each step."""

    def length(self, task: str, key: int, start: int, version: int) -> int:
        return 10 * DURATIONS[int(task.rpartition("/")[2])]


def run(folder: Path, method: Method, **changes: Any) -> Bias:
    """24 steps of an engine that makes a token a second of every rollout."""
    fields: dict[str, Any] = {
        "seed": 1,
        "tasks": tuple(f"t/{k}" for k in range(4)),
        "num_steps": NUM_STEPS,
        "context": 500,
        "max_tokens": 100,
        "chunk": 5,
    }
    model = Model(
        engine=EngineModel(
            num_workers=1, num_slots=8, step_seconds=1.0, sequence_seconds=0.0, prefill_seconds=0.0
        ),
        services=ServiceModel(Constant(0.0), Constant(0.0), Constant(0.0)),
        learner=LearnerModel(0.0, 0.0),
    )
    runner = Runner(method, Settings(**{**fields, **changes}))
    with Journal.open(folder / JOURNAL) as journal:
        assert VirtualDriver(runner, model, Durations(model), journal=journal).run() == "all steps done"
    return report(folder, 200)


def test_s08_a_bias_to_the_fast_is_reported(tmp_path) -> None:
    """Oracle: golden. With a deadline that gives the slow task up each time, it is named with its cost."""
    bias = run(tmp_path, load_method("grpo", each=1), num_tasks=4, rollout_deadline=15.0)
    assert (bias.num_tasks, bias.num_tasks_trained) == (4, 3)
    (never,) = bias.never_trained
    assert never.task == "t/3" and never.num_rollouts > 1
    assert never.num_tokens == 15 * never.num_rollouts, "a token a second until the deadline"
    length = next(one for one in bias.comparisons if one.measure == "length")
    assert length.mean_trained == 10.0
    assert length.mean_sampled == pytest.approx(10 + 5 * never.num_rollouts / bias.num_sampled)
    assert length.distance == pytest.approx(never.num_rollouts / bias.num_sampled)
