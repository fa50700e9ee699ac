"""Intervals of means, with tasks as the clusters."""

from __future__ import annotations

import math
from collections.abc import Sequence

_Z = 1.959964  # the normal distribution has 95% of its mass within ± this


def interval(shares: Sequence[float]) -> tuple[float, float]:
    """Return a 95% interval of the mean of shares in [0, 1], one share per task.

    With one rollout a task the shares are 0 or 1: Wilson's interval. Else the tasks are the clusters:
    mean ± 1.96·s/√n. One task alone says nothing about others: (0, 1).

    Args:
        shares: the share of right rollouts of each task, at least one.
    """
    n, mean = len(shares), math.fsum(shares) / len(shares)
    if all(share in (0.0, 1.0) for share in shares):
        centre = (mean + _Z * _Z / (2 * n)) / (1 + _Z * _Z / n)
        half = _Z * math.sqrt(mean * (1 - mean) / n + _Z * _Z / (4 * n * n)) / (1 + _Z * _Z / n)
        return max(0.0, centre - half), min(1.0, centre + half)
    if n == 1:
        return 0.0, 1.0
    variance = math.fsum((share - mean) ** 2 for share in shares) / (n - 1)
    half = _Z * math.sqrt(variance / n)
    return max(0.0, mean - half), min(1.0, mean + half)
