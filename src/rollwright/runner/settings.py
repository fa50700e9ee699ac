"""What a runner is told besides its method."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal, get_args

from rollwright.errors import ConfigError, UnknownName
from rollwright.tree import Sampling, TaskId

OnFailure = Literal["drop_sample", "drop_group", "stop"]
# Who failed: a task's row, a grader, an environment, an engine, a worker that was lost, a deadline.
FailureKind = Literal["data", "grader", "environment", "engine", "worker", "deadline"]
LEAST = {
    "num_steps": 0,
    "num_tasks": 1,
    "context": 2,
    "max_tokens": 1,
    "max_turns": 1,
    "retries": 0,
    "chunk": 0,
    "num_ahead": 0,
    "min_group": 1,
    "quarantine_after": 0,
    "quarantine_visits": 1,
}
OPTIONAL = ("max_age", "max_carry")


@dataclass(frozen=True, slots=True)
class Settings:
    """Limits and names of one run.

    Args:
        seed: the run's seed.
        tasks: stable ids of the tasks to choose from.
        num_steps: learner steps to make.
        num_tasks: groups that a batch is made of.
        context: steps that a whole path may have.
        max_tokens: sampled tokens in one turn.
        max_turns: sampled turns in one trajectory.
        is_dialogue: turns go to an environment.
        sampling: how tokens are sampled unless an ask says otherwise.
        budget: limits by unit (`rollwright.ledger.Unit`).
        retries: how often a failed ask is tried again.
        retries_by_kind: the same for one kind of failure. A lost worker costs an ask nothing unless
            ``worker`` is named here: then it is given up with so many workers lost and one more.
        backoff: seconds until the first retry, twice as many until each next one; 0 retries at once.
        on_failure: what a rollout lost for good takes with it.
        on_failure_by_kind: the same for one kind of failure.
        min_group: scored rollouts that a group with failures needs, or it is dropped.
        quarantine_after: visits in a row without any scored rollout after which a task is not picked for a
            while; 0 never.
        quarantine_visits: how often it is passed over then.
        num_ahead: steps whose rollouts may run before the update that they would wait for. Rollouts of step
            s are opened once all but ``num_ahead`` of the steps before it are over.
        max_carry: steps that an unfinished group may be carried over; one that may not is waited for. None
            is any number.
        max_age: versions that a trajectory may lag behind the one it would improve; older ones are dropped.
            None drops none.
        rollout_deadline, learn_deadline: seconds until a wait is given up.
        is_evaluation: nothing is trained: one step whose groups are kept for reading, and whose tokens
            get the fate evaluation.
        keep_noise: a task's samples have the same noise at each visit.
        chunk: tokens after which an engine reports; bounds what a crash can lose. 0 is only at the end.

    A trajectory whose group was opened for step s and is trained in step t is at most
    num_ahead + (t − s) versions old, and t − s ≤ ``max_carry``.

    Raises:
        ConfigError: a limit with which no run is possible.
        UnknownName: an unknown kind of failure.
    """

    seed: int
    tasks: tuple[TaskId, ...]
    num_steps: int
    num_tasks: int
    context: int
    max_tokens: int
    max_turns: int = 1
    is_dialogue: bool = False
    sampling: Sampling = field(default_factory=Sampling)
    budget: dict[str, float] = field(default_factory=dict)
    retries: int = 1
    retries_by_kind: dict[str, int] = field(default_factory=dict)
    backoff: float = 0.0
    on_failure: OnFailure = "drop_sample"
    on_failure_by_kind: dict[str, OnFailure] = field(default_factory=dict)
    min_group: int = 1
    quarantine_after: int = 0
    quarantine_visits: int = 3
    num_ahead: int = 0
    max_carry: int | None = None
    max_age: int | None = None
    rollout_deadline: float = 3600.0
    learn_deadline: float = 3600.0
    chunk: int = 64
    keep_noise: bool = False
    is_evaluation: bool = False

    def __post_init__(self) -> None:
        for name, least in LEAST.items():
            if getattr(self, name) < least:
                raise ConfigError(f"settings: {name} = {getattr(self, name)!r}; expected at least {least}")
        for name in ("rollout_deadline", "learn_deadline"):
            seconds = getattr(self, name)
            if not 0 < seconds < math.inf:
                raise ConfigError(f"settings: {name} = {seconds!r}; expected a number of seconds > 0")
        if not 0 <= self.backoff < math.inf:
            raise ConfigError(f"settings: backoff = {self.backoff!r}; expected a number of seconds ≥ 0")
        for name in OPTIONAL:
            value = getattr(self, name)
            if value is not None and value < 0:
                raise ConfigError(f"settings: {name} = {value}; expected at least 0, or None for any number")
        for name, value in [("on_failure", self.on_failure), *self.on_failure_by_kind.items()]:
            if value not in get_args(OnFailure):
                known = ", ".join(get_args(OnFailure))
                raise ConfigError(f"settings: on_failure of {name} = {value!r}; expected one of {known}")
        for kind, num in self.retries_by_kind.items():
            if num < 0:
                raise ConfigError(f"settings: retries of {kind} = {num}; expected at least 0")
        for kind in (*self.retries_by_kind, *self.on_failure_by_kind):
            if kind not in get_args(FailureKind):
                raise UnknownName("kind of failure", kind, get_args(FailureKind))

    def retries_of(self, kind: str) -> int:
        """Return how often an ask that failed in this way is tried again."""
        return self.retries_by_kind.get(kind, self.retries)

    def on_failure_of(self, kind: str) -> OnFailure:
        """Return what a rollout that was lost in this way takes with it."""
        return self.on_failure_by_kind.get(kind, self.on_failure)
