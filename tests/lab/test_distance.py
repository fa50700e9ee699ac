"""Distances between samples, and the test of a selection."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest

from rollwright.lab.distance import ks_distance, selection_distance, selection_p_value


def slow_distance(first: list[float], second: list[float]) -> float:
    """Look at both distribution functions at every value."""

    def share(values: list[float], x: float) -> float:
        return sum(v <= x for v in values) / len(values)

    return max(abs(share(first, x) - share(second, x)) for x in [*first, *second])


@pytest.mark.parametrize(
    ("first", "second", "distance"),
    [
        ([1, 2, 3], [1, 2, 3], 0.0),
        ([1, 2], [3, 4], 1.0),
        ([1, 2, 3, 4], [3, 4, 5, 6], 0.5),
        ([1, 1, 1, 2], [1, 2, 2, 2], 0.5),
        ([5], [4, 5, 6], 1 / 3),
    ],
)
def test_known_distances(first, second, distance) -> None:
    """Oracle: by hand. Kills: ties that are compared one value at a time."""
    assert ks_distance(first, second) == pytest.approx(distance)
    assert ks_distance(second, first) == pytest.approx(distance)
    assert ks_distance([], second) is None


def test_distances_of_random_samples() -> None:
    """Oracle: slow reference, on samples full of ties."""
    rng = random.Random(0)
    for _ in range(200):
        first = [float(rng.randrange(8)) for _ in range(rng.randrange(1, 12))]
        second = [float(rng.randrange(8)) for _ in range(rng.randrange(1, 12))]
        assert ks_distance(first, second) == pytest.approx(slow_distance(first, second))


def test_the_distance_of_a_selection() -> None:
    """Oracle: closed form. F_all = p·F_chosen + (1-p)·F_other, so the distance is (1-p) times theirs."""
    rng = random.Random(1)
    for _ in range(100):
        values = [float(rng.randrange(9)) for _ in range(12)]
        chosen = [rng.random() < 0.5 for _ in values]
        if not 0 < sum(chosen) < 12:
            continue
        mine = [v for v, c in zip(values, chosen, strict=True) if c]
        rest = [v for v, c in zip(values, chosen, strict=True) if not c]
        expected = (1 - len(mine) / 12) * slow_distance(mine, rest)
        assert selection_distance(values, chosen) == pytest.approx(expected)
    assert selection_distance([1.0, 2.0], [True, True]) == 0.0
    assert selection_distance([1.0], [False]) is None


def test_the_p_value_is_that_of_all_permutations() -> None:
    """Oracle: enumeration of all 720 orders of six groups of two. Kills: rollouts dealt out one by one."""
    rng = random.Random(2)
    values = [float(rng.randrange(10)) for _ in range(12)]
    labels = [(True, True)] * 2 + [(False, False)] * 2 + [(True, False), (False, True)]
    chosen = [label for pair in labels for label in pair]
    groups = [k // 2 for k in range(12)]
    found = selection_distance(values, chosen)
    assert found is not None
    far = [
        selection_distance(values, [label for pair in order for label in pair]) >= found - 1e-12
        for order in itertools.permutations(labels)
    ]
    expected = sum(far) / len(far)
    p = selection_p_value(values, chosen, groups, 8000)
    assert 0.02 < expected < 0.98
    assert p == pytest.approx(expected, abs=4 * math.sqrt(0.25 / 8000))


def test_clusters_are_dealt_out_whole() -> None:
    """Oracle: closed form. Ten groups of equal values, two kept: no choice of two groups is less likely.

    The distance of the kept pair of extreme groups is the largest there is; of 45 pairs two reach it.
    Kills: a p-value as if the 200 rollouts were independent, which is nearly 0.
    """
    values = [float(k // 20) for k in range(200)]
    chosen = [k // 20 >= 8 for k in range(200)]
    p = selection_p_value(values, chosen, [k // 20 for k in range(200)], 3000)
    assert p == pytest.approx(2 / 45, abs=0.015)
    alone = selection_p_value(values, chosen, range(200), 1000)
    assert alone is not None and alone < 0.002


def test_a_blind_choice_is_called_unusual_as_often_as_it_says() -> None:
    """Oracle: the definition of p. In 200 blind choices, p ≤ 0.1 about twenty times."""
    rng = np.random.default_rng(3)
    num = 0
    for seed in range(200):
        values, chosen = rng.normal(size=40), rng.random(40) < 0.5
        p = selection_p_value(list(values), list(chosen), [k // 4 for k in range(40)], 49, seed)
        num += p is not None and p <= 0.1
    assert 8 <= num <= 34


def test_large_samples_agree_with_kolmogorovs_law() -> None:
    """Oracle: closed form. p ≈ 2 Σ (-1)^(k-1) exp(-2 k² λ²) with λ = D √(nm/(n+m)), both samples large."""
    rng = np.random.default_rng(4)
    values = np.concatenate([rng.normal(0, 1, 900), rng.normal(0.03, 1, 900)])
    chosen = np.arange(1800) < 900
    distance = ks_distance(list(values[:900]), list(values[900:]))
    assert distance is not None
    lam = distance * math.sqrt(450)
    law = 2 * sum((-1) ** (k - 1) * math.exp(-2 * k * k * lam * lam) for k in range(1, 50))
    p = selection_p_value(list(values), list(chosen), range(1800), 1500)
    assert 0.01 < law < 0.5, "the case says nothing"
    assert p == pytest.approx(law, abs=0.04)


def test_nothing_to_compare() -> None:
    """Oracle: the contract. All or none chosen have no p-value, instead of one that looks sure."""
    assert selection_p_value([1.0, 2.0], [True, True], [0, 1]) is None
    assert selection_p_value([1.0, 2.0], [False, False], [0, 1]) is None
