"""What runs inside the actors. Plain classes: `rollwright.drive.ray.hire` makes actors of them.

Each is given its maker by `begin` and not by its constructor, so that a maker which fails, or which cannot be
imported there, is an error with a cause and not a dead actor.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rollwright.drive.ray.recipe import Files, Sampler, Trainer, Weights
from rollwright.drive.world import Nodes, World
from rollwright.errors import EngineError, LawBroken
from rollwright.events import (
    Abort,
    AnyEvent,
    EmitBatch,
    EnvStep,
    Failed,
    Published,
    Reset,
    Retire,
    Score,
    Submit,
)
from rollwright.tree import GroupId, TaskId


@dataclass(frozen=True, slots=True)
class Place:
    """Where an actor lives."""

    node: str
    pid: int


@dataclass(frozen=True, slots=True)
class Submission:
    """A submit and the path of token ids before its first new token."""

    command: Submit
    prefix: Sequence[int]


Order = Submission | Abort | Retire


@dataclass(frozen=True, slots=True)
class Worked:
    """Answers of a worker, and how many asks it still has."""

    answers: list[AnyEvent]
    num_live: int


@dataclass(frozen=True, slots=True)
class Job:
    """A command for a world, with what it needs to know.

    Args:
        command: the command.
        task: the task that it is about.
        nodes: those of the path that it is about.
        truncated: whether the trajectory that is graded was cut.
        session: the trajectory, as placements know it.
    """

    command: Reset | EnvStep | Score
    task: TaskId
    nodes: Nodes
    truncated: bool = False
    session: str = ""


@dataclass(frozen=True, slots=True)
class Served:
    """A grader's answers, in order, and the seconds that all of them took."""

    answers: list[AnyEvent]
    seconds: float


def place() -> Place:
    """Return where this actor lives."""
    import ray

    return Place(ray.get_runtime_context().get_node_id(), os.getpid())


class RolloutWorker:
    """Holds an engine. Orders and publications take effect in the order in which they were sent."""

    def __init__(self) -> None:
        self.version: int | None = None  # of the weights; None before the first came

    def begin(self, make: Callable[[], Sampler]) -> Place:
        """Make the engine."""
        self.engine = make()
        return place()

    def publish(self, version: int, weights: Weights) -> int:
        """Take whole weights; return their version."""
        self.engine.load(weights)
        self.engine.publish(version)
        self.version = version
        return version

    def work(self, orders: Sequence[Order]) -> Worked:
        """Carry out the orders; if they gave no answer, sample until a chunk is due.

        Raises:
            LawBroken: it was asked to sample before it had any weights.
        """
        answers = [answer for order in orders for answer in self._carry_out(order)]
        if not answers and self.engine.num_live:
            answers += self.engine.step()
        return Worked(answers, self.engine.num_live)

    def _carry_out(self, order: Order) -> Sequence[AnyEvent]:
        if isinstance(order, Retire):
            self.engine.retire(order.group)
            return ()
        if isinstance(order, Abort):
            try:
                return (self.engine.abort(order.ask),)
            except (EngineError, KeyError):
                return ()  # it ended just before: its last chunk is on the way, or with the driver
        if self.version is None:
            raise LawBroken(f"{order.command.ask} was given to a rollout worker that has no weights yet")
        try:
            self.engine.submit(order.command, order.prefix)
        except EngineError as error:
            return (Failed(ask=order.command.ask, kind="engine", message=str(error)),)
        return ()


class Grader:
    """Holds a task's world: prompts, environments and grades."""

    def begin(self, make: Callable[[], World]) -> Place:
        """Make the world."""
        self.world = make()
        return place()

    def serve(self, jobs: Sequence[Job], retired: Sequence[GroupId] = ()) -> Served:
        """Do jobs in order; first forget the groups that were closed meanwhile."""
        begun = time.perf_counter()
        for group in retired:
            self.world.retire(group)
        answers = [self._answer(job) for job in jobs]
        return Served(answers, time.perf_counter() - begun)

    def _answer(self, job: Job) -> AnyEvent:
        command = job.command
        if isinstance(command, Reset):
            return self.world.reset(command)  # type: ignore[return-value]
        if isinstance(command, EnvStep):
            return self.world.env_step(command, job.task, job.nodes)  # type: ignore[return-value]
        return self.world.score(command, job.task, job.nodes, job.truncated)  # type: ignore[return-value]


class Learner:
    """Holds the trainer. Each change of the weights is answered with them, for the workers."""

    def begin(self, make: Callable[[], Trainer]) -> Place:
        """Make the trainer."""
        self.trainer = make()
        return place()

    def restore(self, files: Files, *batches: EmitBatch) -> tuple[int, Weights]:
        """Become what was saved, and train again what came since."""
        self.trainer.load(files)
        for batch in batches:
            self.trainer.train(batch)
        return self.trainer.weights()

    def train(self, batch: EmitBatch) -> tuple[Published, Weights]:
        """Make an update."""
        published = self.trainer.train(batch)
        return published, self.trainer.weights()[1]

    def weights(self) -> tuple[int, Weights]:
        """Return (version, weights)."""
        return self.trainer.weights()

    def save(self) -> Files:
        """Return a checkpoint."""
        return self.trainer.save()
