"""How many seeds a difference takes, by simulating the very test that is used."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rollwright.compare.sequential import SequentialTest
from rollwright.rng import generator

MOST = 1000  # pairs beyond which nobody is told a number
_PATHS = 2000


def log_e_paths(
    test: SequentialTest, x: NDArray[np.float64], start: Sequence[float] = ()
) -> NDArray[np.float64]:
    """Return log E_n after each of the pairs x, [P, N], that come after the pairs ``start``."""
    num = len(start) + np.arange(1, x.shape[1] + 1)
    total = math.fsum(start) + np.cumsum(x, axis=1)
    squares = math.fsum(value * value for value in start) + np.cumsum(x * x, axis=1)
    within = np.maximum(squares - total * total / num, 1e-300)
    shrink = 1 + num * test.g
    ratio = total * total / num / within
    log_e = -np.log(shrink) / 2 + num / 2 * (np.log1p(ratio) - np.log1p(ratio / shrink))
    return np.where(num < 2, 0.0, log_e)


def num_more(
    test: SequentialTest, differences: Sequence[float], power: float = 0.8, floor: float = 0.0, seed: int = 0
) -> int | None:
    """Return how many more pairs find the difference with this probability, if it is as it looks now.

    Future pairs are drawn as normal with the mean and the deviation of those that are there, and tested
    together with them.

    Args:
        differences: at least two pairs.
        floor: least deviation to believe.

    Returns:
        The number of pairs beyond those given; None where it is more than `MOST`, or unknown: fewer than two
        pairs, or no difference at all between them.
    """
    num = len(differences)
    if num < 2:
        return None
    mean = math.fsum(differences) / num
    deviation = math.sqrt(math.fsum((x - mean) ** 2 for x in differences) / (num - 1))
    deviation = max(deviation, floor, abs(mean) * 1e-9)
    if not mean:
        return None
    rng = generator(seed, "compare", "power")
    bar = -math.log(test.alpha)
    for length in (32, 128, MOST):
        # Fewer paths where they are long: the quantile of a large number needs no more.
        paths = _PATHS if length < MOST else _PATHS // 2
        x = mean + deviation * rng.standard_normal((paths, length))
        is_over = log_e_paths(test, x, differences) >= bar
        first = np.where(is_over.any(axis=1), is_over.argmax(axis=1) + 1, length + 1)
        needed = int(np.quantile(first, power, method="higher"))
        if needed <= length:
            return needed
    return None


def detectable(test: SequentialTest, num: int, power: float = 0.8, seed: int = 0) -> float | None:
    """Return the effect (mean over deviation) that this many pairs find with this probability.

    Returns:
        The effect; None where so few pairs find none, however large.
    """
    if math.isinf(test.half_width(num, 1.0)):
        return None
    z = generator(seed, "compare", "detectable").standard_normal((_PATHS, num))
    bar = -math.log(test.alpha)

    def found(effect: float) -> float:
        return float((log_e_paths(test, z + effect) >= bar).any(axis=1).mean())

    low, high = 0.0, 1.0
    while found(high) < power:
        low, high = high, 2 * high
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (middle, high) if found(middle) < power else (low, middle)
    return high
