"""The graders: prompts, environment steps and grades, with a limit on each."""

from __future__ import annotations

import logging
import math
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from rollwright.drive.ray.actors import Job, Place, Served
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
from rollwright.drive.world import World
from rollwright.errors import GraderError
from rollwright.events import EnvStep, Failed, Observed, Reset, Score, WorkerLost
from rollwright.tree import GroupId, NodeId

_log = logging.getLogger(__name__)
_CALL_S = 0.05  # about how long a call should take: much more than what it costs to make one
_KINDS = {Reset: "data", EnvStep: "environment", Score: "grader"}


@dataclass(slots=True, eq=False)
class Desk:
    """What the driver knows of one grader."""

    name: str
    actor: Actor
    place: Place | None = None
    jobs: list[Job] = field(default_factory=list)  # of the call that is out
    groups: set[GroupId] = field(default_factory=set)
    retired: list[GroupId] = field(default_factory=list)  # to be told with its next call


class Graders:
    """The graders of a crew. One call is out for each; what finds no room waits here.

    Quick jobs go several to a call, so that a call takes some 50 ms; slow ones go one by one. A grader that
    dies, or whose call takes too long, is replaced. With several jobs nobody knows whose fault it was, so
    each is then given to a grader alone. A job alone that takes too long has failed; one whose grader dies
    is done again, up to ``losses`` times.

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
        self._job_s = _CALL_S  # about how long a job takes
        self._suspects: Counter[NodeId] = Counter()  # ask -> graders that ended while they had it alone

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

    def _began(self, desk: Desk, place: Place) -> Events:
        desk.place = place
        self._num_barren = 0
        return ()

    # ------------------------------------------------------------ work

    def serve(self, job: Job) -> None:
        """Take a job; `flush` gives it to a grader."""
        self.waiting.append(job)

    def retire(self, group: GroupId) -> None:
        """Tell the graders that had jobs of a group that it is closed."""
        for desk in self.desks.values():
            if group in desk.groups:
                desk.groups.discard(group)
                desk.retired.append(group)

    def flush(self) -> None:
        """Give waiting jobs to the graders that are idle."""
        idle = [desk for desk in self.serving if not desk.jobs]
        if not (idle and self.waiting):
            return
        share = math.ceil(len(self.waiting) / len(self.serving))
        room = max(1, min(share, self.cfg.grader_asks, round(_CALL_S / self._job_s)))
        while self.waiting and (desk := self._desk_for(self.waiting[0], idle, room)) is not None:
            desk.jobs.append(self.waiting.popleft())
        for desk in idle:
            if desk.jobs:
                self._send(desk)

    def _desk_for(self, job: Job, idle: list[Desk], room: int) -> Desk | None:
        """Return the grader whose next call the job goes with. A suspect goes alone."""

        def has_room(desk: Desk) -> bool:
            if self._is_suspect(job):
                return not desk.jobs
            return len(desk.jobs) < room and not any(map(self._is_suspect, desk.jobs))

        # A world keeps the states of a group's environments: worth two places in its line.
        group = job.command.group
        able = [desk for desk in idle if has_room(desk)]
        return min(able, key=lambda d: len(d.jobs) + (0 if group in d.groups else 2), default=None)

    def _is_suspect(self, job: Job) -> bool:
        return job.command.ask in self._suspects

    def _send(self, desk: Desk) -> None:
        retired, desk.retired = desk.retired, []
        desk.groups.update(job.command.group for job in desk.jobs)
        ref = desk.actor.serve.remote(desk.jobs, retired)
        self._call(desk, ref, partial(self._served, desk), max(map(self._seconds, desk.jobs)))

    def _served(self, desk: Desk, served: Served) -> Events:
        jobs, desk.jobs = desk.jobs, []
        self._job_s += 0.2 * (served.seconds / len(jobs) - self._job_s)
        for job, answer in zip(jobs, served.answers, strict=True):
            self._suspects.pop(job.command.ask, None)
            if isinstance(job.command, EnvStep) and isinstance(answer, Observed):
                self.on_outcome(job.session, answer)
        return served.answers

    def _seconds(self, job: Job) -> float:
        return self.limits.grader_s if isinstance(job.command, Score) else self.limits.environment_s

    # ------------------------------------------------------------ failures

    def _call(self, desk: Desk, ref: Ref, done: Callable[..., Events], seconds: float = FOREVER) -> None:
        self.calls.add(ref, desk.name, done, partial(self._failed, desk), seconds)

    def _failed(self, desk: Desk, error: Exception) -> Events:
        """Replace a grader, and say what becomes of its jobs."""
        check_code(error, "grader", desk.place is not None)
        why = reason_of(error)
        self.num_lost += 1
        self._forget(desk)
        _log.warning("%s is lost with %d jobs: %s", desk.name, len(desk.jobs), why)
        jobs, desk.jobs = desk.jobs, []
        if not jobs:
            self._num_barren += desk.place is None
            if self._num_barren >= self.cfg.losses:
                raise GraderError(
                    f"{self._num_barren} graders in a row ended before they had begun; the last one: {why}. "
                    f"{HOW_TO_GO_ON}"
                )
            return ()
        for job in jobs:
            self._suspects[job.command.ask] += len(jobs) == 1
        if len(jobs) == 1 and (said := self._fault(jobs[0], error, why)):
            (job,) = jobs
            del self._suspects[job.command.ask]
            return (Failed(ask=job.command.ask, kind=_KINDS[type(job.command)], message=said),)
        return (WorkerLost(worker=desk.name, asks=tuple(job.command.ask for job in jobs)),)

    def _fault(self, job: Job, error: Exception, why: str) -> str:
        """Return what to say of a job whose grader, which had it alone, is lost; nothing to do it again."""
        if isinstance(error, Overdue):
            return f"no answer within {self._seconds(job):g} s"
        num = self._suspects[job.command.ask]
        return f"{num} graders ended while they were at it ({why})" if num >= self.cfg.losses else ""

    def _forget(self, desk: Desk) -> None:
        self.desks.pop(desk.name, None)
        self.calls.drop(desk.name)
        dismiss(desk.actor)

    def roster(self) -> Iterator[tuple[str, Place | None, int]]:
        """Yield (name, place, number of jobs) of each."""
        for desk in self.desks.values():
            yield desk.name, desk.place, len(desk.jobs)
