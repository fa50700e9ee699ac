"""Samples before training against samples after it (catalogue row 233)."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rollwright.errors import DataError
from rollwright.evaluate.exchange import at, curve, exchange, fit, matching

BASE_KS = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
RL_KS = [1, 2, 4, 8, 16]


def power_law(ks: list[int], scale: float, power: float) -> list[float]:
    """Success 1 - scale · k^-power: what a beta distribution of chances gives for large k."""
    return [1 - scale * k**-power for k in ks]


@pytest.mark.parametrize(("alpha", "beta"), ((4.0, 1.0), (3.0, 1.3), (6.0, 0.8)))
def test_a_planted_rule_is_recovered(alpha: float, beta: float) -> None:
    """Oracle: closed form: a curve after training made from the one before it by the rule itself.

    Kills: α and β exchanged, logarithms left out, the rule inverted.
    """
    fine = [round(2 ** (k / 8)) for k in range(8 * 9 + 1)]
    fine = sorted(set(fine))
    base = power_law(fine, 0.8, 0.4)
    rl = [1 - 0.8 * (alpha * k**beta) ** -0.4 for k in RL_KS]
    rule, without = fit(fine, base, RL_KS, rl)
    assert rule.alpha == pytest.approx(alpha, rel=0.03) and rule.beta == pytest.approx(beta, abs=0.02)
    assert without == 0 and rule.deviation < 0.02 and rule.base(4) == pytest.approx(alpha * 4**beta, rel=0.05)


def test_a_policy_that_only_sharpens() -> None:
    """Oracle: simulation: after training each sample is as good as the best of three before.

    1-(1-p)^3k: N_base = 3·N_rl, so α = 3, β = 1 whatever the tasks; the error on tasks left out is near 0.
    Kills: an error measured on the tasks of the fit's own curve, folds that leak.
    """
    rng = np.random.default_rng(2)
    chances = rng.beta(0.4, 4, 400)
    base = [(1024, int(rng.binomial(1024, p))) for p in chances]
    rl = [(64, int(rng.binomial(64, 1 - (1 - p) ** 3))) for p in chances]
    found = exchange(base, rl, BASE_KS, RL_KS, num_bootstrap=60)
    assert found.rule.alpha == pytest.approx(3, rel=0.15) and found.rule.beta == pytest.approx(1, abs=0.08)
    assert found.error < 0.02 and found.low <= found.error + 0.01 and found.out_of_reach == 0


def test_a_policy_that_finds_what_was_out_of_reach() -> None:
    """Oracle: hand: half of the tasks had no chance before, all are solved after.

    Kills: a match beyond the end.
    """
    rng = np.random.default_rng(3)
    base = [(1024, int(rng.binomial(1024, 0.02)) if k % 2 else 0) for k in range(60)]
    rl = [(64, int(rng.binomial(64, 0.15))) for k in range(60)]
    found = exchange(base, rl, BASE_KS, RL_KS, num_bootstrap=20)
    assert found.out_of_reach >= 0.4 and found.error > 0.1


def test_parts_by_hand() -> None:
    """Oracle: hand. Kills: lines in k instead of log k, an extrapolated match."""
    ks, values = [1, 2, 8], [0.1, 0.3, 0.5]
    assert at(ks, values, 4) == pytest.approx(0.4) and at(ks, values, 100) == 0.5
    assert matching(ks, values, 0.4) == pytest.approx(4) and matching(ks, values, 0.3) == pytest.approx(2)
    assert matching(ks, values, 0.51) is None and matching(ks, values, 0.1) is None
    assert matching([1, 2, 4], [0.1, 0.2, 0.2], 0.2) == pytest.approx(2)
    assert curve([(4, 2), (4, 0)], [1, 2]) == pytest.approx([0.25, (1 - 1 / 6) / 2])
    with pytest.raises(DataError, match="at least 2"):
        fit(ks, values, [1, 2], [0.4, 0.9])
    with pytest.raises(DataError, match="equally many"):
        exchange([(4, 1)], [(4, 1)] * 2, [1, 2], [1, 2])
    with pytest.raises(DataError, match="no tasks"):
        curve([], [1])
    assert math.isfinite(at(ks, values, 0.0))
