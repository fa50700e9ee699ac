"""A planner that keeps rollouts and training equally long."""

from __future__ import annotations

from dataclasses import dataclass

from rollwright.drive.virtual.model import StepCost
from rollwright.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Balance:
    """Let m of N workers train, m = argmin max(R / (N − m), W / m).

    R and W are the worker seconds that the last ``window`` steps took for rollouts and for training. They
    are measured anew after each step, so the split follows lengths that drift. It moves workers only if
    the longer of the two phases gets shorter by more than ``gain``.

    Args:
        window: steps, ≥ 1.
        gain: share of the longer phase, ≥ 0.
        start: share of the workers that train before anything is measured, in (0, 1).

    Raises:
        ConfigError: a number outside its range.

    Source: the global planner of Libra (2026). What differs: its fitted statistics are not published; here
    the work of the last steps is the forecast of the next one's.
    """

    window: int = 1
    gain: float = 0.05
    start: float = 0.5

    def __post_init__(self) -> None:
        if self.window < 1 or not self.gain >= 0 or not 0 < self.start < 1:
            raise ConfigError(
                f"Balance: window = {self.window}, gain = {self.gain}, start = {self.start};"
                " expected window ≥ 1, gain ≥ 0 and start in (0, 1)"
            )

    def num_training(self, costs: list[StepCost], num_workers: int, now: int) -> int:
        if not costs:
            return round(self.start * num_workers)
        last = costs[-self.window :]
        rollouts = sum(cost.rollout_seconds for cost in last)
        training = sum(cost.train_seconds for cost in last)

        def longer(num: int) -> float:
            return max(rollouts / (num_workers - num), training / num)

        best = min(range(1, num_workers), key=longer)
        return best if longer(best) < (1 - self.gain) * longer(now) else now
