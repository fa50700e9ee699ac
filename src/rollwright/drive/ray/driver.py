"""The Ray driver: the runner and the journal here, everything else in actors."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from itertools import pairwise

import msgspec

from rollwright.drive import placement as places
from rollwright.drive.inline import Sink
from rollwright.drive.ray.actors import Submission
from rollwright.drive.ray.crew import Crew
from rollwright.drive.ray.graders import Job
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
    WorkerLost,
)
from rollwright.runner import Runner
from rollwright.tree import GroupId, NodeId, Origin, path_to


class RayDriver:
    """Run a runner to its end with a crew.

    Args:
        runner: the state machine, fresh or folded from a journal.
        crew: the actors; open. It outlives the driver.
        journal: keeps every event before it is acted upon.
        on_report: called with each step's report.
        clock: seconds, monotonic.
        started_at: seconds of the run that were before.
        is_guest: another driver's run goes on with the same crew: an evaluation. Answers to its asks are kept
            for it.
    """

    def __init__(
        self,
        runner: Runner,
        crew: Crew,
        journal: Sink | None = None,
        on_report: Callable[[Report], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
        started_at: float = 0.0,
        is_guest: bool = False,
    ) -> None:
        self.runner, self.crew = runner, crew
        self.journal, self.on_report, self.clock = journal, on_report, clock
        self.deadlines: dict[str, float] = {}
        self.finished: str | None = None
        self.is_stopping = False
        self.is_guest = is_guest
        self._asked: set[NodeId] = set()  # by a guest, ever
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
        if not self.runner.is_done:
            self.finished = None  # an end that the restart or the extension undid
        while self.finished is None and not self.is_stopping:
            self.feed(self._due() or self._answers())
            if not self.crew.num_owed and self.finished is None and not self.is_stopping:
                raise LawBroken(f"the run waits for nothing: {self.runner.waits()}")
        return self.finished

    def _answers(self) -> list[AnyEvent]:
        """Wait for answers. A guest leaves those that are not for it to its host."""
        if not self.is_guest:
            kept, self.crew.kept = self.crew.kept, []
            return [*kept, *self.crew.wait(0.0 if kept else self._until_due())]
        events = self.crew.wait(self._until_due())
        is_mine = [getattr(event, "ask", None) in self._asked for event in events]
        self.crew.kept += [event for event, mine in zip(events, is_mine, strict=True) if not mine]
        return [e for e, mine in zip(events, is_mine, strict=True) if mine or isinstance(e, WorkerLost)]

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
        if isinstance(command, (Submit, Reset, EnvStep, Score)) and command.ask not in self.runner.asks:
            return ()  # given up by an event that came with the one which asked for it
        if self.is_guest and isinstance(command, (Submit, Reset, EnvStep, Score)):
            self._asked.add(command.ask)
        if isinstance(command, Submit):
            self._submit(command)
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

    def _submit(self, command: Submit) -> None:
        path = path_to(self.runner.groups[command.group].nodes, command.parent)
        path[-1] = (path[-1][0], command.at)
        prefix = [token for node, num in path for token in node.tokens[:num]]
        origins = [Origin.PROMPT, *(node.origin for node, _ in path)]
        job = places.Job(
            ask=command.ask,
            group=command.group,
            session=self._session(command.ask, command.group),
            kind=command.group.partition("/")[0],
            priority=command.priority,
            num_context=command.start,
            max_tokens=command.max_tokens,
            turn=sum(a is not Origin.SAMPLED and b is Origin.SAMPLED for a, b in pairwise(origins)),
            since=self.now,
        )
        self.crew.submit(job, Submission(command, prefix))

    def _session(self, ask: NodeId, group: GroupId) -> str:
        """Return the name of an ask's trajectory, unique in the run."""
        return f"{group}|{self.runner.asks[ask].stream}"

    def _job(self, command: Reset | EnvStep | Score) -> Job:
        if isinstance(command, Reset):
            return Job(command, command.task, {})
        group, session = self.runner.groups[command.group], self._session(command.ask, command.group)
        leaf = command.parent if isinstance(command, EnvStep) else command.leaf
        nodes = {node.id: node for node, _ in path_to(group.nodes, leaf)}  # a grader needs no others
        truncated = isinstance(command, Score) and group.trajectories[leaf].truncated
        return Job(command, group.task, nodes, truncated, session)

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
