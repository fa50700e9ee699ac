"""Is one method better than another? Asked again after every seed, without more errors for asking.

The differences of the pairs, x₁, x₂, ..., are taken as normal with mean μ and unknown variance. For each μ₀
the process

    E_n(μ₀) = (1 + n·g)^(-1/2) · ((1 + t²/ν) / (1 + t²/(ν·(1 + n·g))))^(n/2),  t = √n·(x̄ - μ₀)/s,  ν = n - 1

is a martingale of the t statistics under μ = μ₀, whatever the variance: the likelihood ratio of a normal
prior N(0, g) on the effect μ/σ against the effect 0. By Ville's inequality it ever reaches 1/α with
probability at most α, so one may look after each pair, stop when one likes, and add pairs later.

Source: Lai (1976), Gönen et al. (2005) for the closed form, Wang & Ramdas, "Anytime-valid t-tests and
confidence sequences for Gaussian means with unknown variance" (2310.03722), for its validity at any stopping
time. What differs: the variance is never taken as less than ``floor``², which can only make the process
smaller.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rollwright.errors import ConfigError, DataError


@dataclass(frozen=True, slots=True)
class Look:
    """What is known after some pairs.

    Args:
        num: pairs so far.
        mean: of their differences.
        deviation: their standard deviation (of the sample, not below the floor); None for one pair.
        low, high: confidence sequence at 1 - α: it covers μ at all looks at once; infinite at first.
        log_e: log of E_n(0), the evidence against no difference.
        p_value: 1 / the largest E so far, at most 1: valid at any time.
    """

    num: int
    mean: float
    deviation: float | None
    low: float
    high: float
    log_e: float
    p_value: float


@dataclass(frozen=True, slots=True)
class SequentialTest:
    """A two-sided paired test that may be looked at after every pair.

    Args:
        alpha: probability of ever finding a difference where there is none, in (0, 1).
        g: variance of the prior on the effect size (mean over deviation); it moves how soon which effects are
            found, never the errors. 10 is tuned to the large effects that few seeds can show.

    Raises:
        ConfigError: a number outside its range.
    """

    alpha: float = 0.05
    g: float = 10.0

    def __post_init__(self) -> None:
        if not 0 < self.alpha < 1:
            raise ConfigError(f"alpha: given {self.alpha!r}, expected a number between 0 and 1")
        if not 0 < self.g < math.inf:
            raise ConfigError(f"g: given {self.g!r}, expected a number > 0")

    def log_e(self, num: int, mean: float, squares: float, floor: float = 0.0) -> float:
        """Return log E_n(0) from the number of pairs, their mean and Σ(x - x̄)².

        One pair says nothing (0), nor do pairs without any difference (all exactly 0: -log(1 + n·g)/2).
        """
        if num < 2:
            return 0.0
        squares = max(squares, (num - 1) * floor * floor)
        shrink = 1 + num * self.g
        if squares <= 0:
            return math.inf if mean else -math.log(shrink) / 2
        ratio = num * mean * mean / squares
        return -math.log(shrink) / 2 + num / 2 * (math.log1p(ratio) - math.log1p(ratio / shrink))

    def half_width(self, num: int, squares: float, floor: float = 0.0) -> float:
        """Return half the width of {μ₀: E_n(μ₀) < 1/α}; infinite while the pairs are too few."""
        if num < 2:
            return math.inf
        squares = max(squares, (num - 1) * floor * floor)
        shrink = 1 + num * self.g
        bound = (shrink / self.alpha**2) ** (1 / num)
        if bound >= shrink:
            return math.inf
        return math.sqrt(squares / num * (bound - 1) / (1 - bound / shrink))

    def looks(self, differences: Sequence[float], floor: float = 0.0) -> list[Look]:
        """Return what was known after each pair, in their order.

        The interval is that of all looks so far together, unless they do not overlap (which happens with
        probability α at most): then it is the last one's.

        Args:
            differences: of the pairs, in an order that does not depend on them.
            floor: the least standard deviation to believe: pairs of coarse measures can agree by chance.

        Raises:
            DataError: a difference that is not finite.
        """
        found: list[Look] = []
        mean = squares = best = 0.0
        low, high = -math.inf, math.inf
        for num, x in enumerate(map(float, differences), 1):
            if not math.isfinite(x):
                raise DataError(f"pair {num} differs by {x!r}; expected a finite number, leave the pair out")
            step = x - mean
            mean += step / num
            squares += step * (x - mean)
            log_e = self.log_e(num, mean, squares, floor)
            best = max(best, log_e)
            half = self.half_width(num, squares, floor)
            low, high = max(low, mean - half), min(high, mean + half)
            if low > high:
                low, high = mean - half, mean + half
            deviation = max(math.sqrt(squares / (num - 1)), floor) if num > 1 else None
            found.append(Look(num, mean, deviation, low, high, log_e, math.exp(-best)))
        return found

    def is_found(self, look: Look) -> bool:
        """Say whether a difference was found, at this look or before."""
        return look.p_value <= self.alpha


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the p-values adjusted for their number: the chance of any false finding stays below α.

    Source: Holm (1979); it holds for any dependence, so also for methods that share a baseline.
    """
    order = sorted(range(len(p_values)), key=lambda k: p_values[k])
    adjusted = [1.0] * len(p_values)
    worst = 0.0
    for place, k in enumerate(order):
        worst = max(worst, min(1.0, (len(order) - place) * p_values[k]))
        adjusted[k] = worst
    return adjusted
