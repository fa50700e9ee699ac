"""Ask for new tasks in rounds until enough groups passed the filters."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rollwright.errors import ConfigError
from rollwright.stage import Grant, Left, StepView


@dataclass(frozen=True, slots=True)
class Refill:
    """Grant tasks until the batch is full of kept groups, or the rounds are used up.

    new = ⌈oversample · (num_tasks − kept − held)⌉ − open, in each round

    Kept groups passed the filters, held ones wait in Replay for a first training, open ones are still in
    flight because an earlier step carried them over. With ``oversample=1`` a round asks for exactly what
    is missing, so nothing can be in surplus; with more, the surplus is Replay's to cut or to keep.

    Args:
        each: rollouts per task, ≥ 1.
        oversample: tasks asked for per missing group, ≥ 1.
        max_rounds: how often a step may ask, ≥ 1. A step that uses them up trains on what it has.

    Edge cases: what the budget of rollouts does not cover is not asked for.
    Source: dynamic sampling of DAPO (2503.14476); over-provision of APRIL (2509.18521).
    """

    each: int = 8
    oversample: float = 1.0
    max_rounds: int = 10

    def __post_init__(self) -> None:
        if self.each < 1:
            raise ConfigError(f"Refill: each = {self.each}; expected at least 1 rollout per task")
        if not 1 <= self.oversample < math.inf:
            raise ConfigError(f"Refill: oversample = {self.oversample}; expected a number of at least 1")
        if self.max_rounds < 1:
            raise ConfigError(f"Refill: max_rounds = {self.max_rounds}; expected at least 1")

    def grant(self, step: StepView, left: Left) -> Grant:
        missing = step.num_tasks - step.num_kept - step.num_held
        if missing <= 0 or step.round >= self.max_rounds:
            return Grant()
        num_open = sum(not group.is_complete for group in step.groups)
        # round: 1.1 · 10 must ask for 11, not for 12.
        wanted = math.ceil(round(self.oversample * missing, 9)) - num_open
        num = min(wanted, int(min(left.rollouts, 1 << 30)) // self.each)
        return Grant(num, self.each) if num > 0 else Grant()
