"""How long decode steps take while a batch stays the same, in closed form."""

from __future__ import annotations

import math


class Pace:
    """Step i takes max(floor, first + slope · i) seconds, i = 0, 1, ...

    ``first`` and ``slope`` are what memory takes: the weights and the context, which grows by one token
    of each sequence in each step. ``floor`` is what the arithmetic takes.
    """

    __slots__ = ("_fixed", "_num_floor", "_start", "first", "floor", "slope")

    def __init__(self, first: float, slope: float = 0.0, floor: float = 0.0) -> None:
        self.first, self.slope, self.floor = first, slope, floor
        if slope == 0:
            self._fixed: float | None = max(first, floor)
            return
        self._fixed = None
        # The first steps may be bound by arithmetic, the others by memory.
        self._num_floor = max(0, math.ceil((floor - first) / slope))
        self._start = first + slope * self._num_floor

    def seconds(self, num: int) -> float:
        """Return the seconds of the first ``num`` steps."""
        if self._fixed is not None:
            return num * self._fixed
        rest = num - self._num_floor
        if rest <= 0:
            return num * self.floor
        return self._num_floor * self.floor + rest * self._start + self.slope * (rest * (rest - 1) / 2)

    def steps(self, seconds: float) -> int:
        """Return how many whole steps fit into ``seconds``, up to rounding (the caller checks)."""
        if self._fixed is not None:
            return int(seconds / self._fixed)
        at_floor = self._num_floor * self.floor
        if seconds < at_floor:
            return int(seconds / self.floor)
        half = self._start - self.slope / 2
        left = seconds - at_floor
        return self._num_floor + int((math.sqrt(half * half + 2 * self.slope * left) - half) / self.slope)

    def per_step(self, num: int) -> float:
        """Return the seconds of step ``num`` (from 0)."""
        return max(self.floor, self.first + self.slope * num)
