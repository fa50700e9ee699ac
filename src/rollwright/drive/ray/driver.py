"""The Ray driver: the runner and the journal here, everything else in actors."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from itertools import pairwise

import msgspec

from rollwright.drive import placement as places
from rollwright.drive.base import BaseDriver, Sink
from rollwright.drive.ray.actors import Job, Submission
from rollwright.drive.ray.crew import Crew
from rollwright.errors import LawBroken
from rollwright.events import (
    Abort,
    AnyCommand,
    AnyEvent,
    EmitBatch,
    EnvStep,
    Failed,
    Report,
    Reset,
    Sampled,
    Score,
    Submit,
    WorkerLost,
)
from rollwright.runner import Runner
from rollwright.tree import GroupId, NodeId, Origin, path_to

TICK = 1.0  # seconds after which a stop is seen at the latest


class RayDriver(BaseDriver):
    """Run a runner to its end with a crew.

    Args:
        runner: the state machine, fresh or folded from a journal.
        crew: the actors. It outlives the driver.
        journal, on_report, clock, started_at: as for `BaseDriver`. The learner is idle during ``on_report``.
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
        super().__init__(runner, journal, on_report, clock, started_at)
        self.crew, self.is_guest = crew, is_guest
        self._asked: set[NodeId] = set()  # by a guest, ever

    # ------------------------------------------------------------ commands

    def execute(self, command: AnyCommand) -> Iterable[AnyEvent]:
        """Send one command on its way; return the answers that are there at once."""
        if isinstance(command, (Submit, Score, EnvStep, Reset)):
            if self.is_wanted(command):
                self._asked |= {command.ask} if self.is_guest else set()
                self._ask(command)
        elif isinstance(command, Abort):
            return self.crew.abort(command.ask)
        elif isinstance(command, EmitBatch):
            if not self.is_stopping:
                self.crew.seat.train(command)
        else:
            self.note(command)
        return ()

    def retire(self, group: GroupId) -> None:
        """Forget the keys and the environment states of a group."""
        self.crew.retire(group)

    def _ask(self, command: Submit | Score | EnvStep | Reset) -> None:
        if isinstance(command, Submit):
            self.crew.submit(self._place_job(command), Submission(command, self.prefix_of(command)))
        elif isinstance(command, Reset):
            self.crew.serve(Job(command, command.task, {}))
        else:
            group, session = self.runner.groups[command.group], self._session(command.ask, command.group)
            leaf = command.parent if isinstance(command, EnvStep) else command.leaf
            nodes = {node.id: node for node, _ in path_to(group.nodes, leaf)}  # a grader needs no others
            truncated = isinstance(command, Score) and group.trajectories[leaf].truncated
            self.crew.serve(Job(command, group.task, nodes, truncated, session))

    def _place_job(self, command: Submit) -> places.Job:
        """Return what a placement sees of a submit."""
        path = path_to(self.runner.groups[command.group].nodes, command.parent)
        origins = [Origin.PROMPT, *(node.origin for node, _ in path)]
        return places.Job(
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

    def _session(self, ask: NodeId, group: GroupId) -> str:
        """Return the name of an ask's trajectory, unique in the run."""
        return f"{group}|{self.runner.asks[ask].stream}"

    # ------------------------------------------------------------ answers

    def wait(self) -> list[AnyEvent]:
        """Return the next answers.

        Raises:
            LawBroken: the runner waits, but nobody has anything to do.
            RollwrightError: what `Crew.wait` raises. What was acknowledged is in the journal.
        """
        if not (self.crew.num_owed or self.is_retrying):
            raise LawBroken(f"the run waits for nothing: {self.runner.waits()}")
        return self._answers(min(self.deadlines.values(), default=self.now + TICK) - self.now)

    def abort_answers(self) -> list[AnyEvent]:
        """Return what comes until every abort is answered. A worker that does not answer is given up."""
        events: list[AnyEvent] = []
        while self.crew.workers.num_aborting:
            events += self._answers(TICK)
        return events

    def _answers(self, seconds: float) -> list[AnyEvent]:
        """Wait for answers. A guest leaves those that are not for it to its host."""
        kept: list[AnyEvent] = []
        if not self.is_guest:
            kept, self.crew.kept = self.crew.kept, []
        events = [*kept, *self.crew.wait(0.0 if kept else max(0.0, min(seconds, TICK)))]
        mine = [event for event in events if self._is_mine(event)]
        if self.is_guest:
            others = [event for event in events if not self._is_mine(event) or isinstance(event, WorkerLost)]
            self.crew.kept += others
        for event in mine:
            if isinstance(event, Failed) and event.kind == "learner":
                self.learner_error = self.crew.seat.error
        return [_as_ours(event) for event in mine]

    def _is_mine(self, event: AnyEvent) -> bool:
        return (
            not self.is_guest or isinstance(event, WorkerLost) or getattr(event, "ask", None) in self._asked
        )


def _as_ours(event: AnyEvent) -> AnyEvent:
    """Return the event with its policy's name interned, so that the journal leaves out a default."""
    if isinstance(event, Sampled):
        return msgspec.structs.replace(event, policy=sys.intern(event.policy))
    return event
