"""What a run did and when, from its journal alone: asks, updates, steps, timers, restarts.

No runner is folded and no task or method is needed, so it works for any run, also one whose code is gone.
Times are seconds on the run's own clock, which stands still while no process runs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rollwright.events import (
    AnyEvent,
    Failed,
    Observed,
    Published,
    Resumed,
    Sampled,
    Scored,
    Started,
    TimerFired,
    WorkerLost,
)
from rollwright.lab.records import Decision, records
from rollwright.tree import StopReason

PROMPT, SAMPLE, ENVIRONMENT, GRADE = "prompt", "sample", "environment", "grade"
KINDS = (PROMPT, SAMPLE, ENVIRONMENT, GRADE)
_KIND = {"Reset": PROMPT, "Submit": SAMPLE, "Fork": SAMPLE, "EnvStep": ENVIRONMENT, "Score": GRADE}


@dataclass(slots=True)
class Chunk:
    """Tokens that one answer brought."""

    at: float
    num: int
    version: int


@dataclass(slots=True)
class Work:
    """One command that asked for work, until its answer.

    Args:
        kind: ``"prompt"``, ``"sample"``, ``"environment"`` or ``"grade"``.
        ask, group, task: what it is about.
        began, ended: seconds; ``ended`` None while the answer is owed.
        outcome: how it ended: a stop reason, ``"answered"``, ``"failed"``, ``"lost"``, ``"given up"``.
        policy, start, attempt: of a submit: what samples, tokens before it, submits before it.
        chunks: what was sampled, in order.
    """

    kind: str
    ask: str
    group: str
    task: str
    began: float
    ended: float | None = None
    outcome: str = ""
    policy: str = "policy"
    start: int = 0
    attempt: int = 0
    chunks: list[Chunk] = field(default_factory=list)

    @property
    def num_tokens(self) -> int:
        return sum(chunk.num for chunk in self.chunks)


@dataclass(slots=True)
class Update:
    """A batch with the learner, from its emission to the publishing of new weights.

    Args:
        step, version: the step, and the version that it improves.
        began, ended: seconds; ``ended`` None while the learner works.
        published: the new version; None where nothing was published.
        policy: what learned.
        num_trajectories: of the batch.
    """

    step: int
    version: int
    began: float
    ended: float | None = None
    published: int | None = None
    policy: str = "policy"
    num_trajectories: int = 0


@dataclass(slots=True)
class StepEnd:
    """A step's report."""

    step: int
    at: float
    metrics: dict[str, float | None]
    notes: list[str]


@dataclass(slots=True)
class Timer:
    """A wait that has a deadline: what for, since when, when it is given up, and when it was over."""

    name: str
    what: str
    since: float
    deadline: float
    ended: float | None = None
    has_fired: bool = False


@dataclass
class Activity:
    """A run, folded from its records with `take`.

    Attributes:
        work: every ask's every submit, in order of their beginning.
        updates, steps: in order.
        waits: every wait with a deadline, in order; timers: those that are open, by name.
        restarts: when a process took the run up again.
        reporting: (from, to) between a step's report, or a start, and the next event: where one thread
            does everything, records, checkpoints and evaluations are made in it.
        finish: why the run ended; None while it has not.
        num_records, started, last_at: records, whether the run began, and seconds at the last record.
        last: the last record's event, and its decisions.
    """

    work: list[Work] = field(default_factory=list)
    updates: list[Update] = field(default_factory=list)
    steps: list[StepEnd] = field(default_factory=list)
    waits: list[Timer] = field(default_factory=list)
    timers: dict[str, Timer] = field(default_factory=dict)
    restarts: list[float] = field(default_factory=list)
    reporting: list[tuple[float, float]] = field(default_factory=list)
    finish: str | None = None
    finished_at: float | None = None
    started: bool = False
    num_records: int = 0
    last_at: float = 0.0
    last: tuple[AnyEvent, Sequence[Decision]] | None = None
    open: dict[str, Work] = field(default_factory=dict)
    learning: dict[int, Update] = field(default_factory=dict)
    _of_group: dict[str, set[str]] = field(default_factory=dict)
    _is_reporting: bool = False

    def take(self, event: AnyEvent, decisions: Sequence[Decision]) -> None:
        """Take the next record."""
        self.num_records += 1
        before, now = self.last_at, max(self.last_at, event.at)
        self.last_at, self.last = now, (event, decisions)
        if (self._is_reporting or isinstance(event, (Started, Resumed))) and now > before:
            self.reporting.append((before, now))
        self._is_reporting = False
        self._event(event, now)
        for decision in decisions:
            self._decision(decision, now)

    @property
    def step(self) -> int:
        """The step that is under way or was last, from 0; -1 before the first."""
        begun = [timer.name.partition(":")[2] for timer in self.waits]
        steps = [int(step) for step in begun if step.isdigit()]
        return max([*steps, *(step.step for step in self.steps[-1:])], default=-1)

    @property
    def version(self) -> int:
        """The newest version that was published; 0 before the first."""
        return max((u.published for u in self.updates if u.published is not None), default=0)

    # ------------------------------------------------------------ events

    def _event(self, event: AnyEvent, now: float) -> None:
        if isinstance(event, Sampled):
            self._sampled(event, now)
        elif isinstance(event, (Observed, Scored)):
            self._end(event.ask, now, "answered")
        elif isinstance(event, Failed):
            self._end(event.ask, now, "failed")
            if event.ask.startswith("learn:"):  # the learner's own failure
                self._end_updates(now)
        elif isinstance(event, Published):
            update = self.learning.pop(event.step, None)
            if update is not None:
                update.ended, update.published, update.policy = now, event.version, event.policy
        elif isinstance(event, Started):
            self.started = True
        elif isinstance(event, Resumed):
            self._resumed(now)
        elif isinstance(event, WorkerLost):
            for ask in event.asks:
                self._end(ask, now, "lost")
        elif isinstance(event, TimerFired):
            self._fired(event.timer, now)

    def _sampled(self, event: Sampled, now: float) -> None:
        work = self.open.get(event.ask)
        if work is None or event.attempt not in (None, work.attempt):
            return  # late: its ask was given up, or asked of another engine meanwhile
        if event.tokens:
            work.chunks.append(Chunk(now, len(event.tokens), event.version))
        if event.stop is not None:
            is_failed = event.stop is StopReason.FAILED
            self._end(event.ask, now, "failed" if is_failed else event.stop.value)

    def _end(self, ask: str, now: float, outcome: str) -> None:
        work = self.open.pop(ask, None)
        if work is not None:
            work.ended, work.outcome = now, outcome
            asks = self._of_group[work.group]
            asks.discard(ask)
            if not asks:
                del self._of_group[work.group]

    def _end_updates(self, now: float) -> None:
        for update in self.learning.values():
            update.ended = now
        self.learning.clear()

    def _resumed(self, now: float) -> None:
        """Everything that was under way died with the process before."""
        self.started = True
        self.restarts.append(now)
        self.finish = self.finished_at = None
        for ask in list(self.open):
            self._end(ask, now, "lost")
        self._end_updates(now)
        for name in list(self.timers):
            self._end_wait(name, now)

    def _fired(self, name: str, now: float) -> None:
        self._end_wait(name, now, has_fired=True)
        is_only = not any(other.startswith("rollouts:") for other in self.timers)
        if name.startswith("rollouts:") and is_only:
            # Sampling is aborted and gives back what it has; nothing else is waited for. With several
            # steps open the record does not say whose asks these are: they end when their groups leave.
            for ask in [ask for ask, work in self.open.items() if work.kind != SAMPLE]:
                self._end(ask, now, "given up")

    def _end_wait(self, name: str, now: float, has_fired: bool = False) -> None:
        timer = self.timers.pop(name, None)
        if timer is not None:
            timer.ended, timer.has_fired = now, has_fired

    # ------------------------------------------------------------ decisions

    def _decision(self, decision: Decision, now: float) -> None:
        kind = _KIND.get(decision.type)
        if kind is not None:
            self._begin(kind, decision, now)
        elif decision.type == "EmitBatch":
            num = sum(len(group.trajectories) for group in decision.groups)
            update = Update(decision.step, decision.version, now, num_trajectories=num)
            self.learning[decision.step] = update
            self.updates.append(update)
            self.finish = None
        elif decision.type == "SetTimer":
            self._end_wait(decision.timer, now)
            timer = Timer(decision.timer, decision.what, now, now + decision.seconds)
            self.timers[timer.name] = timer
            self.waits.append(timer)
        elif decision.type == "CancelTimer":
            self._end_wait(decision.timer, now)
        elif decision.type == "Report":
            self.steps.append(StepEnd(decision.step, now, decision.metrics, decision.notes))
            self._is_reporting = True
        elif decision.type == "Retire":
            for ask in list(self._of_group.get(decision.group, ())):
                self._end(ask, now, "given up")
        elif decision.type == "Finish":
            self.finish, self.finished_at = decision.reason, now

    def _begin(self, kind: str, decision: Decision, now: float) -> None:
        self._end(decision.ask, now, "lost")
        self.finish = None
        work = Work(
            kind=kind,
            ask=decision.ask,
            group=decision.group,
            task=decision.group.rpartition("#")[0],
            began=now,
            policy=decision.policy,
            start=decision.start,
            attempt=decision.attempt,
        )
        self.open[decision.ask] = work
        self._of_group.setdefault(work.group, set()).add(work.ask)
        self.work.append(work)


def read_activity(path: str | Path) -> Activity:
    """Read a journal once.

    Raises:
        StoreError, JournalCorrupt: as `records`; use `Activity.take` to keep what came before a damage.
    """
    activity = Activity()
    for event, decisions in records(path):
        activity.take(event, decisions)
    return activity
