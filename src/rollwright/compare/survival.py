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
        low, high: 95% bootstrap interval of the median over seeds; None is more than the budget.
        restricted_mean: mean of min(what it takes, horizon).
        mean_low, mean_high: its 95% interval.
        horizon: what every run could spend.
    """

    num: int
    num_reached: int
    median: float | None
    low: float | None
    high: float | None
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
    times, shares = kaplan_meier(runs)
    inside = times < horizon
    edges = np.concatenate([[0.0], times[inside], [horizon]])
    levels = np.concatenate([[1.0], shares[inside]])
    return float(np.sum(np.diff(edges) * levels))


def to_target(runs: Sequence[Reach], horizon: float, num_bootstrap: int = 1000, seed: int = 0) -> ToTarget:
    """Take the runs of one method together, one per seed.

    Both intervals come from resampling seeds. The median's is the percentile interval, in which a run that
    did not reach the target counts as infinity. The mean's is ± Student's t times the bootstrap's deviation,
    made larger by √(n/(n-1)): the percentile interval of a mean is too narrow for few seeds.

    Args:
        horizon: an amount up to which every run was watched, > 0.

    Raises:
        DataError: no runs, or a horizon that is not positive.
    """
    if not 0 < horizon < math.inf:
        raise DataError(f"to_target: horizon {horizon!r}; expected a number > 0")
    num = len(runs)
    mean, median = restricted_mean(runs, horizon), quantile(runs)
    rng = generator(seed, "compare", "to target")
    picks = rng.integers(0, max(num, 1), (num_bootstrap, num))
    samples = [[runs[k] for k in pick] for pick in picks]
    medians = np.array([quantile(sample) for sample in samples])
    means = np.array([restricted_mean(sample, horizon) for sample in samples])
    low, high = (float(np.quantile(medians, q, method="inverted_cdf")) for q in (0.025, 0.975))
    half = math.inf
    if num > 1:
        half = student_quantile(0.975, num - 1) * float(means.std()) * math.sqrt(num / (num - 1))
    return ToTarget(
        num=num,
        num_reached=sum(run.is_reached for run in runs),
        median=_finite(median),
        low=_finite(low),
        high=_finite(high),
        restricted_mean=mean,
        mean_low=max(0.0, mean - half),
        mean_high=min(horizon, mean + half),
        horizon=horizon,
    )


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
