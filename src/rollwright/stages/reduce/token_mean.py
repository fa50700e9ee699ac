"""Every trained token of the optimizer step weighs the same."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class TokenMean:
    """Average over all trained tokens of the step: weight = 1 / Σᵢ nᵢ.

    Long trajectories weigh more than short ones. Because the denominator depends on what was sampled,
    the gradient is biased, even up to scale, if lengths vary (DAPO, 2503.14476).
    """

    def __call__(self, is_trained_T: NDArray[np.bool_], segment_T: NDArray[np.int64]) -> NDArray[np.float64]:
        return is_trained_T / self.total(is_trained_T, segment_T)

    def total(self, is_trained_T: NDArray[np.bool_], segment_T: NDArray[np.int64]) -> int:
        """Return the denominator that all weights of a step share; at least 1."""
        return max(int(is_trained_T.sum()), 1)
