"""Intervals of shares."""

from __future__ import annotations

import pytest

from rollwright.lab.statistics import interval


def test_one_sample_a_task_is_wilson() -> None:
    """Oracle: closed form; Wilson's interval of 8 of 20 is (0.2188, 0.6134) (published table)."""
    low, high = interval([1.0] * 8 + [0.0] * 12)
    assert (low, high) == pytest.approx((0.2188, 0.6134), abs=1e-4)


def test_never_leaves_the_unit_interval_and_is_never_empty_at_the_edges() -> None:
    """Oracle: closed form; 0 of 20 still leaves 16.1% possible. Kills: mean ± 1.96·s/√n for 0/1 data."""
    assert interval([0.0] * 20) == pytest.approx((0.0, 0.1611), abs=1e-4)


def test_tasks_are_the_clusters() -> None:
    """Oracle: slow reference, by hand: shares 0.25, 0.75, 0.5, 0.5 have s² = 1/24, n = 4."""
    half = 1.959964 * (1 / 24 / 4) ** 0.5
    assert interval([0.25, 0.75, 0.5, 0.5]) == pytest.approx((0.5 - half, 0.5 + half))


def test_one_task_alone_says_nothing() -> None:
    """Oracle: a variance over tasks needs two of them. Kills: the division by n - 1 = 0."""
    assert interval([0.5]) == (0.0, 1.0)
