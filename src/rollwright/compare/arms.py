"""What the runs of one arm are together: mean over seeds, with intervals."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rollwright.compare.budget import AXES
from rollwright.compare.reading import Run, at_amount
from rollwright.errors import RollwrightError
from rollwright.lab.student import student_quantile
from rollwright.ledger import Fate, Unit

_GRID = 33


@dataclass(frozen=True, slots=True)
class Band:
    """A mean over seeds with its 95% interval (Student's t); no interval from one seed."""

    mean: float
    low: float | None
    high: float | None
    num: int


@dataclass(frozen=True, slots=True)
class Curve:
    """Success against one axis: pass@k at each amount, mean over seeds."""

    axis: str
    k: int
    amounts: tuple[float, ...]
    bands: tuple[Band, ...]


@dataclass(frozen=True, slots=True)
class Selection:
    """What an arm's selection did, mean over seeds (`rollwright.lab.bias`); None where nothing is known.

    Args:
        measure: ``"length"``, ``"length at the close"``, ``"seconds"``, ``"reward"``.
        mean_sampled, mean_trained: of the sampled and of the trained rollouts.
        distance: Kolmogorov-Smirnov between both.
        num_suspect: runs in which a blind choice would lie as far off with p < 0.05.
        num: runs.
    """

    measure: str
    mean_sampled: float | None
    mean_trained: float | None
    distance: float | None
    num_suspect: int
    num: int


def band(values: Sequence[float]) -> Band | None:
    """Return the mean over seeds with Student's interval; None without values."""
    if not values:
        return None
    num, mean = len(values), math.fsum(values) / len(values)
    if num == 1:
        return Band(mean, None, None, 1)
    half = student_quantile(0.975, num - 1) * statistics.stdev(values) / math.sqrt(num)
    return Band(mean, mean - half, mean + half, num)


def curves(mine: Sequence[Run]) -> tuple[Curve, ...]:
    """Return the curves of every axis and every k that all runs have."""
    if not mine:
        return ()
    ks = sorted(set.intersection(*(set(point.pass_at) for run in mine for point in run.points))) or [1]
    curves = []
    for axis in AXES:
        end = min(run.points[-1].spent[axis] for run in mine)
        if end <= 0:
            continue
        amounts = tuple(float(x) for x in np.linspace(0, end, _GRID))
        for k in ks:
            values = [[at_amount(run.points, axis, x, k) for run in mine] for x in amounts]
            bands = tuple(found for column in values if (found := band(column)) is not None)
            curves.append(Curve(axis, k, amounts, bands))
    return tuple(curves)


def mean_spent(mine: Sequence[Run]) -> dict[str, float]:
    """Return what a run spent of every unit, on average."""
    return {unit.value: statistics.fmean(r.spent[unit.value] for r in mine) for unit in Unit} if mine else {}


def fates(mine: Sequence[Run]) -> dict[str, Band]:
    """Return the share of the sampled tokens of each fate."""
    found = {}
    for fate in Fate:
        shares = band([r.fates[fate.value] / total for r in mine if (total := sum(r.fates.values()))])
        if shares is not None:
            found[fate.value] = shares
    return found


def selection(mine: Sequence[Run]) -> tuple[Selection, ...]:
    """Return what was sampled against what was trained, from the journals that are there."""
    from rollwright.lab.bias import report

    rows: dict[str, list[tuple[float | None, float | None, float | None, float | None]]] = {}
    for run in mine:
        try:
            compared = report(run.path, 200).comparisons
        except RollwrightError:  # a journal that was thrown away: the curves stand without it
            continue
        for one in compared:
            values = (one.mean_sampled, one.mean_trained, one.distance, one.p_value)
            rows.setdefault(one.measure, []).append(values)
    return tuple(
        Selection(
            measure,
            _mean([row[0] for row in found]),
            _mean([row[1] for row in found]),
            _mean([row[2] for row in found]),
            num_suspect=sum(row[3] is not None and row[3] < 0.05 for row in found),
            num=len(found),
        )
        for measure, found in rows.items()
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None
