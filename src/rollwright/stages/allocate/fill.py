"""Open as many tasks as keep a number of rollouts in flight."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rollwright.errors import ConfigError
from rollwright.stage import Grant, Left, StepView


@dataclass(frozen=True, slots=True)
class Fill:
    """Grant tasks until ``num_flying`` rollouts are unfinished; more while the step is not full.

    new = ⌈(num_flying − unfinished) / each⌉

    Rollouts that an earlier step carried over count. `KeepFlying` goes on with it while tokens flow.

    Args:
        each: rollouts per task, ≥ 1.
        num_flying: rollouts in flight, ≥ 1.

    Edge cases: what the budget of rollouts does not cover is not asked for.
    Source: CoPRIS (2511.05589).
    """

    each: int = 8
    num_flying: int = 64

    def __post_init__(self) -> None:
        for name in ("each", "num_flying"):
            if getattr(self, name) < 1:
                raise ConfigError(f"Fill: {name} = {getattr(self, name)}; expected at least 1")

    def grant(self, step: StepView, left: Left) -> Grant:
        if step.num_kept + step.num_held >= step.num_tasks:
            return Grant()
        wanted = math.ceil((self.num_flying - step.num_unfinished) / self.each)
        num_new = min(wanted, int(min(left.rollouts, 1 << 30)) // self.each)
        return Grant(num_new, self.each) if num_new > 0 else Grant()
