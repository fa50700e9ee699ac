"""Metrics taken together (cases K01, K02) and books that add up (case S03)."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollwright.errors import DataError, LawBroken
from rollwright.store.metrics import Mean, check_books, mean, per_rollout, rate, share_right, spread


def test_case_k01_one_value_per_rollout():
    """Golden, case K01 (molt#64): 1/2 over rollouts, not 2/8 over rows."""
    rollouts = [{"reward": 1.0, "turns": 2}, {"reward": 0.0, "turns": 6}]
    rows = [
        {"rollout": number, "turn": turn, "reward": rollout["reward"]}
        for number, rollout in enumerate(rollouts)
        for turn in range(rollout["turns"])
    ]
    rewards = per_rollout(rows, "rollout", "reward")
    assert mean(rewards.values()) == Mean(0.5, 2)
    assert share_right(rewards.values()).mean == 0.5
    assert mean(row["reward"] for row in rows).mean == 0.25, "the wrong value differs, so the test can tell"


def test_rows_that_disagree_are_refused():
    """Oracle: the rollout in the message; equal rows, NaN included, are one value."""
    nan = float("nan")
    assert list(per_rollout([{"r": 0, "x": nan}, {"r": 0, "x": float("nan")}], "r", "x")) == [0]
    with pytest.raises(DataError, match="rollout 0 has x 1 in one row and 2"):
        per_rollout([{"r": 0, "x": 1}, {"r": 0, "x": 2}], "r", "x")
    with pytest.raises(DataError, match="row 0 lacks"):
        per_rollout([{"r": 0}], "r", "x")


def test_case_k02_missing_values():
    """Golden, case K02 (trl#4501)."""
    got = mean([0.5, None, None, 0.8, 0.6, 0.7])
    assert got.mean == pytest.approx(0.65, abs=1e-15)
    assert (got.count, got.num_missing) == (4, 2)
    assert rate(2, 8) == 0.25
    accepted, completed, dispatched = 2, 3, 4
    assert rate(accepted, completed) == pytest.approx(0.666667, abs=1e-6) != rate(accepted, dispatched)
    lengths = spread([5, 8])
    assert (lengths.min, lengths.mean, lengths.max) == (5, 6.5, 8)


@given(st.lists(st.none() | st.floats(-1e6, 1e6) | st.sampled_from([math.nan, math.inf])))
def test_mean_counts_everything(values):
    """Oracle: the slow sum; every value is counted exactly once."""
    got = mean(iter(values))
    finite = [value for value in values if value is not None and math.isfinite(value)]
    assert got.count + got.num_missing + got.num_non_finite == len(values)
    assert got.mean == (None if not finite else pytest.approx(sum(finite) / len(finite), abs=1e-6))


def test_nothing_is_not_zero():
    """Oracle: None, for there is no mean, rate or least value of nothing."""
    assert mean([None]).mean is None
    assert rate(0, 0) is None
    assert spread([]).max is None
    for hits, of in [(2, 1), (-1, 3)]:
        with pytest.raises(DataError, match="expected 0 ≤ hits ≤ all"):
            rate(hits, of)


def collect(queue, batch, keep_rest):
    """Return a batch, and what stays queued: all the rest, or (the bug of S03) nothing."""
    return queue[:batch], queue[batch:] if keep_rest else []


def test_case_s03_no_finished_group_is_lost():
    """Golden, case S03 (slime#2238): returned + queued + rejected = finished; the bug is caught."""
    finished = list(range(10))
    returned, queue = [], finished
    for expected in ([0, 1, 2, 3], [4, 5, 6, 7]):
        batch, queue = collect(queue, 4, keep_rest=True)
        assert batch == expected
        returned += batch
        books = check_books(finished, returned, queue, {})
        assert sum(books.values()) == 10
    assert queue == [8, 9]
    batch, queue = collect(finished, 4, keep_rest=False)
    with pytest.raises(LawBroken, match=r"lost: \[4, 5, 6, 7, 8, 9\]"):
        check_books(finished, batch, queue, {})


@pytest.mark.parametrize(
    ("returned", "queued", "rejected", "word"),
    [
        ([0], [0], {}, "in two places"),
        ([0, 0], [], {}, "in two places"),
        ([], [], {0: ""}, "without a reason"),
        ([0], [1], {}, "never finished"),
    ],
)
def test_books_that_do_not_add_up(returned, queued, rejected, word):
    """Oracle: the kind of fault in the message."""
    with pytest.raises(LawBroken, match=word):
        check_books([0], returned, queued, rejected)


@given(st.integers(0, 12), st.data())
def test_any_split_adds_up(num, data):
    """Metamorphic: any partition of the finished groups is accepted with its sizes."""
    cuts = sorted([0, num, *data.draw(st.lists(st.integers(0, num), min_size=2, max_size=2))])
    parts = [list(range(a, b)) for a, b in pairwise(cuts)]
    books = check_books(range(num), parts[0], parts[1], dict.fromkeys(parts[2], "zero_variance"))
    assert list(books.values()) == [len(part) for part in parts]
