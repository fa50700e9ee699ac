"""Every token weighs the same, whatever the lengths: a sum over tokens, divided by a constant."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rollwright.errors import ConfigError
from rollwright.stages.reduce import num_trained


@dataclass(frozen=True, slots=True)
class ConstantLength:
    """Sum over tokens, average over trajectories, divide by a fixed length: weight = 1 / (B·length).

    B counts trajectories with at least one trained token. With ``length=1`` it is the plain policy
    gradient, unbiased with an unbiased credit; other lengths scale it (Dr. GRPO, 2503.20783).

    Args:
        length: the constant, ≥ 1; usually the limit of response tokens.
    """

    length: int

    def __post_init__(self) -> None:
        if self.length < 1:
            raise ConfigError(f"ConstantLength: length={self.length} was given, expected at least 1")

    def __call__(self, is_trained_T: NDArray[np.bool_], segment_T: NDArray[np.int64]) -> NDArray[np.float64]:
        return is_trained_T / (self.length * self.total(is_trained_T, segment_T))

    def total(self, is_trained_T: NDArray[np.bool_], segment_T: NDArray[np.int64]) -> int:
        """Return the denominator that all weights of a step share: trajectories; at least 1."""
        return max(int((num_trained(is_trained_T, segment_T) > 0).sum()), 1)
