"""What a runner is told besides its method."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal, get_args

from rollwright.errors import ConfigError
from rollwright.tree import Sampling, TaskId

OnFailure = Literal["drop_sample", "drop_group", "stop"]
LEAST = {
    "num_steps": 0,
    "num_tasks": 1,
    "context": 2,
    "max_tokens": 1,
    "max_turns": 1,
    "retries": 0,
    "chunk": 0,
}


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
        on_failure: what a rollout lost for good takes with it.
        max_age: versions that a trajectory may lag behind the one it would improve; None is any.
        rollout_deadline, learn_deadline: seconds until a wait is given up.
        is_evaluation: nothing is trained: one step whose groups are kept for reading, and whose tokens
            get the fate evaluation.
        chunk: tokens after which an engine reports; bounds what a crash can lose. 0 is only at the end.

    Raises:
        ConfigError: a limit with which no run is possible.
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
    on_failure: OnFailure = "drop_sample"
    max_age: int | None = None
    rollout_deadline: float = 3600.0
    learn_deadline: float = 3600.0
    chunk: int = 64
    is_evaluation: bool = False

    def __post_init__(self) -> None:
        for name, least in LEAST.items():
            if getattr(self, name) < least:
                raise ConfigError(f"settings: {name} = {getattr(self, name)!r}; expected at least {least}")
        for name in ("rollout_deadline", "learn_deadline"):
            seconds = getattr(self, name)
            if not 0 < seconds < math.inf:
                raise ConfigError(f"settings: {name} = {seconds!r}; expected a number of seconds > 0")
        if self.max_age is not None and self.max_age < 0:
            raise ConfigError(f"settings: max_age = {self.max_age}; expected at least 0, or None for any age")
        if self.on_failure not in get_args(OnFailure):
            known = ", ".join(get_args(OnFailure))
            raise ConfigError(f"settings: on_failure = {self.on_failure!r}; expected one of {known}")
