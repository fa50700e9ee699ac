"""What every driver does: give events to the runner, journal them, and carry out what it wants."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import msgspec

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
from rollwright.tree import path_to


class Sink(Protocol):
    """Where events and the decisions that answered them are kept (`rollwright.store.journal`)."""

    def append(self, event: AnyEvent, commands: Sequence[AnyCommand]) -> None: ...
    def flush(self) -> None: ...


class BaseDriver(ABC):
    """Run a runner to its end; a subclass says how commands are carried out and answers awaited.

    Args:
        runner: the state machine, fresh or folded from a journal.
        journal: keeps every event before it is acted upon.
        on_report: called with each step's report.
        clock: seconds, monotonic.
        started_at: seconds of the run that were before.

    Attributes:
        arrivals: called every ``arrivals_s`` seconds while the run goes on: events from elsewhere, such as
            rollouts that other runs shared; None where there is nothing to look for.
    """

    arrivals: Callable[[], Iterable[AnyEvent]] | None = None
    arrivals_s = 1.0

    def __init__(
        self,
        runner: Runner,
        journal: Sink | None = None,
        on_report: Callable[[Report], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
        started_at: float = 0.0,
    ) -> None:
        self.runner, self.journal, self.on_report, self.clock = runner, journal, on_report, clock
        self.deadlines: dict[str, float] = {}
        self.finished: str | None = None
        self.is_stopping = False
        self.learner_error: Exception | None = None
        self._zero = clock() - started_at
        self._next_look = started_at

    @abstractmethod
    def execute(self, command: AnyCommand) -> Iterable[AnyEvent]:
        """Carry out one command; return the answers that are there at once."""

    @abstractmethod
    def wait(self) -> Iterable[AnyEvent]:
        """Return the next answers. Never waits beyond the next deadline."""

    @abstractmethod
    def retire(self, group: str) -> None:
        """Forget what is kept for a group."""

    @property
    def now(self) -> float:
        return self.clock() - self._zero

    def run(self, is_resumed: bool = False, extend_to: int | None = None) -> str | None:
        """Run until the runner finishes or `stop` is called; return the reason, None when stopped.

        Args:
            is_resumed: the runner was folded from a journal: ask again for what is owed.
            extend_to: learner steps to make in total, where that changed.

        Raises:
            Exception: what the learner raised. The journal says so, and holds the batch for a resume.
        """
        self.feed([Resumed() if is_resumed else Started()])
        if extend_to is not None:
            self.feed([Extended(num_steps=extend_to)])
        if not self.runner.is_done:
            self.finished = None  # an end that the restart or the extension undid
        while self.finished is None and not self.is_stopping:
            self.feed(self._arrived() or self._due() or self.wait())
        if self.learner_error is not None:
            raise self.learner_error
        return self.finished

    def stop(self) -> None:
        """Stop after what is being done now. What was acknowledged is in the journal."""
        self.is_stopping = True

    def feed(self, events: Iterable[AnyEvent]) -> None:
        """Give events to the runner, journal them, then carry out what it wants, until that is done."""
        while events := list(events):
            commands = self._settle_aborts(self._take(events))
            if self.journal is not None:
                self.journal.flush()
            events = [answer for command in commands for answer in self.execute(command)]

    def _take(self, events: Iterable[AnyEvent]) -> list[AnyCommand]:
        """Give events to the runner and add them to the journal; return what it wants, in order."""
        commands: list[AnyCommand] = []
        for event in events:
            event = msgspec.structs.replace(event, at=self.now)
            decided = self.runner.step(event)
            if self.journal is not None:
                self.journal.append(event, decided)
            commands += decided
        return commands

    def _settle_aborts(self, commands: list[AnyCommand]) -> list[AnyCommand]:
        """Carry out aborts, and take their answers, before anything of this is acknowledged.

        What a sequence made and had not reported would be sampled again, under other weights, if a crash
        came between a step's close and the answers to its aborts: so both are flushed at once. What the
        engine is told meanwhile costs nothing if it is lost. Returns the commands that are left.
        """
        left: list[AnyCommand] = []
        while any(isinstance(command, Abort) for command in commands):
            answers: list[AnyEvent] = []
            for command in commands:
                if isinstance(command, (Submit, Abort)):
                    answers += self.execute(command)
                else:
                    left.append(command)
            commands = self._take([*answers, *self.abort_answers()])
        return left + commands

    def abort_answers(self) -> Iterable[AnyEvent]:
        """Wait for the answers to aborts that `execute` did not return."""
        return ()

    # ------------------------------------------------------------ timers and notes

    def _arrived(self) -> list[AnyEvent]:
        if self.arrivals is None or self.now < self._next_look:
            return []
        self._next_look = self.now + self.arrivals_s
        return list(self.arrivals())

    def _due(self) -> list[AnyEvent]:
        due = [timer for timer, at in self.deadlines.items() if at <= self.now]
        for timer in due:
            del self.deadlines[timer]
        return [TimerFired(timer=timer) for timer in due]

    @property
    def is_retrying(self) -> bool:
        """Whether an ask that failed waits for its next try."""
        return any(timer.startswith("retry:") for timer in self.deadlines)

    def is_wanted(self, command: Reset | EnvStep | Score | Submit) -> bool:
        """Whether nothing that came in the same breath gave the ask up."""
        return command.ask in self.runner.asks

    def learner_failed(self, command: EmitBatch, error: Exception) -> Failed:
        """Return the event that ends a run whose learner failed; `run` raises the error at its end."""
        self.learner_error = error
        said = f"{type(error).__name__}: {error}"
        return Failed(ask=f"learn:{command.step}", kind="learner", message=said)

    def prefix_of(self, command: Submit) -> list[int]:
        """Return the token ids before the first one that the command asks for."""
        path = path_to(self.runner.groups[command.group].nodes, command.parent)
        path[-1] = (path[-1][0], command.at)
        return [token for node, num in path for token in node.tokens[:num]]

    def note(self, command: AnyCommand) -> None:
        """Carry out a command that nobody answers."""
        if isinstance(command, SetTimer):
            self.deadlines[command.timer] = self.now + command.seconds
        elif isinstance(command, CancelTimer):
            self.deadlines.pop(command.timer, None)
        elif isinstance(command, Retire):
            self.retire(command.group)
        elif isinstance(command, Report) and self.on_report is not None:
            self.on_report(command)
        elif isinstance(command, Finish):
            self.finished = command.reason
