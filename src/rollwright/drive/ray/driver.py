"""The Ray driver: the runner and the journal here, everything else in actors."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Sequence

import msgspec

from rollwright.drive.inline import Sink
from rollwright.drive.ray.actors import Submission
from rollwright.drive.ray.crew import Crew
from rollwright.drive.ray.graders import Job
from rollwright.drive.world import Nodes
from rollwright.errors import LawBroken
from rollwright.events import (
    Abort,
    AnyCommand,
    AnyEvent,
    CancelTimer,
    EmitBatch,
    EnvStep,
    Extended,
    Finish,
    Report,
    Reset,
    Resumed,
    Retire,
    Sampled,
    Score,
    SetTimer,
    Started,
    Submit,
    TimerFired,
)
from rollwright.runner import Runner
from rollwright.runner.state import Phase
from rollwright.tree import NodeId, path_to


class RayDriver:
    """Run a runner to its end with a crew.

    Args:
        runner: the state machine, fresh or folded from a journal.
        crew: the actors; open. It outlives the driver.
        journal: keeps every event before it is acted upon.
        on_report: called with each step's report.
        clock: seconds, monotonic.
        started_at: seconds of the run that were before.
    """

    def __init__(
        self,
        runner: Runner,
        crew: Crew,
        journal: Sink | None = None,
        on_report: Callable[[Report], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
        started_at: float = 0.0,
    ) -> None:
        self.runner, self.crew = runner, crew
        self.journal, self.on_report, self.clock = journal, on_report, clock
        self.deadlines: dict[str, float] = {}
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

        Raises:
            LawBroken: the runner waits, but nobody has anything to do.
            RollwrightError: what `Crew.wait` raises. What was acknowledged is in the journal.
        """
        self.feed([Resumed() if is_resumed else Started()])
        if extend_to is not None:
            self.feed([Extended(num_steps=extend_to)])
        if self.runner.phase is not Phase.DONE:
            self.finished = None  # an end that the restart or the extension undid
        while self.finished is None and not self.is_stopping:
            self.feed(self._due() or self.crew.wait(self._until_due()))
            if not self.crew.num_owed and self.finished is None and not self.is_stopping:
                raise LawBroken(
                    f"the run waits for nothing in phase {self.runner.phase.value}: {list(self.runner.asks)}"
                )
        return self.finished

    def stop(self) -> None:
        """Stop within a second. What was acknowledged is in the journal."""
        self.is_stopping = True

    def feed(self, events: Iterable[AnyEvent]) -> None:
        """Give events to the runner, journal them, then carry out what it wants, until that is done."""
        while events := list(events):
            commands: list[AnyCommand] = []
            for event in events:
                event = _as_ours(msgspec.structs.replace(event, at=self.now))
                decided = self.runner.step(event)
                if self.journal is not None:
                    self.journal.append(event, decided)
                commands += decided
            if self.journal is not None:
                self.journal.flush()
            events = [answer for command in commands for answer in self.execute(command)]

    def execute(self, command: AnyCommand) -> Iterable[AnyEvent]:
        """Send one command on its way; return the answers that are there at once."""
        if isinstance(command, Submit):
            self.crew.submit(Submission(command, self._prefix(command)))
        elif isinstance(command, (Reset, EnvStep, Score)):
            self.crew.serve(self._job(command))
        elif isinstance(command, Abort):
            return self.crew.abort(command.ask)
        elif isinstance(command, EmitBatch):
            if not self.is_stopping:
                self.crew.seat.train(command)
        else:
            self._note(command)
        return ()

    def _prefix(self, command: Submit) -> Sequence[int]:
        nodes = self.runner.groups[command.group].nodes
        path = path_to(nodes, command.parent)
        path[-1] = (path[-1][0], command.at)
        return [token for node, num in path for token in node.tokens[:num]]

    def _job(self, command: Reset | EnvStep | Score) -> Job:
        if isinstance(command, Reset):
            return Job(command, command.task, {})
        group = self.runner.groups[command.group]
        if isinstance(command, EnvStep):
            return Job(command, group.task, self._path(command.group, command.parent))
        truncated = group.trajectories[command.leaf].truncated
        return Job(command, group.task, self._path(command.group, command.leaf), truncated)

    def _path(self, group: str, leaf: NodeId) -> Nodes:
        """Return the nodes of one path: a grader needs no others."""
        return {node.id: node for node, _ in path_to(self.runner.groups[group].nodes, leaf)}

    def _note(self, command: AnyCommand) -> None:
        if isinstance(command, SetTimer):
            self.deadlines[command.timer] = self.now + command.seconds
        elif isinstance(command, CancelTimer):
            self.deadlines.pop(command.timer, None)
        elif isinstance(command, Retire):
            self.crew.retire(command.group)
        elif isinstance(command, Report) and self.on_report is not None:
            self.on_report(command)
        elif isinstance(command, Finish):
            self.finished = command.reason

    # ------------------------------------------------------------ timers

    def _due(self) -> list[AnyEvent]:
        due = [timer for timer, at in self.deadlines.items() if at <= self.now]
        for timer in due:
            del self.deadlines[timer]
        return [TimerFired(timer=timer) for timer in due]

    def _until_due(self) -> float:
        return max(0.0, min(self.deadlines.values(), default=self.now + 1.0) - self.now)


def _as_ours(event: AnyEvent) -> AnyEvent:
    """Return the event with its policy's name interned, so that the journal leaves out a default."""
    if isinstance(event, Sampled):
        return msgspec.structs.replace(event, policy=sys.intern(event.policy))
    return event
