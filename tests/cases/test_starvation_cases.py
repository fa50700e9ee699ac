"""S08 (thinking-machines-lab/tinker-cookbook#822): a slow task is trained, and one that is not is seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rollwright.discovery import load_method
from rollwright.drive.virtual import Constant, EngineModel, LearnerModel, Model, ServiceModel, VirtualDriver
from rollwright.drive.virtual.content import ModelledContent
from rollwright.lab.bias import Bias, report
from rollwright.lab.population import read_population
from rollwright.method import Method
from rollwright.runner import Runner, Settings
from rollwright.store.journal import Journal, read
from rollwright.store.layout import JOURNAL

DURATIONS = (1, 1, 1, 6)  # of each task, in steps
MAX_AGE, NUM_STEPS = 2, 24


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


def test_s08_every_task_is_trained_within_the_bound(tmp_path) -> None:
    """Oracle: golden. Each task has a trained row in 24 steps, and nothing older than the bound is trained.

    Kills: a limit on age that throws slow rollouts away and begins them again.
    """
    method = load_method("april", each=1, oversample=2.0)  # four in flight, batches of two
    bias = run(tmp_path, method, num_tasks=2, max_carry=MAX_AGE)
    assert (bias.num_tasks, bias.num_tasks_trained, bias.never_trained) == (4, 4, ())
    ages = []
    oldest: dict[str, int] = {}
    population = read_population(tmp_path / JOURNAL)
    for event, _ in read(tmp_path / JOURNAL):
        if hasattr(event, "logprobs") and event.tokens:
            oldest.setdefault(event.ask.rpartition(":")[0], event.version)
    for sample in population.samples.values():
        if sample.trained_in is not None:
            ages.append(population.closes[sample.trained_in] - oldest[sample.name])
    assert max(ages) == MAX_AGE
    slow = [s for s in population.samples.values() if s.task == "t/3" and s.is_trained]
    assert len(slow) > 1


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
