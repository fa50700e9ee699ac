"""How many samples of one policy are worth one of another: N_base ≈ α · N_rl^β.

Two pass@k curves, of the policy before training and of the one after it, are matched at equal success. If the
rule holds on tasks that it was not fitted on, training has made sampling cheaper; it has not found what was
out of reach.

Source: BOPTR of UDF (2026), for pass@k. What differs: curves are unbiased and read between whole k on
straight lines in log k; the transfer error is measured on tasks left out, and its interval resamples tasks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rollwright.errors import DataError
from rollwright.evaluate.measures import pass_at_k
from rollwright.rng import generator

Counts = tuple[int, int]  # samples, right ones


@dataclass(frozen=True, slots=True)
class Rule:
    """N_base = alpha · N_rl^beta.

    Args:
        alpha, beta: the rule; alpha is what one sample after training is worth.
        num: points of the curve that it was fitted on.
        deviation: root of the mean squared residual of log N_base.
    """

    alpha: float
    beta: float
    num: int
    deviation: float

    def base(self, num_rl: float) -> float:
        """Return how many samples before training are worth ``num_rl`` after it."""
        return float(self.alpha * num_rl**self.beta)


@dataclass(frozen=True, slots=True)
class Exchange:
    """The rule and how well it carries over.

    Args:
        rule: fitted on all tasks.
        error: mean |pass@k after training - pass@(α·k^β) before it|, on tasks that it was not fitted on, in
            shares.
        low, high: 95% interval of the error over tasks.
        out_of_reach: share of the ks whose success no number of samples before training reaches.
        ks: the ks of the curve after training.
    """

    rule: Rule
    error: float
    low: float
    high: float
    out_of_reach: float
    ks: tuple[int, ...]


def curve(counts: Sequence[Counts], ks: Sequence[int]) -> list[float]:
    """Return pass@k, mean over tasks, at each k.

    Raises:
        DataError: no tasks, or a task with fewer samples than the largest k.
    """
    if not counts:
        raise DataError("curve: no tasks; expected at least one")
    return [float(np.mean([pass_at_k(num, right, k) for num, right in counts])) for k in ks]


def at(ks: Sequence[int], values: Sequence[float], num: float) -> float:
    """Return a curve's value at any number of samples, on straight lines in log k; flat beyond its ends."""
    return float(np.interp(math.log(max(num, 1e-9)), np.log(ks), values))


def matching(ks: Sequence[int], values: Sequence[float], success: float) -> float | None:
    """Return how many samples reach a success, on straight lines in log k; None where the curve does not.

    Success at or below that of a single sample has no match: less than one sample cannot be drawn.
    """
    if not values[0] < success <= values[-1]:
        return None
    place = next(k for k, value in enumerate(values) if value >= success)
    below, above = values[place - 1], values[place]
    share = (success - below) / (above - below)
    return float(math.exp(math.log(ks[place - 1]) + share * math.log(ks[place] / ks[place - 1])))


def fit(
    base_ks: Sequence[int], base: Sequence[float], rl_ks: Sequence[int], rl: Sequence[float]
) -> tuple[Rule, int]:
    """Fit log N_base = log α + β · log N_rl by least squares over the points that have a match.

    Returns:
        (rule, number of points without a match).

    Raises:
        DataError: fewer than two points have one, so there is no slope.
    """
    pairs = [
        (k, found) for k, value in zip(rl_ks, rl, strict=True) if (found := matching(base_ks, base, value))
    ]
    if len(pairs) < 2:
        raise DataError(
            f"exchange: {len(pairs)} of {len(rl_ks)} points of the curve have a match; expected at least 2. "
            "Take more samples of the policy before training, or more tasks"
        )
    x, y = np.log([k for k, _ in pairs]), np.log([found for _, found in pairs])
    beta, intercept = np.polyfit(x, y, 1)
    deviation = float(np.sqrt(np.mean((y - intercept - beta * x) ** 2)))
    return Rule(float(math.exp(intercept)), float(beta), len(pairs), deviation), len(rl_ks) - len(pairs)


def exchange(
    base: Sequence[Counts],
    rl: Sequence[Counts],
    base_ks: Sequence[int],
    rl_ks: Sequence[int],
    num_folds: int = 5,
    num_bootstrap: int = 200,
    seed: int = 0,
) -> Exchange:
    """Fit the rule, and measure on tasks left out how far it is off.

    Args:
        base, rl: samples and right ones of each task, before and after training, in one order.
        base_ks, rl_ks: rising ks of both curves; no task may have fewer samples.
        num_folds: parts that the tasks are split into; each is left out once.

    Raises:
        DataError: lists of unequal length, fewer tasks than folds, or no fit.
    """
    if len(base) != len(rl) or len(base) < num_folds:
        raise DataError(
            f"exchange: {len(base)} tasks before, {len(rl)} after training; expected equally many, at least "
            f"{num_folds}"
        )
    before = _by_task(base, base_ks)
    after = _by_task(rl, rl_ks)
    rng = generator(seed, "evaluate", "exchange")
    order = rng.permutation(len(base))
    folds = np.array_split(order, num_folds)
    rule, without = fit(base_ks, before.mean(0), rl_ks, after.mean(0))
    rules = []
    for fold in folds:
        rest = np.setdiff1d(order, fold)
        rules.append(fit(base_ks, before[rest].mean(0), rl_ks, after[rest].mean(0))[0])

    def error(chosen: Sequence[NDArray[np.int64]]) -> float:
        # Each fold is predicted by the rule of the others; then the curves of all folds are compared.
        gaps = np.zeros(len(rl_ks))
        for fold, own in zip(chosen, rules, strict=True):
            predicted = [at(base_ks, before[fold].mean(0), own.base(k)) for k in rl_ks]
            gaps += len(fold) * (np.array(predicted) - after[fold].mean(0))
        return float(np.abs(gaps).mean() / len(base))

    samples = [error([rng.choice(fold, len(fold)) for fold in folds]) for _ in range(num_bootstrap)]
    low, high = (float(q) for q in np.quantile(samples, (0.025, 0.975)))
    return Exchange(rule, error(folds), low, high, without / len(rl_ks), tuple(rl_ks))


def _by_task(counts: Sequence[Counts], ks: Sequence[int]) -> NDArray[np.float64]:
    """Return pass@k of each task, [N, K]."""
    return np.array([[pass_at_k(num, right, k) for k in ks] for num, right in counts])
