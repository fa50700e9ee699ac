"""What a target takes, with runs that never reached it."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from rollwright.compare.survival import (
    Reach,
    first_reach,
    kaplan_meier,
    median_ranks,
    quantile,
    ratio_of_means,
    resampled,
    restricted_mean,
    restricted_means,
    to_target,
)
from rollwright.errors import DataError


def reached(*times: float) -> list[Reach]:
    return [Reach(time, True) for time in times]


def test_kaplan_meier_by_hand() -> None:
    """Oracle: hand, the textbook's example: 6, 6, 6, 6+, 7, 9+, 10, 10+, 11+, 13, 16 (Freireich et al. 1963).

    Kills: censored runs that leave before those that reach the target at the same amount.
    """
    runs = [*reached(6, 6, 6, 7, 10, 13, 16, 22, 23)]
    runs += [Reach(t, False) for t in (6, 9, 10, 11, 17, 19, 20, 25, 32, 32, 34, 35)]
    times, shares = kaplan_meier(runs)
    assert list(times) == [6, 7, 10, 13, 16, 22, 23]
    assert shares == pytest.approx([0.857, 0.807, 0.753, 0.690, 0.627, 0.538, 0.448], abs=6e-4)
    assert quantile(runs) == 23


def test_without_censoring_it_is_the_sample() -> None:
    """Oracle: the sample's own mean and median. Kills: an area that forgets its first step."""
    runs = reached(5, 1, 3, 9, 7)
    assert quantile(runs) == 5 and restricted_mean(runs, 100) == pytest.approx(5.0)
    assert restricted_mean(runs, 4) == pytest.approx((1 + 3 + 4 + 4 + 4) / 5)
    assert quantile(runs, 0.2) == 1 and quantile(runs, 0.21) == 3


def test_runs_that_never_reach_it_are_more_than_the_budget() -> None:
    """Oracle: hand. Kills: censored runs left out (median 2), or counted with what they spent (median 10)."""
    runs = [*reached(1, 2), *(Reach(10, False) for _ in range(3))]
    found = to_target(runs, 10)
    assert found.median is None and found.high is None and found.low == 1.0 and found.coverage < 0.95
    assert (found.num, found.num_reached) == (5, 2)
    assert found.restricted_mean == pytest.approx((1 + 2 + 30) / 5)
    assert 0 <= found.mean_low < found.restricted_mean < found.mean_high <= 10
    nobody = to_target([Reach(10, False)] * 3, 10)
    assert nobody.median is None and nobody.low is None and nobody.restricted_mean == 10.0


def test_early_ends_do_not_bias_the_mean() -> None:
    """Oracle: simulation: amounts with mean E[min(T, 4)], a third of the runs cut early by chance.

    Kills: cut runs left out (too small), counted as reached (too small).
    """
    rng = random.Random(1)
    true = 2 * (1 - math.exp(-4 / 2))
    found, naive = [], []
    for _ in range(400):
        runs = []
        for _ in range(60):
            time, cut = rng.expovariate(1 / 2), rng.uniform(0, 8)
            runs.append(Reach(min(time, cut), time <= cut))
        found.append(restricted_mean(runs, 4))
        naive.append(np.mean([min(run.spent, 4) for run in runs]))
    assert np.mean(found) == pytest.approx(true, abs=4 * np.std(found) / 20)
    assert np.mean(naive) < 0.95 * true


def test_the_intervals_cover() -> None:
    """Oracle: simulation with 6 seeds, a quarter never reaching: the mean's interval covers about 95%, the
    median's 97% (the least and largest of six, exactly).

    Kills: the plain percentile interval of a mean.
    """
    rng = np.random.default_rng(2)
    budget, median = 3.0, 2 * math.log(2)
    mean = 2 * (1 - math.exp(-budget / 2))
    in_mean = in_median = 0
    for k in range(300):
        times = rng.exponential(2, 6)
        found = to_target([Reach(min(t, budget), t <= budget) for t in times], budget, 200, k)
        in_mean += found.mean_low <= mean <= found.mean_high
        low, high = (math.inf if x is None else x for x in (found.low, found.high))
        in_median += low <= median <= high
    assert in_mean / 300 > 0.90 and in_median / 300 > 0.93
    assert found.coverage == pytest.approx(1 - 2 / 64)


def test_the_ratio_of_pairs_covers() -> None:
    """Oracle: simulation: 6 pairs that share their seed's noise, true ratio 0.7, and hand. Kills: pairs torn
    apart.

    Without pairs the interval would be several times as wide as the noise that is left in the ratio.
    """
    rng = np.random.default_rng(6)
    covered, widths = 0, []
    for k in range(300):
        shared = rng.lognormal(0, 0.8, 6)
        theirs, mine = shared * rng.lognormal(0, 0.1, 6), 0.7 * shared * rng.lognormal(0, 0.1, 6)
        found = ratio_of_means(reached(*mine), reached(*theirs), 1e3, 200, k)
        assert found is not None and found[1] is not None and found[2] is not None
        covered += found[1] <= 0.7 <= found[2]
        widths.append(found[2] - found[1])
    assert covered / 300 > 0.89 and np.median(widths) < 0.3
    assert ratio_of_means(reached(2), reached(4), 10) == (0.5, None, None)
    assert ratio_of_means([Reach(10, False)] * 2, reached(5, 5), 10) == pytest.approx((2.0, 2.0, 2.0))
    assert ratio_of_means(reached(0), reached(4), 10) is None
    with pytest.raises(DataError, match="pairs"):
        ratio_of_means(reached(1), reached(1, 2), 10)


def test_ranks_of_the_median() -> None:
    """Oracle: tables of the sign test: 6 has 1, 9 has 2, 20 has 6. Kills: a rank too far inside."""
    assert [median_ranks(num)[0] for num in (1, 2, 5, 6, 9, 20, 100)] == [1, 1, 1, 1, 2, 6, 40]
    assert median_ranks(5)[1] == pytest.approx(0.9375) and median_ranks(1)[1] == 0.0


def test_many_weights_are_many_samples() -> None:
    """Oracle: slow reference, the samples themselves. Kills: weights in another order than the runs."""
    runs = [*reached(5, 1, 3, 3), Reach(2, False), Reach(9, False), Reach(3, False)]
    weights = resampled(len(runs), 50)
    assert (weights.sum(1) == len(runs)).all()
    for row, mean in zip(weights, restricted_means(runs, weights, 8), strict=True):
        sample = [run for run, num in zip(runs, row, strict=True) for _ in range(int(num))]
        times, shares = kaplan_meier(sample)
        edges = [0.0, *[t for t in times if t < 8], 8.0]
        levels = [1.0, *[s for t, s in zip(times, shares, strict=True) if t < 8]]
        assert mean == pytest.approx(float(np.sum(np.diff(edges) * levels)))


def test_when_a_curve_reaches_the_target() -> None:
    """Oracle: hand.

    Kills: the next evaluation instead of the line to it, a last point that counts as reached.
    """
    assert first_reach([0, 10, 20], [0.2, 0.4, 0.8], 0.6) == Reach(15.0, True)
    assert first_reach([0, 10, 20], [0.2, 0.7, 0.1], 0.7) == Reach(10.0, True)
    assert first_reach([0, 10], [0.5, 0.9], 0.5) == Reach(0.0, True)
    assert first_reach([0, 10, 20], [0.2, 0.4, 0.5], 0.6) == Reach(20.0, False)
    for spent, success in (([], []), ([1], [0.1, 0.2])):
        with pytest.raises(DataError):
            first_reach(spent, success, 0.5)
    with pytest.raises(DataError, match="horizon"):
        to_target(reached(1), 0)
    with pytest.raises(DataError, match="at least one"):
        kaplan_meier([])
