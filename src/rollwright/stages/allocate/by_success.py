"""More rollouts, round by round, for tasks that are not solved most of the time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rollwright.errors import ConfigError
from rollwright.stage import Grant, Left, StepView


@dataclass(frozen=True, slots=True)
class BySuccess:
    """Grant ``first`` rollouts to each task, then ``more`` at a time until it is solved often enough.

    A task goes on while the share of its scored rollouts that are right is at most ``enough``, up to
    ``most``.

    Args:
        first: rollouts per task in the first round, ≥ 1.
        more: rollouts that each further round adds to a task, ≥ 1.
        most: rollouts that a task may have, ≥ first.
        enough: share of right rollouts above which a task gets no more, in [0, 1].
        threshold: least reward of a right rollout.

    Edge cases: a task without a scored rollout gets no more. What the budget of rollouts does not cover is
    not asked for; the tasks opened first go first.
    Source: DART-GUI (2509.23866), its rollout numbers by success rate; rounds and defaults are our reading.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward"})

    first: int = 4
    more: int = 2
    most: int = 8
    enough: float = 0.6
    threshold: float = 1.0

    def __post_init__(self) -> None:
        if not 1 <= self.first <= self.most or self.more < 1 or not 0 <= self.enough <= 1:
            raise ConfigError(
                f"BySuccess: first = {self.first}, more = {self.more}, most = {self.most}, enough ="
                f" {self.enough}; expected 1 ≤ first ≤ most, more ≥ 1, enough in [0, 1]"
            )

    def grant(self, step: StepView, left: Left) -> Grant:
        rollouts_left = int(min(left.rollouts, 1 << 30))
        num = min(step.num_tasks - len(step.groups), rollouts_left // self.first)
        if step.round == 0 and num > 0:
            return Grant(num, self.first)
        extra: dict[str, int] = {}
        for group in step.groups:
            if self.is_hard(group.rewards):
                extra[group.id] = max(0, min(self.more, self.most - group.num_granted, rollouts_left))
                rollouts_left -= extra[group.id]
        return Grant(extra=extra)

    def is_hard(self, rewards: Sequence[float | None]) -> bool:
        """Say whether a task's rollouts are right too seldom; False while none is scored."""
        scored = [reward >= self.threshold for reward in rewards if reward is not None]
        return bool(scored) and sum(scored) <= self.enough * len(scored)
