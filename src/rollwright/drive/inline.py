"""The inline driver: one thread, a real engine, rollouts and learning in turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import msgspec

from rollwright.drive.world import World
from rollwright.engine.api import Engine
from rollwright.errors import EngineError, LawBroken
from rollwright.events import (
    Abort,
    AnyCommand,
    AnyEvent,
    CancelTimer,
    EmitBatch,
    EnvStep,
    Extended,
    Failed,
    Finish,
    Published,
    Report,
    Reset,
    Resumed,
    Retire,
    Score,
    SetTimer,
    Started,
    Submit,
    TimerFired,
)
from rollwright.runner import Runner
from rollwright.runner.state import Phase
from rollwright.tree import path_to


class Sink(Protocol):
    """Where events and the decisions that answered them are kept (`rollwright.store.journal`)."""

    def append(self, event: AnyEvent, commands: Sequence[AnyCommand]) -> None: ...
    def flush(self) -> None: ...


class InlineDriver:
    """Run a runner to its end on this thread.

    Args:
        runner: the state machine, fresh or folded from a journal.
        engine: samples tokens.
        world: prompts, environments and grades.
        train: makes an update from a batch and returns what was published; None for an evaluation.
        journal: keeps every event before it is acted upon.
        on_report: called with each step's report.
        clock: seconds, monotonic.
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
        self.runner, self.engine, self.world, self.train = runner, engine, world, train
        self.journal, self.on_report, self.clock = journal, on_report, clock
        self.deadlines: dict[str, float] = {}
        self.flying: set[str] = set()  # asks that the engine has
        self.finished: str | None = None
        self.is_stopping = False
        self._zero = clock() - started_at

    @property
    def now(self) -> float:
        return self.clock() - self._zero

    def run(self, is_resumed: bool = False, extend_to: int | None = None) -> str | None:
        """Run until the runner finishes or `stop` is called; return the reason, None when stopped.

        Args:
            is_resumed: the runner was folded from a journal: ask again for what is owed.
            extend_to: learner steps to make in total, where that changed.
        """
        self.feed([Resumed() if is_resumed else Started()])
        if extend_to is not None:
            self.feed([Extended(num_steps=extend_to)])
        if self.runner.phase is not Phase.DONE:
            self.finished = None  # an end that the restart or the extension undid
        while self.finished is None and not self.is_stopping:
            due = [timer for timer, at in self.deadlines.items() if at <= self.now]
            if due:
                for timer in due:
                    del self.deadlines[timer]
                self.feed([TimerFired(timer=timer) for timer in due])
                continue
            chunks = self.engine.step()
            if chunks:
                self.flying -= {chunk.ask for chunk in chunks if chunk.stop is not None}
                self.feed(chunks)
            elif not self.engine.num_live and self.finished is None:
                raise LawBroken(
                    f"the run waits for nothing in phase {self.runner.phase.value}: {list(self.runner.asks)}"
                )
        return self.finished

    def stop(self) -> None:
        """Stop after what is being done now. What was acknowledged is in the journal."""
        self.is_stopping = True

    def feed(self, events: Iterable[AnyEvent]) -> None:
        """Give events to the runner, journal them, then carry out what it wants, until that is done."""
        while events := list(events):
            commands: list[AnyCommand] = []
            for event in events:
                event = msgspec.structs.replace(event, at=self.now)
                decided = self.runner.step(event)
                if self.journal is not None:
                    self.journal.append(event, decided)
                commands += decided
            if self.journal is not None:
                self.journal.flush()
            events = [answer for command in commands for answer in self.execute(command)]

    def execute(self, command: AnyCommand) -> Sequence[AnyEvent]:
        """Carry out one command; return the answers that are there at once."""
        if isinstance(command, Submit):
            nodes = self.runner.groups[command.group].nodes
            prefix = [token for node, num in path_to(nodes, command.parent) for token in node.tokens[:num]]
            parent = nodes[command.parent]
            return self._submit(command, prefix[: len(prefix) - (parent.num_steps - command.at)])
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
        self._note(command)
        return ()

    def _submit(self, command: Submit, prefix: Sequence[int]) -> Sequence[AnyEvent]:
        try:
            self.engine.submit(command, prefix)
        except EngineError as error:
            return (Failed(ask=command.ask, kind="engine", message=str(error)),)
        self.flying.add(command.ask)
        return ()

    def _note(self, command: AnyCommand) -> None:
        if isinstance(command, SetTimer):
            self.deadlines[command.timer] = self.now + command.seconds
        elif isinstance(command, CancelTimer):
            self.deadlines.pop(command.timer, None)
        elif isinstance(command, Retire):
            self.engine.retire(command.group)
            self.world.retire(command.group)
        elif isinstance(command, Report) and self.on_report is not None:
            self.on_report(command)
        elif isinstance(command, Finish):
            self.finished = command.reason

    def _train(self, command: EmitBatch) -> Published:
        if self.train is None:
            raise LawBroken("the runner emitted a batch, but this driver has no learner")
        published = self.train(command)
        self.engine.publish(published.version)
        return published
