"""Keep a fixed number of rollouts in flight: one that ends makes room for the next at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rollwright.errors import ConfigError
from rollwright.events import Event
from rollwright.stage import Action, Grant, StepView


@dataclass(frozen=True, slots=True)
class KeepFlying:
    """Let ``max_flying`` asks fly, and open tasks as long as fewer rollouts than that are unfinished.

    The runner holds back what is open beyond the limit, so that exactly ``max_flying`` asks for tokens are
    in flight until the step is closed: neither a burst at its start nor a tail at its end.

    Args:
        max_flying: asks for tokens in flight, ≥ 1.
        each: rollouts of a task that it opens, ≥ 1.

    Source: CoPRIS (2511.05589); the "everlasting" pool of AsyncWebRL (2026).
    """

    max_flying: int
    each: int = 8

    def __post_init__(self) -> None:
        for name in ("max_flying", "each"):
            if getattr(self, name) < 1:
                raise ConfigError(f"KeepFlying: {name} = {getattr(self, name)}; expected at least 1")

    def __call__(self, event: Event, view: StepView) -> Sequence[Action]:
        num = math.ceil((self.max_flying - view.num_unfinished) / self.each)
        return (Grant(num, self.each),) if num > 0 else ()
