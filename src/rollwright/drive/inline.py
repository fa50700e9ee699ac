"""The inline driver: one thread, a real engine, rollouts and learning in turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from rollwright.drive.base import BaseDriver, Sink
from rollwright.drive.world import World
from rollwright.engine.api import Engine, ended
from rollwright.errors import EngineError, LawBroken
from rollwright.events import (
    Abort,
    AnyCommand,
    AnyEvent,
    EmitBatch,
    EnvStep,
    Failed,
    Published,
    Report,
    Reset,
    Score,
    Submit,
)
from rollwright.runner import Runner

__all__ = ["InlineDriver", "Sink"]


class InlineDriver(BaseDriver):
    """Run a runner to its end on this thread.

    Args:
        runner: the state machine, fresh or folded from a journal.
        engine: samples tokens.
        world: prompts, environments and grades.
        train: makes an update from a batch and returns what was published; None for an evaluation.
        journal, on_report, clock, started_at: as for `BaseDriver`.
    """

    def __init__(
        self,
        runner: Runner,
        engine: Engine,
        world: World,
        train: Callable[[EmitBatch], Published] | None = None,
        journal: Sink | None = None,
        on_report: Callable[[Report], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
        started_at: float = 0.0,
    ) -> None:
        super().__init__(runner, journal, on_report, clock, started_at)
        self.engine, self.world, self.train = engine, world, train
        self.flying: set[str] = set()  # asks that the engine has

    def wait(self) -> Sequence[AnyEvent]:
        """Return the chunks of the engine's next step."""
        chunks = self.engine.step()
        self.flying -= ended(chunks)
        if not chunks and not self.engine.num_live:
            if not self.is_retrying:
                raise LawBroken(f"the run waits for nothing: {self.runner.waits()}")
            time.sleep(max(0.0, min(self.deadlines.values()) - self.now))
        return chunks

    def execute(self, command: AnyCommand) -> Sequence[AnyEvent]:
        """Carry out one command; return the answers that are there at once."""
        if isinstance(command, (Submit, Score, EnvStep, Reset)) and not self.is_wanted(command):
            return ()
        if isinstance(command, Submit):
            return self._submit(command)
        if isinstance(command, Score):
            group = self.runner.groups[command.group]
            truncated = group.trajectories[command.leaf].truncated
            return (self.world.score(command, group.task, group.nodes, truncated),)  # type: ignore[return-value]
        if isinstance(command, EnvStep):
            group = self.runner.groups[command.group]
            return (self.world.env_step(command, group.task, group.nodes),)  # type: ignore[return-value]
        if isinstance(command, Reset):
            return (self.world.reset(command),)  # type: ignore[return-value]
        if isinstance(command, Abort):
            if command.ask not in self.flying:
                return ()  # it ended in the same batch of chunks, or was refused
            self.flying.discard(command.ask)
            return (self.engine.abort(command.ask),)
        if isinstance(command, EmitBatch):
            return () if self.is_stopping else (self._train(command),)
        self.note(command)
        return ()

    def retire(self, group: str) -> None:
        """Forget the keys and the environment states of a group."""
        self.engine.retire(group)
        self.world.retire(group)

    def _submit(self, command: Submit) -> Sequence[AnyEvent]:
        try:
            self.engine.submit(command, self.prefix_of(command))
        except EngineError as error:
            return (Failed(ask=command.ask, kind="engine", message=str(error)),)
        self.flying.add(command.ask)
        return ()

    def _train(self, command: EmitBatch) -> Published | Failed:
        if self.train is None:
            raise LawBroken("the runner emitted a batch, but this driver has no learner")
        try:
            published = self.train(command)
        except Exception as error:
            return self.learner_failed(command, error)
        self.engine.publish(published.version)
        return published
