"""The sequential test: its formula, its errors under the null at every look, its intervals, Holm's rule."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rollwright.compare.contrast import contrasts
from rollwright.compare.power import detectable, log_e_paths, num_more
from rollwright.compare.sequential import SequentialTest, holm
from rollwright.errors import ConfigError, DataError
from rollwright.lab.student import student_cdf, student_quantile

TEST = SequentialTest()


def integrated(x: np.ndarray, g: float) -> float:
    """The same evidence by integration: effect δ ~ N(0, g) and σ with density 1/σ, against δ = 0.

    p(x | δ) = ∫ Π N(xᵢ; δσ, σ²) dσ/σ, by trapezia on a fine grid of log σ and δ.
    """
    log_s = np.linspace(-7, 7, 1001)
    sigma = np.exp(log_s)

    def marginal(delta: np.ndarray) -> np.ndarray:
        z = x[:, None, None] / sigma[None, :, None] - delta[None, None, :]
        log_p = -0.5 * (z * z).sum(0) - len(x) * log_s[:, None]
        return np.trapezoid(np.exp(log_p), log_s, axis=0)

    delta = np.linspace(-8, 8, 801) * math.sqrt(g)
    prior = np.exp(-0.5 * delta * delta / g) / math.sqrt(2 * math.pi * g)
    return float(np.trapezoid(marginal(delta) * prior, delta) / marginal(np.zeros(1))[0])


@pytest.mark.parametrize("g", (0.5, 3.0))
def test_the_closed_form_is_the_integral(g: float) -> None:
    """Oracle: slow reference, the integral over effect and scale. Kills: n/2 for ν/2, a factor of g."""
    x = np.array([0.4, 1.1, -0.2, 0.9, 0.6])
    mean, squares = x.mean(), ((x - x.mean()) ** 2).sum()
    found = SequentialTest(g=g).log_e(len(x), mean, squares)
    assert found == pytest.approx(math.log(integrated(x, g)), abs=2e-3)


def test_the_interval_is_where_the_evidence_is_small() -> None:
    """Oracle: metamorphic: E of the pairs moved by an end of the interval is 1/α.

    Kills: a wrong inversion.
    """
    rng = np.random.default_rng(1)
    x = 0.3 + rng.standard_normal(9)
    squares = ((x - x.mean()) ** 2).sum()
    for alpha in (0.05, 0.2):
        test = SequentialTest(alpha)
        half = test.half_width(9, squares)
        for end in (x.mean() - half, x.mean() + half):
            assert test.log_e(9, x.mean() - end, squares) == pytest.approx(-math.log(alpha))
    assert math.isinf(TEST.half_width(2, squares)) and math.isinf(TEST.half_width(1, 0.0))


@pytest.mark.parametrize("draw", ("normal", "uniform", "laplace", "coarse"))
def test_looking_after_every_pair_makes_no_more_errors(draw: str) -> None:
    """Oracle: simulation, 4,000 nulls with 60 looks each: at most α ever reject, within 3 standard errors.

    Uniform, Laplace and coarse differences (of 40 tries, with a floor of one try) are not normal.
    Kills: a t-test at each look (rejects about a third), an e-value without the prior's penalty.
    """
    rng = np.random.default_rng(7)
    size, floor = (4000, 60), 0.0
    if draw == "coarse":
        x, floor = (rng.binomial(40, 0.5, size) - rng.binomial(40, 0.5, size)) / 40, 1 / 40
    else:
        x = {"normal": rng.normal, "uniform": rng.uniform, "laplace": rng.laplace}[draw](*_args(draw), size)
    if floor:
        wrong = np.mean([TEST.is_found(TEST.looks(row[:25], floor)[-1]) for row in x[:1500]])
        num = 1500
    else:
        wrong, num = (log_e_paths(TEST, x) >= math.log(20)).any(axis=1).mean(), 4000
    assert wrong <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / num)
    t = x.mean(1) / x.std(1, ddof=1) * math.sqrt(60)
    assert 0.03 < (np.abs(t) > student_quantile(0.975, 59)).mean() < 0.07  # the data is a null


def _args(draw: str) -> tuple[float, float]:
    return (-1.0, 1.0) if draw == "uniform" else (0.0, 1.0)


def test_the_intervals_cover_at_all_looks_at_once() -> None:
    """Oracle: simulation: the mean lies in every interval of a path with at least 95%.

    Kills: a narrow one.
    """
    rng = np.random.default_rng(3)
    missed = 0
    for _ in range(600):
        looks = TEST.looks(2.0 + rng.standard_normal(40))
        missed += any(not look.low <= 2.0 <= look.high for look in looks)
        assert looks[-1].high - looks[-1].low < 1.6
    assert missed / 600 <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 600)


def test_looks_by_hand() -> None:
    """Oracle: hand. Kills: a running mean or deviation that is off, evidence that can be lost again."""
    looks = TEST.looks([0.1, 0.3, 0.2])
    assert [look.num for look in looks] == [1, 2, 3]
    assert [look.mean for look in looks] == pytest.approx([0.1, 0.2, 0.2])
    assert looks[0].deviation is None and looks[2].deviation == pytest.approx(0.1)
    strong = TEST.looks([*(0.1 + 0.001 * k for k in range(6)), -3.0])
    assert TEST.is_found(strong[5]) and TEST.is_found(strong[6]) and strong[6].log_e < strong[5].log_e
    assert strong[6].p_value == strong[5].p_value


def test_equal_pairs_are_no_evidence_and_a_floor_keeps_coarse_ones_from_being_proof() -> None:
    """Oracle: hand: three equal coarse differences happen by chance. Kills: s = 0 taken as infinite t."""
    same = TEST.looks([0.0] * 30)[-1]
    assert not TEST.is_found(same) and same.log_e < 0 and (same.low, same.high) == (0.0, 0.0)
    assert TEST.is_found(TEST.looks([0.05] * 3)[-1])
    assert not TEST.is_found(TEST.looks([0.05] * 3, floor=0.05)[-1])
    with pytest.raises(DataError, match="pair 2"):
        TEST.looks([0.1, math.nan])
    for given in ({"alpha": 0.0}, {"alpha": 1.0}, {"g": 0.0}):
        with pytest.raises(ConfigError):
            SequentialTest(**given)


def test_paths_are_looks() -> None:
    """Oracle: slow reference, pair by pair. Kills: the fast form that differs, a start that is forgotten."""
    x = np.random.default_rng(5).standard_normal((3, 12)) + 0.5
    for row in x:
        slow = [look.log_e for look in TEST.looks(row)]
        assert log_e_paths(TEST, row[None])[0] == pytest.approx(slow)
        assert log_e_paths(TEST, row[None, 4:], list(row[:4]))[0] == pytest.approx(slow[4:])


def test_holm_by_hand() -> None:
    """Oracle: hand. Kills: Bonferroni for all, an order that is not kept."""
    assert holm([0.03, 0.01, 0.5]) == pytest.approx([0.06, 0.03, 0.5])
    assert holm([0.01, 0.011]) == pytest.approx([0.02, 0.02])
    assert holm([]) == []


def test_so_many_more_pairs_find_it_so_often() -> None:
    """Oracle: simulation with other randomness: `num_more` pairs reach 80%, 30% fewer do not.

    Kills: power of a single look at a t-test, pairs counted from zero again.
    """
    rng = np.random.default_rng(11)
    start = [0.02, 0.11, -0.04, 0.08, 0.03]
    num = num_more(TEST, start)
    assert num is not None and num > 4
    mean, sd = np.mean(start), np.std(start, ddof=1)

    def power(more: int) -> float:
        x = mean + sd * rng.standard_normal((4000, more))
        return float((log_e_paths(TEST, x, start) >= math.log(20)).any(axis=1).mean())

    assert power(num) == pytest.approx(0.8, abs=0.04)
    assert power(int(num * 0.7)) < 0.74
    assert num_more(TEST, [0.1]) is None and num_more(TEST, [0.1, -0.1]) is None
    assert num_more(TEST, [0.1, -0.0999]) is None  # more than the most


def test_what_so_many_pairs_find() -> None:
    """Oracle: simulation with other randomness. Kills: a bisection that runs the wrong way."""
    rng = np.random.default_rng(13)
    for num in (4, 10, 40):
        effect = detectable(TEST, num)
        assert effect is not None
        found = (log_e_paths(TEST, rng.standard_normal((4000, num)) + effect) >= math.log(20)).any(axis=1)
        assert found.mean() == pytest.approx(0.8, abs=0.04)
    assert detectable(TEST, 2) is None


def test_many_arms_share_the_errors() -> None:
    """Oracle: simulation: five arms that equal the baseline, any of them found in at most 5%.

    Kills: no Holm.
    """
    rng = np.random.default_rng(17)
    seeds, wrong, alone = range(12), 0, 0
    for _ in range(300):
        base = rng.standard_normal(12)
        outcomes = {"base": dict(enumerate(base))}
        for k in range(5):
            outcomes[f"arm {k}"] = dict(enumerate(base + 0.5 * rng.standard_normal(12)))
        found = [TEST.looks([outcomes[f"arm {k}"][s] - base[s] for s in seeds])[-1] for k in range(5)]
        alone += any(TEST.is_found(look) for look in found)
        p_values = holm([look.p_value for look in found])
        wrong += min(p_values) <= TEST.alpha
    assert wrong / 300 <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 300)
    assert alone > wrong


def test_contrasts_by_hand() -> None:
    """Oracle: hand. Kills: unpaired differences, a later pair taken before an earlier one that still runs."""
    base = {0: 0.50, 1: 0.60, 2: 0.55, 3: 0.40}
    better = {seed: value + 0.15 + 0.001 * seed for seed, value in base.items()}
    same = {0: 0.51, 1: 0.58, 3: 0.41}
    found = contrasts({"base": base, "better": better, "same": same}, "base", (0, 1, 2, 3), TEST, 1e-3)
    assert [one.label for one in found] == ["better", "same"]
    assert found[0].is_found and found[0].found_at == 4 and "better is better than base" in found[0].sentence
    assert found[0].differences == pytest.approx((0.15, 0.151, 0.152, 0.153)) and found[0].num_more is None
    assert found[1].seeds == (0, 1, 3) and not found[1].is_found
    assert "3 seeds cannot tell same from base" in found[1].sentence and "more would" in found[1].sentence
    still = contrasts(
        {"base": base, "same": same}, "base", (0, 1, 2, 3), TEST, 1e-3, {"same": frozenset({1})}
    )
    assert still[0].seeds == (0,) and "One pair says nothing" in still[0].sentence
    worse = contrasts({"base": better, "arm": base}, "base", (0, 1, 2, 3), TEST, 1e-3)
    assert "worse than base" in worse[0].sentence
    equal = contrasts({"base": base, "arm": base}, "base", (0, 1, 2, 3), TEST, 1e-3)
    assert "the arms do the same" in equal[0].sentence and not equal[0].is_found
    assert contrasts({"base": base, "arm": {}}, "base", (0,), TEST, 0.0)[0].p_value is None


def test_student() -> None:
    """Oracle: tables of Student's distribution. Kills: one tail for two, degrees off by one."""
    for p, df, value in ((0.975, 4, 2.776), (0.975, 1, 12.706), (0.95, 10, 1.812), (0.975, 1e6, 1.95996)):
        assert student_quantile(p, df) == pytest.approx(value, abs=6e-4)
        assert student_cdf(value, df) == pytest.approx(p, abs=1e-4)
    assert student_quantile(0.025, 4) == -student_quantile(0.975, 4) and student_quantile(0.5, 3) < 1e-9
    with pytest.raises(DataError):
        student_quantile(1.0, 4)
