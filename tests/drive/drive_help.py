"""What the tests of the drivers share: answers of the toy policy, a recorder of batches, small models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from rollwright.drive.inline import InlineDriver
from rollwright.drive.virtual import Constant, EngineModel, LearnerModel, Model, ServiceModel, VirtualDriver
from rollwright.drive.virtual.content import Answer, Request
from rollwright.drive.world import World
from rollwright.events import EmitBatch, Published, Report, Submit
from rollwright.method import Method
from rollwright.runner import Runner, Settings
from rollwright.testing.fake import EOS, FakeEngine, ToyTask, ToyTokenizer, toy_logits, toy_sample
from rollwright.testing.hand import plain_method
from rollwright.tree import StopReason


@dataclass
class ToyAnswer:
    command: Submit
    prefix: list[int]
    made: list[tuple[Any, ...]]  # (token, logprob, entropy, top)
    stop: StopReason

    @property
    def num(self) -> int:
        return len(self.made)

    def columns(self, first: int, last: int) -> dict[str, Any]:
        tokens, logprobs, entropies, top = zip(*self.made[first:last], strict=True)
        columns = {"tokens": tokens, "logprobs": logprobs, "entropies": entropies}
        return columns | ({"top": top} if self.command.num_top else {})


class ToyContent:
    """The answers of `rollwright.testing.fake.FakeEngine`, for the modelled engine's times."""

    gives = frozenset({"fork", "entropy", "top"})

    def __init__(self, num_words: int = 6) -> None:
        self.num_words = num_words

    def answer(self, request: Request, version: int) -> ToyAnswer:
        prefix = [token for node, num in request.path for token in node.tokens[:num]]
        assert len(prefix) == request.command.start
        return self._sample(request.command, prefix, [], version)

    def renew(self, answer: Answer, num_made: int, version: int) -> ToyAnswer:
        assert isinstance(answer, ToyAnswer)
        return self._sample(answer.command, answer.prefix, answer.made[:num_made], version)

    def _sample(self, command: Submit, prefix: list[int], made: list[Any], version: int) -> ToyAnswer:
        made, path = list(made), prefix + [m[0] for m in made]
        while len(made) < command.max_tokens:
            logits = toy_logits(path, self.num_words, version)
            first = command.first if not made else None
            t = command.start + len(made)
            temperature = command.sampling.temperature
            *sample, logps = toy_sample(logits, command.stream, t, temperature, first)
            best = np.argsort(-logps)[: command.num_top]
            made.append((*sample, tuple((int(v), float(logps[v])) for v in best)))
            path.append(made[-1][0])
            if path[-1] == EOS:
                return ToyAnswer(command, prefix, made, StopReason.EOS)
        return ToyAnswer(command, prefix, made, StopReason.LENGTH)


class Trainer:
    """A learner that keeps what it was given and publishes the next version."""

    def __init__(self) -> None:
        self.batches: list[EmitBatch] = []

    def __call__(self, batch: EmitBatch) -> Published:
        self.batches.append(batch)
        return Published(step=batch.step, version=batch.version + 1, learner_tokens=3)


@dataclass
class Ran:
    """What a run did: its batches, reports without times, runner and driver."""

    batches: list[EmitBatch]
    reports: list[Report]
    runner: Runner
    driver: Any
    reason: str | None

    def texts(self) -> dict[str, tuple[int, ...]]:
        """Return the response of every trained trajectory by group and index."""
        return {
            f"{group.id} {t.index}": group.response(t).tokens
            for batch in self.batches
            for group in batch.groups
            for t in group.trajectories
        }


def toy_settings(task: ToyTask, **changes: Any) -> Settings:
    fields: dict[str, Any] = {
        "seed": 1,
        "tasks": tuple(task.ids("train")),
        "num_steps": 4,
        "num_tasks": 4,
        "context": task.context,
        "max_tokens": task.max_tokens,
        "max_turns": task.max_turns,
        "is_dialogue": task.max_turns > 1,
        "chunk": 5,
        "retries": 0,
    }
    return Settings(**{**fields, **changes})


def timeless(report: Report) -> Report:
    """Leave out what depends on the engine's course: times, and what it had to prefill."""
    left_out = ("spent_seconds", "spent_prefilled_tokens")
    names = [name for name in report.metrics if name not in left_out and "_seconds_" not in name]
    metrics = {name: report.metrics[name] for name in names}
    return msgspec.structs.replace(report, metrics=metrics)


def run_inline(task: ToyTask, method: Method | None = None, journal: Any = None, **changes: Any) -> Ran:
    """Run the toy task with the fake engine, in real time."""
    runner = Runner(method or plain_method(), toy_settings(task, **changes))
    trainer, reports = Trainer(), []
    world = World(task, ToyTokenizer(), (EOS,))
    driver = InlineDriver(runner, FakeEngine(), world, trainer, journal, reports.append)
    reason = driver.run()
    return Ran(trainer.batches, [timeless(report) for report in reports], runner, driver, reason)


def run_virtual(
    task: ToyTask,
    method: Method | None = None,
    model: Model | None = None,
    journal: Any = None,
    **changes: Any,
) -> Ran:
    """Run the toy task with the same answers on the virtual clock."""
    runner = Runner(method or plain_method(), toy_settings(task, **changes))
    trainer, reports = Trainer(), []

    def watch(now: float, command: Any) -> None:
        if isinstance(command, Report):
            reports.append(timeless(command))

    world = World(task, ToyTokenizer(), (EOS,))
    driver = VirtualDriver(runner, model or small_model(), ToyContent(), world, trainer, journal, watch)
    reason = driver.run()
    return Ran(trainer.batches, reports, runner, driver, reason)


def small_model(**engine: Any) -> Model:
    """Return a model with round numbers, whose sums are exact in binary."""
    fields: dict[str, Any] = {
        "num_workers": 2,
        "num_slots": 4,
        "step_seconds": 1.0,
        "sequence_seconds": 0.25,
        "prefill_seconds": 0.125,
    }
    return Model(
        engine=EngineModel(**{**fields, **engine}),
        services=ServiceModel(Constant(0.0), Constant(0.5), Constant(0.25)),
        learner=LearnerModel(2.0, 0.0),
    )
