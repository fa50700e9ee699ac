"""Every trajectory of the optimizer step weighs the same."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rollwright.stages.reduce import num_trained


@dataclass(frozen=True, slots=True)
class SequenceMean:
    """Average over tokens within a trajectory, then over trajectories: weight = 1 / (B·nᵢ).

    B counts trajectories with at least one trained token. The 1/nᵢ makes a token of a long trajectory
    weigh less, which biases the gradient towards long wrong answers (GRPO, 2402.03300; see Dr. GRPO,
    2503.20783).
    """

    def __call__(self, is_trained_T: NDArray[np.bool_], segment_T: NDArray[np.int64]) -> NDArray[np.float64]:
        num_S = num_trained(is_trained_T, segment_T)
        weight_S = 1.0 / (np.maximum(num_S, 1) * self.total(is_trained_T, segment_T))
        weight_T = np.zeros(len(is_trained_T))
        weight_T[is_trained_T] = weight_S[segment_T[is_trained_T]]
        return weight_T

    def total(self, is_trained_T: NDArray[np.bool_], segment_T: NDArray[np.int64]) -> int:
        """Return the denominator that all weights of a step share: trajectories; at least 1."""
        return max(int((num_trained(is_trained_T, segment_T) > 0).sum()), 1)
