"""Difficulty told before any rollout (catalogue row 246)."""

from __future__ import annotations

import numpy as np
import pytest

from rollwright.errors import DataError
from rollwright.evaluate.difficulty import fit, out_of_group, quality, ranks, suspects

NAMES = ("entropy", "length", "noise")


def tasks(seed: int, num: int = 200) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Features, chances, and families of tasks: harder with entropy and length."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((num, 3))
    chances = np.clip(0.5 - 0.18 * x[:, 0] - 0.08 * x[:, 1], 0.02, 0.98)
    return x, chances, [f"family {k % 5}" for k in range(num)]


def test_ridge_by_hand() -> None:
    """Oracle: closed form for one standardised feature, w = z·y/(n + ridge). Kills: a penalised mean."""
    x, y = np.array([[1.0], [3.0]]), np.array([0.2, 0.6])
    found = fit(x, y, ["f"], ridge=2.0)
    assert found.weights[0] == pytest.approx(0.4 / (2 + 2)) and found.mean == pytest.approx(0.4)
    assert found.predict(np.array([[2.0], [300.0]])) == pytest.approx([0.4, 1.0])
    flat = fit(np.array([[1.0, 5.0], [3.0, 5.0]]), y, ["f", "flat"], ridge=1e-9)
    assert flat.weights[1] == 0.0 and flat.predict(np.array([[3.0, 99.0]])) == pytest.approx([0.6])
    for given in ((x, y[:1], ["f"]), (x, y, ["f", "g"]), (np.array([[np.nan], [1.0]]), y, ["f"])):
        with pytest.raises(DataError, match="difficulty"):
            fit(*given)


def test_planted_flaws_are_found() -> None:
    """Oracle: planted: 6 leaked and 6 impossible tasks of 200; at least 10 of the 12 largest residuals are
    theirs.

    Kills: residuals that rank by chance (base rate 6%), a deviation that the flaws themselves inflate.
    """
    x, chances, groups = tasks(1)
    rng = np.random.default_rng(2)
    leaked = [k for k in np.argsort(chances)[:60:10]]
    broken = [k for k in np.argsort(-chances)[:60:10]]
    chances[leaked], chances[broken] = 1.0, 0.0
    shares = rng.binomial(16, chances) / 16
    names = [f"task {k}" for k in range(200)]
    predicted = out_of_group(x, shares, groups, NAMES)
    found = suspects(names, predicted, shares, [16] * 200)
    planted = {f"task {k}": word for ks, word in ((leaked, "easier"), (broken, "harder")) for k in ks}
    assert sum(one.task in planted for one in found[:12]) >= 10
    assert all(one.why.startswith(planted[one.task]) for one in found[:10] if one.task in planted)
    clean = rng.binomial(16, tasks(1)[1]) / 16
    alarms = suspects(names, out_of_group(x, clean, groups, NAMES), clean, [16] * 200)
    assert len(alarms) <= 10


def test_a_good_order_can_be_a_bad_estimate() -> None:
    """Oracle: constructed: predictions squeezed to the top keep AUC and ranks, and are far off.

    Kills: a report that only looks at AUC.
    """
    rng = np.random.default_rng(3)
    shares = rng.beta(1, 1, 300)
    good, squeezed = quality(shares, shares), quality(0.9 + shares / 10, shares)
    assert squeezed.auc == pytest.approx(good.auc) and squeezed.spearman == pytest.approx(1.0)
    assert squeezed.brier > good.brier + 0.1 and squeezed.mae > squeezed.base_mae and squeezed.bias > 0.3
    assert good.mae == 0 and good.brier == pytest.approx(np.mean(shares * (1 - shares)))


def test_quality_by_hand() -> None:
    """Oracle: enumeration over pairs of outcomes, and hand. Kills: ties that count as lost."""
    predicted, shares = np.array([0.2, 0.2, 0.8]), np.array([0.0, 0.5, 1.0])
    found = quality(predicted, shares)
    rollouts = [(0.2, 0), (0.2, 0), (0.2, 0), (0.2, 1), (0.8, 1), (0.8, 1)]
    pairs = [(a > b) + 0.5 * (a == b) for a, right in rollouts if right for b, other in rollouts if not other]
    assert found.auc == pytest.approx(np.mean(pairs))
    assert found.brier == pytest.approx(np.mean([(p - y) ** 2 for p, y in rollouts]))
    assert found.spearman == pytest.approx(np.corrcoef([1.5, 1.5, 3], [1, 2, 3])[0, 1])
    assert list(ranks(np.array([5.0, 1.0, 5.0, 2.0]))) == [3.5, 1, 3.5, 2]
    same = quality(np.array([0.5, 0.5]), np.array([1.0, 1.0]))
    assert same.auc is None and same.spearman is None
    with pytest.raises(DataError):
        quality(np.zeros(0), np.zeros(0))


def test_a_group_is_left_out_whole() -> None:
    """Oracle: metamorphic: shares of a group do not move its own predictions.

    Kills: a leak within a group.
    """
    x, chances, groups = tasks(4, 100)
    mine = np.array([group == "family 2" for group in groups])
    changed = np.where(mine, 1 - chances, chances)
    before, after = (out_of_group(x, shares, groups, NAMES) for shares in (chances, changed))
    assert before[mine] == pytest.approx(after[mine]) and not np.allclose(before[~mine], after[~mine])
    assert quality(before, chances).spearman > 0.9
    with pytest.raises(DataError, match="at least two"):
        out_of_group(x, chances, ["one"] * 100, NAMES)
