"""The same number of rollouts for every task, all at once."""

from __future__ import annotations

from dataclasses import dataclass

from rollwright.errors import ConfigError
from rollwright.stage import Grant, Left, StepView


@dataclass(frozen=True, slots=True)
class Even:
    """Grant ``each`` rollouts to each of the step's tasks in its first round, then end.

    Carried groups count towards the step's tasks.

    Args:
        each: rollouts per task, ≥ 1. A group of one has no baseline: its advantage is zero.
    """

    each: int = 8

    def __post_init__(self) -> None:
        if self.each < 1:
            raise ConfigError(f"Even: each = {self.each}; expected at least 1 rollout per task")

    def grant(self, step: StepView, left: Left) -> Grant:
        num = max(0, min(step.num_tasks - len(step.groups), int(min(left.rollouts, 1 << 30)) // self.each))
        return Grant(num, self.each) if step.round == 0 and num else Grant()
