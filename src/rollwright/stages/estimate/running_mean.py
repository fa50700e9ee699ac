"""A mean that forgets: the simplest predictor of what comes next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rollwright.errors import ConfigError


@dataclass(frozen=True, slots=True)
class RunningMean:
    """Predict the mean of what was seen, older values weighing less (`rollwright.stage.Estimate`).

    mean ← mean + (y − mean)·max(1/n, 1 − decay), the plain mean until n = 1/(1 − decay), then exponential

    Args:
        decay: what is left of a value's weight after one more, in [0, 1]; 1 is the plain mean of all.
        mean: predicted now; before the first value, what to start from.
        num: values seen.
    """

    decay: float = 0.99
    mean: float = 0.0
    num: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.decay <= 1:
            raise ConfigError(f"RunningMean: decay = {self.decay}; expected a number in [0, 1]")

    def update(self, x: Any, y: float) -> RunningMean:
        """Return the predictor that has also seen ``y``; ``x`` is no matter."""
        rate = max(1 / (self.num + 1), 1 - self.decay)
        return RunningMean(self.decay, self.mean + (y - self.mean) * rate, self.num + 1)

    def predict(self, x: Any) -> float:
        return self.mean
