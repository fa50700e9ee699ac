"""Reductions: how much the loss of each token weighs in an optimizer step.

The loss of a step is Σ loss_T·weight_T. The weights are worked out once for all trajectories of the
optimizer step, before it is cut into micro-batches, so the result cannot depend on the cut. Numerator
and denominator count the same tokens: those that are trained. A trajectory that is not scored, and one
without a trained token, is in neither.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray


@runtime_checkable
class Reduce(Protocol):
    """Weights of token losses."""

    def __call__(self, is_trained_T: NDArray[np.bool_], segment_T: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the weight of each token of one optimizer step, [T].

        Args:
            is_trained_T: which response steps are trained, [T].
            segment_T: number of the step's trajectory, from 0, [T].

        Returns:
            Weights ≥ 0, exactly 0 where not trained; all 0 if nothing is trained.
        """
        ...


def num_trained(is_trained_T: NDArray[np.bool_], segment_T: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the number of trained steps of each segment, [S]."""
    return np.bincount(segment_T[is_trained_T], minlength=0).astype(np.int64)
