"""The graders: prompts, environment steps and grades, one at a time in each, with a limit on each."""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from rollwright.drive.ray.actors import Place
from rollwright.drive.ray.calls import (
    FOREVER,
    HOW_TO_GO_ON,
    Calls,
    Events,
    Overdue,
    Ref,
    check_code,
    reason_of,
)
from rollwright.drive.ray.hire import Actor, dismiss, hire_grader
from rollwright.drive.ray.settings import CrewSettings, Limits
from rollwright.drive.world import Nodes, World
from rollwright.errors import GraderError
from rollwright.events import AnyEvent, EnvStep, Failed, Observed, Reset, Score, WorkerLost
from rollwright.tree import GroupId, NodeId, TaskId

_log = logging.getLogger(__name__)
_KINDS = {Reset: "data", EnvStep: "environment", Score: "grader"}


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


@dataclass(slots=True, eq=False)
class Desk:
    """What the driver knows of one grader. The first of its jobs is the one that it is at."""

    name: str
    actor: Actor
    place: Place | None = None
    jobs: dict[Ref, Job] = field(default_factory=dict)
    groups: set[GroupId] = field(default_factory=set)
    retired: list[GroupId] = field(default_factory=list)


class Graders:
    """The graders of a crew. What finds no room waits here; the runner has no more of it in flight.

    A grader that dies, or that is at one job for too long, is replaced. The job is done again
    after a death, up to ``losses`` times; one that takes too long has failed. The others start again.

    Args:
        make: the maker of each one's world.
        cfg, limits: how many, how much, how long.
        calls: the driver's calls.
        on_outcome: called with (session, answer) for each environment step.
    """

    def __init__(
        self,
        make: Callable[[], World],
        cfg: CrewSettings,
        limits: Limits,
        calls: Calls,
        on_outcome: Callable[[str, Observed], None] = lambda session, outcome: None,
    ) -> None:
        self.make, self.cfg, self.limits = make, cfg, limits
        self.calls, self.on_outcome = calls, on_outcome
        self.desks: dict[str, Desk] = {}
        self.waiting: deque[Job] = deque()
        self.num_lost = 0
        self._num_hired = 0
        self._num_barren = 0  # losses in a row before the grader had even begun
        self._took_down: Counter[NodeId] = Counter()  # ask -> graders that died of it

    @property
    def serving(self) -> list[Desk]:
        return [desk for desk in self.desks.values() if desk.place is not None]

    @property
    def num_held(self) -> int:
        """Jobs that are waiting or with a grader."""
        return len(self.waiting) + sum(len(desk.jobs) for desk in self.desks.values())

    def staff(self, num: int) -> None:
        """Hire until there are ``num``."""
        while len(self.desks) < num:
            name = f"grader-{self._num_hired}"
            self._num_hired += 1
            desk = self.desks[name] = Desk(name, hire_grader(self.cfg))
            self._call(desk, desk.actor.begin.remote(self.make), partial(self._began, desk))

    def close(self) -> None:
        """End all of them."""
        for desk in list(self.desks.values()):
            self._forget(desk)

    def serve(self, job: Job) -> None:
        """Take a job; `flush` places it."""
        self.waiting.append(job)

    def retire(self, group: GroupId) -> None:
        """Tell the graders that had jobs of a group that it is closed."""
        for desk in self.desks.values():
            if group in desk.groups:
                desk.groups.discard(group)
                desk.retired.append(group)  # told with its next job

    def flush(self) -> None:
        """Give waiting jobs to graders with room."""
        while self.waiting:
            group = self.waiting[0].command.group
            room = [desk for desk in self.serving if len(desk.jobs) < self.cfg.grader_asks]
            if not room:
                return
            # A world keeps the states of a group's environments: worth two places in its line.
            desk = min(room, key=lambda desk: len(desk.jobs) + (0 if group in desk.groups else 2))
            self._send(desk, self.waiting.popleft())

    def _send(self, desk: Desk, job: Job) -> None:
        retired, desk.retired = desk.retired, []
        ref = desk.actor.serve.remote(job.command, job.task, job.nodes, job.truncated, retired)
        desk.jobs[ref] = job
        desk.groups.add(job.command.group)
        seconds = self._seconds(job) if len(desk.jobs) == 1 else FOREVER  # it stands behind others
        self._call(desk, ref, partial(self._served, desk, ref), seconds)

    def _seconds(self, job: Job) -> float:
        return self.limits.grader_s if isinstance(job.command, Score) else self.limits.environment_s

    def _call(self, desk: Desk, ref: Ref, done: Callable[..., Events], seconds: float = FOREVER) -> None:
        self.calls.add(ref, desk.name, done, partial(self._failed, desk), seconds)

    def _began(self, desk: Desk, place: Place) -> Events:
        desk.place = place
        self._num_barren = 0
        return ()

    def _served(self, desk: Desk, ref: Ref, answer: AnyEvent) -> Events:
        job = desk.jobs.pop(ref)
        self._took_down.pop(job.command.ask, None)
        if isinstance(job.command, EnvStep) and isinstance(answer, Observed):
            self.on_outcome(job.session, answer)
        if desk.jobs:
            first = next(iter(desk.jobs))
            self.calls.limit(first, self._seconds(desk.jobs[first]))
        return (answer,)

    def _failed(self, desk: Desk, error: Exception) -> Events:
        """Replace a grader, and say what becomes of its jobs."""
        check_code(error, "grader", desk.place is not None)
        why = reason_of(error)
        self.num_lost += 1
        self._forget(desk)
        _log.warning("%s is lost with %d jobs: %s", desk.name, len(desk.jobs), why)
        jobs = list(desk.jobs.values())
        if not jobs:
            self._num_barren += desk.place is None
            if self._num_barren >= self.cfg.losses:
                raise GraderError(
                    f"{self._num_barren} graders in a row ended before they had begun; the last one: {why}. "
                    f"{HOW_TO_GO_ON}"
                )
            return ()
        failed = list(self._blame(jobs[0], error, why))
        rest = jobs[1:] if failed else jobs
        return (*failed, WorkerLost(worker=desk.name, asks=tuple(job.command.ask for job in rest)))

    def _blame(self, job: Job, error: Exception, why: str) -> Iterator[AnyEvent]:
        """Yield the failure of the job that its grader was at, if it is the job's fault."""
        ask, kind = job.command.ask, _KINDS[type(job.command)]
        if isinstance(error, Overdue):
            yield Failed(ask=ask, kind=kind, message=f"no answer within {self._seconds(job):g} s")
            return
        self._took_down[ask] += 1
        if (num := self._took_down[ask]) >= self.cfg.losses:
            yield Failed(ask=ask, kind=kind, message=f"{num} graders ended while they were at it ({why})")

    def _forget(self, desk: Desk) -> None:
        self.desks.pop(desk.name, None)
        self.calls.drop(desk.name)
        dismiss(desk.actor)

    def roster(self) -> Iterator[tuple[str, Place | None, int]]:
        """Yield (name, place, number of jobs) of each."""
        for desk in self.desks.values():
            yield desk.name, desk.place, len(desk.jobs)
