"""Runs of a method on the fake engine, and engines that count or model what a test needs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rollwright.drive.inline import InlineDriver
from rollwright.drive.world import World
from rollwright.events import EmitBatch, Published, Report, Submit
from rollwright.method import Method
from rollwright.runner import Runner, Settings
from rollwright.testing.fake import FakeEngine, ToyTask, ToyTokenizer
from rollwright.tree import Group, Trajectory


@dataclass
class Run:
    """What a run left behind."""

    runner: Runner
    engine: Any
    batches: list[EmitBatch] = field(default_factory=list)
    reports: list[Report] = field(default_factory=list)

    @property
    def ledger(self) -> Any:
        return self.runner.ledger

    def trained(self) -> list[tuple[Group, Trajectory]]:
        return [(g, t) for batch in self.batches for g in batch.groups for t in g.trajectories]


def run(
    method: Method,
    *,
    task: ToyTask | None = None,
    engine: Any = None,
    num_steps: int = 3,
    num_tasks: int = 4,
    seed: int = 1,
    chunk: int = 5,
    publish: bool = True,
    **settings: Any,
) -> Run:
    """Run the method to its end. ``publish=False`` keeps the weights: the version never moves."""
    task = task or ToyTask()
    engine = engine or FakeEngine()
    runner = Runner(
        method,
        Settings(
            seed=seed,
            tasks=tuple(task.ids("train")),
            num_steps=num_steps,
            num_tasks=num_tasks,
            context=task.context,
            max_tokens=task.max_tokens,
            max_turns=task.max_turns,
            is_dialogue=task.max_turns > 1,
            chunk=chunk,
            **settings,
        ),
    )
    result = Run(runner, engine)

    def train(batch: EmitBatch) -> Published:
        result.batches.append(batch)
        return Published(step=batch.step, version=batch.version + publish, learner_tokens=1)

    world = World(task, ToyTokenizer(), (0,))
    InlineDriver(runner, engine, world, train, on_report=result.reports.append).run()
    runner.ledger.check()
    return result


def sampled(group: Group, trajectory: Trajectory) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Return the trajectory's steps after the prompt and the logprobs of those that were sampled."""
    response = group.response(trajectory)
    return response.tokens, tuple(response.logp_old[response.is_sampled])


class SlotEngine(FakeEngine):
    """Decodes one token per iteration for the first ``num_slots`` live asks; the others queue."""

    def __init__(self, num_slots: int, **fields: Any) -> None:
        super().__init__(**fields)
        self.num_slots, self.num_iterations, self.num_busy = num_slots, 0, 0

    def submit(self, command: Submit, prefix: Any) -> None:
        assert command.chunk == 1, "one token per iteration needs chunk = 1"
        super().submit(command, prefix)

    def step(self) -> list[Any]:
        asks = list(self.live)[: self.num_slots]
        if not asks:
            return []
        self.num_iterations += 1
        self.num_busy += len(asks)
        return [event for ask in asks if (event := self._advance(self.live[ask])) is not None]

    @property
    def idle_share(self) -> float:
        return 1 - self.num_busy / (self.num_slots * self.num_iterations)
