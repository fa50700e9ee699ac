"""A virtual clock: what happens next, in order of time and then of planning."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import Any

from rollwright.errors import LawBroken
from rollwright.events import AnyEvent

Action = Callable[..., Sequence[AnyEvent]]


class Clock:
    """Timed actions. Time only moves when one is taken; two at one instant keep their order of planning.

    Attributes:
        now: seconds since the run started.
        num_taken: actions taken so far.
    """

    def __init__(self, now: float = 0.0) -> None:
        self.now = now
        self.num_taken = self._num_planned = 0
        self._heap: list[tuple[float, int, Action, tuple[Any, ...]]] = []

    @property
    def next_at(self) -> float | None:
        """When the next action is due; None if there is none."""
        return self._heap[0][0] if self._heap else None

    def plan(self, time: float, action: Action, *args: Any) -> None:
        """Have ``action(*args)`` happen at ``time`` (seconds, not before now); it returns events."""
        if not time >= self.now:
            raise LawBroken(f"virtual clock: an action planned for {time} s, but it is {self.now} s already")
        heapq.heappush(self._heap, (time, self._num_planned, action, args))
        self._num_planned += 1

    def advance(self) -> Sequence[AnyEvent]:
        """Move to the next action, take it, and return the events that it brings."""
        self.now, _, action, args = heapq.heappop(self._heap)
        self.num_taken += 1
        return action(*args)
