"""Samples of an evaluation as plain rows, and every measure of them at once."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rollwright.errors import DataError
from rollwright.evaluate import measures
from rollwright.evaluate.clusters import ClusterMean, cluster_mean
from rollwright.lab.statistics import interval


@dataclass(frozen=True, slots=True)
class Sample:
    """One graded sample.

    Args:
        task: its task's id.
        is_right: None where it was not scored.
        num_tokens: sampled tokens.
        is_cut: it was stopped by a limit.
        logp: mean logprob of its sampled tokens; what best-of-k chooses by. None without tokens.
        answer: the answer as votes compare it; None where there is none.
    """

    task: str
    is_right: bool | None
    num_tokens: int = 0
    is_cut: bool = False
    logp: float | None = None
    answer: str | None = None


@dataclass(frozen=True, slots=True)
class Measured:
    """A measure at one k: its mean over tasks, with a 95% interval over tasks.

    ``num_tasks`` are those with at least k scored samples; the others cannot say anything about k.
    """

    name: str
    k: int
    mean: float
    low: float
    high: float
    num_tasks: int


@dataclass(frozen=True, slots=True)
class Report:
    """All measures of one evaluation.

    Args:
        average: avg@n, the mean over all scored samples, with tasks as clusters; None if nothing was scored.
        measured: pass@k, auc@k, best-of-k, first-finish@k and, where there are answers, cons@k.
        num_samples, num_not_scored: samples, and those without a score, which count nowhere else.
        num_tokens: sampled for them.
    """

    average: ClusterMean | None
    measured: tuple[Measured, ...]
    num_samples: int
    num_not_scored: int
    num_tokens: int


def by_task(samples: Sequence[Sample]) -> dict[str, list[Sample]]:
    """Return the scored samples of each task, in the order in which the tasks first come."""
    found: dict[str, list[Sample]] = {}
    for sample in samples:
        if sample.is_right is not None:
            found.setdefault(sample.task, []).append(sample)
    return found


def ks_up_to(num: int) -> list[int]:
    """Return 1, 2, 4, ... below ``num``, and ``num``."""
    return sorted({*(2**i for i in range(num.bit_length()) if 2**i < num), num}) if num else []


def _pass(mine: Sequence[Sample], k: int) -> float:
    return measures.pass_at_k(len(mine), sum(bool(s.is_right) for s in mine), k)


def _auc(mine: Sequence[Sample], k: int) -> float:
    return measures.auc_at_k(len(mine), sum(bool(s.is_right) for s in mine), k)


def _best(mine: Sequence[Sample], k: int) -> float:
    scores = [-math.inf if s.logp is None else s.logp for s in mine]
    return measures.best_of_k([bool(s.is_right) for s in mine], scores, k)


def _first(mine: Sequence[Sample], k: int) -> float:
    right = [bool(s.is_right) for s in mine]
    return measures.first_finish(right, [s.num_tokens for s in mine], [s.is_cut for s in mine], k)


def _cons(mine: Sequence[Sample], k: int) -> float:
    # One answer may be right in one text and wrong in another (its form is graded, too): two answers then.
    answers = [None if s.answer is None else (s.answer, s.is_right) for s in mine]
    return measures.cons_at_k(answers, [bool(s.is_right) for s in mine], k)


MEASURES: dict[str, Callable[[Sequence[Sample], int], float]] = {
    "pass": _pass,
    "auc": _auc,
    "cons": _cons,
    "best": _best,
    "first": _first,
}


def measure(samples: Sequence[Sample], name: str, k: int) -> Measured | None:
    """Return one measure at one k; None where no task has k scored samples.

    Raises:
        DataError: an unknown measure.
    """
    if name not in MEASURES:
        raise DataError(f"measure {name!r}; expected one of {', '.join(MEASURES)}")
    values = [MEASURES[name](mine, k) for mine in by_task(samples).values() if len(mine) >= k]
    if not values:
        return None
    found = bounded(cluster_mean(values, range(len(values))), values)
    return Measured(name, k, found.mean, found.low, found.high, len(values))


def bounded(found: ClusterMean, shares: Sequence[float]) -> ClusterMean:
    """Return a mean of shares with an interval inside [0, 1].

    Shares that are all 0 or 1 have Wilson's interval: where all agree, the plain one has no width.

    Args:
        shares: of each cluster.
    """
    low, high = interval(shares) if set(shares) <= {0.0, 1.0} else (found.low, found.high)
    return dataclasses.replace(found, low=max(0.0, low), high=min(1.0, high))


def report(samples: Sequence[Sample]) -> Report:
    """Return all measures, at k = 1, 2, 4, ... up to the most scored samples of a task."""
    groups = by_task(samples)
    scored = [s for mine in groups.values() for s in mine]
    names = [name for name in MEASURES if name != "cons" or any(s.answer is not None for s in scored)]
    ks = ks_up_to(max((len(mine) for mine in groups.values()), default=0))
    found = [measure(samples, name, k) for name in names for k in ks]
    average = None
    if scored:
        shares = [_pass(mine, 1) for mine in groups.values()]
        values = [float(bool(s.is_right)) for s in scored]
        average = bounded(cluster_mean(values, [s.task for s in scored]), shares)
    return Report(
        average=average,
        measured=tuple(m for m in found if m is not None),
        num_samples=len(samples),
        num_not_scored=len(samples) - len(scored),
        num_tokens=sum(s.num_tokens for s in samples),
    )
