"""Measures of k samples against all subsets of k, and intervals over clusters against simulation."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollwright.errors import DataError
from rollwright.evaluate import measures
from rollwright.evaluate.clusters import cluster_mean
from rollwright.evaluate.samples import Sample, ks_up_to, measure, report

# (answer, right, length, cut, score) of each sample; an answer is right or wrong by its name.
SAMPLE = st.tuples(
    st.sampled_from(["a", "b", "c", None]), st.integers(1, 4), st.booleans(), st.sampled_from([0.0, 0.5, 1.0])
)
SAMPLES = st.lists(SAMPLE, min_size=1, max_size=7)
RIGHT = {"a": True, "b": False, "c": True, None: False}


def over_subsets(num: int, k: int, value) -> float:
    """The mean of a value over all subsets of k of n samples."""
    found = [value(chosen) for chosen in itertools.combinations(range(num), k)]
    return math.fsum(found) / len(found)


def taken(chosen, is_right, key) -> float:
    """The chance that the best of the chosen samples is right, equal ones as likely."""
    best = max(key(i) for i in chosen)
    tied = [is_right[i] for i in chosen if key(i) == best]
    return sum(tied) / len(tied)


def vote(chosen, answers) -> float:
    counts = Counter(answers[i] for i in chosen if answers[i] is not None)
    if not counts:
        return 0.0
    most = max(counts.values())
    tied = [RIGHT[answer] for answer, num in counts.items() if num == most]
    return sum(tied) / len(tied)


@given(SAMPLES, st.data())
def test_every_measure_is_its_mean_over_subsets(samples, data) -> None:
    """Oracle: enumeration. Kills: draws with replacement, ties that go to the first, silence that votes."""
    num = len(samples)
    k = data.draw(st.integers(1, num))
    answers = [answer for answer, *_ in samples]
    right = [RIGHT[answer] for answer in answers]
    lengths, cut, scores = ([row[i] for row in samples] for i in (1, 2, 3))
    assert measures.pass_at_k(num, sum(right), k) == pytest.approx(
        over_subsets(num, k, lambda chosen: any(right[i] for i in chosen))
    )
    assert measures.best_of_k(right, scores, k) == pytest.approx(
        over_subsets(num, k, lambda chosen: taken(chosen, right, lambda i: scores[i]))
    )
    assert measures.cons_at_k(answers, right, k) == pytest.approx(
        over_subsets(num, k, lambda chosen: vote(chosen, answers))
    )

    def finish(i: int) -> float:
        return -math.inf if cut[i] else -lengths[i]

    assert measures.first_finish(right, lengths, cut, k) == pytest.approx(
        over_subsets(num, k, lambda chosen: taken(chosen, right, finish))
    )


def test_identities() -> None:
    """Oracle: closed forms. Kills: an area that is not divided, a k that is off by one."""
    for num, right in ((8, 3), (5, 5), (6, 0)):
        assert measures.pass_at_k(num, right, 1) == pytest.approx(right / num)
        assert measures.pass_at_k(num, right, num) == float(right > 0)
        assert measures.auc_at_k(num, right, 1) == pytest.approx(right / num)
    values = [measures.pass_at_k(8, 3, k) for k in (1, 2, 3)]
    assert measures.auc_at_k(8, 3, 3) == pytest.approx((values[0] + 2 * values[1] + values[2]) / 4)
    assert measures.cons_at_k(["a"] * 5, [True] * 5, 3) == 1.0
    assert measures.best_of_k([True, False], [math.inf, -math.inf], 2) == 1.0


def test_what_cannot_be_measured() -> None:
    """Oracle: errors. Kills: a k beyond the samples that gives a number."""
    for call in (
        lambda: measures.pass_at_k(4, 2, 5),
        lambda: measures.pass_at_k(4, 5, 2),
        lambda: measures.pass_at_k(4, 2, 0),
        lambda: measures.best_of_k([True], [math.nan], 1),
        lambda: measures.best_of_k([True], [], 1),
        lambda: measures.cons_at_k(["a", "a"], [True, False], 1),
        lambda: measures.cons_at_k(["a"], [], 1),
        lambda: measures.first_finish([True], [1, 2], [False], 1),
        lambda: cluster_mean([], []),
        lambda: cluster_mean([1.0], ["a", "b"]),
        lambda: measure([], "passs", 1),
    ):
        with pytest.raises(DataError):
            call()


def test_cluster_robust_by_hand() -> None:
    """Oracle: hand; and with one sample a cluster, s/√n. Kills: rollouts counted as independent."""
    found = cluster_mean([1, 1, 0, 0], ["a", "a", "b", "b"])
    assert (found.mean, found.num, found.num_clusters) == (0.5, 4, 2)
    assert found.error == pytest.approx(math.sqrt(2 / 1 * (1 + 1)) / 4)
    assert found.high - found.mean == pytest.approx(12.706 * 0.5, rel=1e-3)
    x = [0.2, 0.9, 0.4, 0.7, 0.1]
    alone = cluster_mean(x, range(5))
    assert alone.error == pytest.approx(np.std(x, ddof=1) / math.sqrt(5))
    unequal = cluster_mean([1, 1, 1, 0], ["a", "a", "a", "b"])
    assert unequal.error == pytest.approx(math.sqrt(2 * (0.75**2 + 0.75**2)) / 4)
    assert cluster_mean([1, 0], ["a", "a"]).error == math.inf


def test_cluster_robust_intervals_cover() -> None:
    """Oracle: simulation: 15 tasks of very unequal size and difficulty; about 95% cover, naive ones far
    less..


    """
    rng = np.random.default_rng(4)
    sizes = np.array([1, 2, 3, 4, 5] * 3)
    covered = naive = 0
    for _ in range(800):
        chances = rng.beta(0.5, 0.5, 15)
        tasks = np.repeat(np.arange(15), sizes)
        y = (rng.random(len(tasks)) < chances[tasks]).astype(float)
        found = cluster_mean(y, tasks.tolist())
        covered += found.low <= 0.5 <= found.high
        naive += abs(y.mean() - 0.5) <= 1.96 * y.std() / math.sqrt(len(y))
    assert 0.925 <= covered / 800 <= 0.985 and naive / 800 < 0.90


def test_a_report_by_hand() -> None:
    """Oracle: hand.

    Kills: samples that were not scored counted as wrong, tasks with too few samples in a k.
    """
    samples = [
        *(Sample("x", right, 10, answer="4" if right else "5", logp=-0.1) for right in (True, True, False)),
        Sample("x", None, 3),
        *(Sample("y", False, 20, is_cut=True) for _ in range(2)),
    ]
    found = report(samples)
    by_name = {(m.name, m.k): m for m in found.measured}
    assert (found.num_samples, found.num_not_scored, found.num_tokens) == (6, 1, 73)
    assert found.average is not None and found.average.mean == pytest.approx(2 / 5)
    assert by_name["pass", 2].mean == pytest.approx((1 + 0) / 2) and by_name["pass", 2].num_tasks == 2
    assert by_name["pass", 3].mean == 1.0 and by_name["pass", 3].num_tasks == 1
    assert by_name["pass", 3].low < 0.5  # one task says little, though all of its three agree
    assert by_name["cons", 3].mean == 1.0 and by_name["cons", 2].mean == pytest.approx(
        (1 / 3 + 2 / 3 / 2) / 2
    )
    assert report([Sample("x", None, 3)]).average is None
    assert [m.name for m in report([Sample("x", True)]).measured] == ["pass", "auc", "best", "first"]
    assert (
        ks_up_to(6) == [1, 2, 4, 6]
        and ks_up_to(8) == [1, 2, 4, 8]
        and ks_up_to(1) == [1]
        and ks_up_to(0) == []
    )
