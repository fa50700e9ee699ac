"""What it takes to reach a target, when some runs never did within their budget.

A run that did not reach the target is censored: it would have taken more than it spent. Leaving it out, or
counting it with what it spent, makes a method look better the more often it fails.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rollwright.errors import DataError
from rollwright.lab.student import student_quantile
from rollwright.rng import generator


@dataclass(frozen=True, slots=True)
class Reach:
    """What one run spent until it reached the target, or in all where it did not."""

    spent: float
    is_reached: bool


@dataclass(frozen=True, slots=True)
class ToTarget:
    """What a method takes to reach the target.

    Args:
        num, num_reached: runs, and those that reached it.
        median: of the Kaplan-Meier curve; None is more than the budget.
        low, high: interval of the median over seeds; None is more than the budget.
        coverage: of that interval: 95% or more, less where there are fewer than six seeds.
        restricted_mean: mean of min(what it takes, horizon).
        mean_low, mean_high: its 95% interval, by the bootstrap.
        horizon: what every run could spend.
    """

    num: int
    num_reached: int
    median: float | None
    low: float | None
    high: float | None
    coverage: float
    restricted_mean: float
    mean_low: float
    mean_high: float
    horizon: float


def kaplan_meier(runs: Sequence[Reach]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return (what was spent, share of runs that need more) at each event, [K] each.

    S(t) = Π_{tᵢ ≤ t} (1 - dᵢ/nᵢ); at one amount, runs that reach the target come before runs that are
    censored.

    Source: Kaplan & Meier (1958).

    Raises:
        DataError: no runs, or a negative or infinite amount.
    """
    if not runs or any(not 0 <= run.spent < math.inf for run in runs):
        raise DataError(f"kaplan_meier: {list(runs)[:4]}; expected at least one run, amounts ≥ 0")
    times = np.unique([run.spent for run in runs if run.is_reached])
    spent = np.array([run.spent for run in runs])
    reached = np.array([run.is_reached for run in runs])
    share, shares = 1.0, []
    for time in times:
        at_risk = int((spent >= time).sum())
        share *= 1 - int((reached & (spent == time)).sum()) / at_risk
        shares.append(share)
    return times, np.array(shares)


def quantile(runs: Sequence[Reach], q: float = 0.5) -> float:
    """Return the least amount by which a share ``q`` of the runs has reached the target; inf if none."""
    times, shares = kaplan_meier(runs)
    below = np.flatnonzero(shares <= 1 - q + 1e-12)
    return float(times[below[0]]) if len(below) else math.inf


def restricted_mean(runs: Sequence[Reach], horizon: float) -> float:
    """Return the area under the Kaplan-Meier curve up to the horizon: the mean of min(amount, horizon)."""
    return float(restricted_means(runs, np.ones((1, len(runs))), horizon)[0])


def restricted_means(
    runs: Sequence[Reach], weights: NDArray[np.float64], horizon: float
) -> NDArray[np.float64]:
    """Return the restricted mean for each row of weights, [B], of the runs, [B, N]."""
    # One factor a run: those of runs that reach it at one amount multiply to the one of all of them.
    order = sorted(range(len(runs)), key=lambda k: (runs[k].spent, not runs[k].is_reached))
    spent = np.minimum([runs[k].spent for k in order], horizon)
    reached = np.array([runs[k].is_reached for k in order])
    chosen = weights[:, order]
    at_risk = np.cumsum(chosen[:, ::-1], axis=1)[:, ::-1]
    shares = np.cumprod(1 - chosen * reached / np.where(at_risk > 0, at_risk, 1), axis=1)
    levels = np.concatenate([np.ones((len(weights), 1)), shares], axis=1)
    return np.asarray(levels @ np.diff([0.0, *spent, horizon]))


def resampled(num: int, num_bootstrap: int, seed: int = 0) -> NDArray[np.float64]:
    """Return how often each of ``num`` seeds is in each of the bootstrap's samples, [B, N]."""
    rng = generator(seed, "compare", "bootstrap")
    return rng.multinomial(num, [1 / num] * num, num_bootstrap).astype(np.float64)


def median_ranks(num: int) -> tuple[int, float]:
    """Return (r, coverage): the r-th least and the r-th largest of ``num`` values hold the median between
    them.

    r is the largest with a coverage of 95%; 1 where so few values cannot have it.
    """
    below, rank, coverage = 0.0, 1, 1 - 2 / 2**num
    for r in range(1, num // 2 + 1):
        below += math.comb(num, r - 1) / 2**num
        if 1 - 2 * below < 0.95:
            break
        rank, coverage = r, 1 - 2 * below
    return rank, max(0.0, coverage)


def to_target(runs: Sequence[Reach], horizon: float, num_bootstrap: int = 1000, seed: int = 0) -> ToTarget:
    """Take the runs of one method together, one per seed.

    The median's interval lies between two of the runs, whatever their distribution; a run that did not reach
    the target counts as more than all others. The mean's is ± Student's t times the deviation of the
    bootstrap over seeds, made larger by √(n/(n-1)): the percentile interval of a mean is too narrow for few
    seeds.

    Args:
        horizon: an amount up to which every run was watched, > 0.

    Raises:
        DataError: no runs, or a horizon that is not positive.
    """
    if not 0 < horizon < math.inf:
        raise DataError(f"to_target: horizon {horizon!r}; expected a number > 0")
    num, median = len(runs), quantile(runs)
    mean = restricted_mean(runs, horizon)
    values = sorted(run.spent if run.is_reached else math.inf for run in runs)
    rank, coverage = median_ranks(num)
    half = math.inf
    if num > 1:
        deviation = float(restricted_means(runs, resampled(num, num_bootstrap, seed), horizon).std())
        half = student_quantile(0.975, num - 1) * deviation * math.sqrt(num / (num - 1))
    return ToTarget(
        num=num,
        num_reached=sum(run.is_reached for run in runs),
        median=_finite(median),
        low=_finite(values[rank - 1]),
        high=_finite(values[-rank]),
        coverage=coverage,
        restricted_mean=mean,
        mean_low=max(0.0, mean - half),
        mean_high=min(horizon, mean + half),
        horizon=horizon,
    )


Ratio = tuple[float, float | None, float | None]  # with its 95% interval, None where it has none


def ratio_of_means(
    mine: Sequence[Reach],
    theirs: Sequence[Reach],
    horizon: float,
    num_bootstrap: int = 1000,
    seed: int = 0,
) -> Ratio | None:
    """Return the ratio of two restricted means over pairs of runs, below 1 where mine take less.

    The interval is that of its logarithm: ± Student's t times the deviation of the bootstrap over pairs, made
    larger as in `to_target`.

    Returns:
        None where one of them reached the target before it spent anything.

    Raises:
        DataError: not one run of theirs for each of mine, or none.
    """
    num = len(mine)
    if not num or len(theirs) != num:
        raise DataError(f"ratio_of_means: {num} and {len(theirs)} runs; expected pairs, at least one")
    weights = np.concatenate([np.ones((1, num)), resampled(num, num_bootstrap, seed)])
    above, below = (restricted_means(runs, weights, horizon) for runs in (mine, theirs))
    if not (above[0] > 0 and below[0] > 0):
        return None
    is_known = (above > 0) & (below > 0)
    logs = np.log(above[is_known] / below[is_known])
    if num == 1:
        return float(np.exp(logs[0])), None, None
    half = student_quantile(0.975, num - 1) * float(logs[1:].std()) * math.sqrt(num / (num - 1))
    return float(np.exp(logs[0])), float(np.exp(logs[0] - half)), float(np.exp(logs[0] + half))


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def first_reach(spent: Sequence[float], success: Sequence[float], target: float) -> Reach:
    """Return when a curve first reaches the target, on straight lines between its points.

    Args:
        spent: amounts at the evaluations, rising, [N].
        success: success there, [N].

    Raises:
        DataError: no points, or not equally many of both.
    """
    if not spent or len(spent) != len(success):
        raise DataError(f"first_reach: {len(spent)} amounts for {len(success)} values; expected one each")
    for k, value in enumerate(success):
        if value >= target:
            if k == 0 or value == success[k - 1]:
                return Reach(float(spent[k]), True)
            share = (target - success[k - 1]) / (value - success[k - 1])
            return Reach(float(spent[k - 1] + share * (spent[k] - spent[k - 1])), True)
    return Reach(float(spent[-1]), False)
