"""How hard a task is, told from its description alone, before any rollout.

A ridge regression from features of the description (how surprising and how uncertain a frozen model finds its
tokens, its length, plain metadata) to the share of right rollouts. What the prediction misses by far points
at the task itself: far easier than it looks (contaminated, or graded too kindly) or far harder (impossible,
or graded wrongly).

Source: "ex ante" difficulty prediction over agent benchmarks (2026). What differs: groups (benchmarks,
families of tasks) are left out whole in cross-validation, so that nothing of a group helps to predict it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rollwright.errors import DataError

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Predictor:
    """A ridge regression on standardised features, its predictions held inside [0, 1].

    Args:
        names: of the features.
        centre, spread: mean and deviation of each feature, [F].
        weights: of the standardised features, [F].
        mean: of the target.
    """

    names: tuple[str, ...]
    centre: tuple[float, ...]
    spread: tuple[float, ...]
    weights: tuple[float, ...]
    mean: float

    def predict(self, features: Array) -> Array:
        """Return the expected share of right rollouts, [N], of features [N, F]."""
        z = (np.asarray(features, float) - np.array(self.centre)) / np.array(self.spread)
        return np.asarray(np.clip(self.mean + z @ np.array(self.weights), 0.0, 1.0))


def fit(features: Array, shares: Array, names: Sequence[str], ridge: float = 1.0) -> Predictor:
    """Fit the regression: weights = (Z'Z + ridge·I)⁻¹ Z'(y - ȳ), Z the standardised features.

    A feature without any spread gets no weight.

    Raises:
        DataError: not one row of features for each share, a name missing, or values that are not finite.
    """
    x, y = np.asarray(features, float), np.asarray(shares, float)
    if x.ndim != 2 or len(x) != len(y) or x.shape[1] != len(names) or not len(y):
        raise DataError(
            f"difficulty: features {x.shape} of {len(names)} names for {len(y)} tasks; expected one row each"
        )
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise DataError("difficulty: a feature or a share is not finite; leave the task out, or the feature")
    centre, spread = x.mean(0), x.std(0)
    spread = np.where(spread > 1e-12, spread, np.inf)
    z = (x - centre) / spread
    weights = np.linalg.solve(z.T @ z + ridge * np.eye(x.shape[1]), z.T @ (y - y.mean()))
    return Predictor(tuple(names), _floats(centre), _floats(spread), _floats(weights), float(y.mean()))


def _floats(values: Array) -> tuple[float, ...]:
    return tuple(float(value) for value in values)


def out_of_group(
    features: Array, shares: Array, groups: Sequence[str], names: Sequence[str], ridge: float = 1.0
) -> Array:
    """Return each task's prediction by the regression on all other groups, [N].

    Raises:
        DataError: a single group, or as `fit`.
    """
    x, y = np.asarray(features, float), np.asarray(shares, float)
    labels = np.array(list(groups))
    if len(labels) != len(y) or len(set(groups)) < 2:
        raise DataError(
            f"difficulty: {len(set(groups))} groups for {len(y)} tasks; expected one each, at least two"
        )
    found = np.empty(len(y))
    for label in dict.fromkeys(groups):
        inside = labels == label
        found[inside] = fit(x[~inside], y[~inside], names, ridge).predict(x[inside])
    return found


@dataclass(frozen=True, slots=True)
class Quality:
    """How good predictions of difficulty are. AUC alone can be high while the predictions are far off.

    Args:
        brier: mean squared error to each rollout's outcome: Σ (p - s)² + s·(1 - s) over tasks, divided by
            them.
        mae: mean absolute error to the shares.
        base_mae: the same of the mean share as the prediction for every task.
        spearman: rank correlation with the shares; None where one side does not vary.
        auc: chance that a right rollout's task was predicted easier than a wrong one's; None without both.
        bias: mean prediction - mean share.
    """

    brier: float
    mae: float
    base_mae: float
    spearman: float | None
    auc: float | None
    bias: float


def quality(predicted: Array, shares: Array) -> Quality:
    """Measure predictions, [N], against observed shares of right rollouts, [N].

    Raises:
        DataError: no tasks, or not one prediction each.
    """
    p, s = np.asarray(predicted, float), np.asarray(shares, float)
    if not len(p) or p.shape != s.shape:
        raise DataError(f"quality: {len(p)} predictions for {len(s)} tasks; expected one each, at least one")
    return Quality(
        brier=float(np.mean((p - s) ** 2 + s * (1 - s))),
        mae=float(np.abs(p - s).mean()),
        base_mae=float(np.abs(s.mean() - s).mean()),
        spearman=_spearman(p, s),
        auc=_auc(p, s),
        bias=float(p.mean() - s.mean()),
    )


def ranks(values: Array) -> Array:
    """Return the ranks from 1, equal values with their mean rank."""
    order = np.argsort(values, kind="stable")
    found = np.empty(len(values))
    found[order] = np.arange(1, len(values) + 1)
    for value in np.unique(values):
        same = values == value
        found[same] = found[same].mean()
    return found


def _spearman(p: Array, s: Array) -> float | None:
    a, b = ranks(p) - (len(p) + 1) / 2, ranks(s) - (len(s) + 1) / 2
    scale = math.sqrt(float(a @ a) * float(b @ b))
    return float(a @ b) / scale if scale else None


def _auc(p: Array, s: Array) -> float | None:
    right, wrong = float(s.sum()), float((1 - s).sum())
    if not right or not wrong:
        return None
    wins = np.sign(p[:, None] - p[None, :]) / 2 + 0.5
    return float(s @ wins @ (1 - s) / (right * wrong))


@dataclass(frozen=True, slots=True)
class Suspect:
    """A task whose share of right rollouts lies far from what it looks like.

    Args:
        task: its id.
        predicted, observed: shares.
        score: (observed - predicted) / deviation of such differences, rollouts' own noise included.
        why: ``"easier than it looks"`` or ``"harder than it looks"``.
    """

    task: str
    predicted: float
    observed: float
    score: float
    why: str


def suspects(
    tasks: Sequence[str], predicted: Array, shares: Array, num_samples: Sequence[int], least: float = 2.5
) -> list[Suspect]:
    """Return the tasks with a large residual, the largest first.

    The deviation of residuals is 1.4826 times their median absolute deviation, so that flawed tasks do not
    hide themselves; a task with few rollouts has the noise of its share on top.

    Args:
        num_samples: rollouts behind each share, ≥ 1.
        least: deviations from which on a task is named.
    """
    p, s = np.asarray(predicted, float), np.asarray(shares, float)
    residuals = s - p
    centre = float(np.median(residuals))
    spread = 1.4826 * float(np.median(np.abs(residuals - centre)))
    noise = p * (1 - p) / np.asarray(num_samples, float)
    scores = (residuals - centre) / np.sqrt(np.maximum(spread**2 + noise, 1e-12))
    words = ["easier than it looks" if score > 0 else "harder than it looks" for score in scores]
    found = [
        Suspect(task, float(p[k]), float(s[k]), float(scores[k]), words[k])
        for k, task in enumerate(tasks)
        if abs(scores[k]) >= least
    ]
    return sorted(found, key=lambda one: -abs(one.score))
