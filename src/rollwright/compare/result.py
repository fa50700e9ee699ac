"""Everything that a comparison says, as plain values."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rollwright.compare.budget import AXES
from rollwright.compare.contrast import Contrast, contrasts
from rollwright.compare.plan import Plan
from rollwright.compare.reading import Run, area, at_amount, read_run
from rollwright.compare.sequential import SequentialTest
from rollwright.compare.survival import Reach, ToTarget, first_reach, restricted_mean, to_target
from rollwright.errors import RollwrightError
from rollwright.lab.student import student_quantile
from rollwright.ledger import Fate, Unit
from rollwright.rng import generator

_GRID = 33
_BOOTSTRAP = 1000


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


@dataclass(frozen=True, slots=True)
class ArmResult:
    """One arm, over its finished runs.

    Args:
        label, num_done: which, and how many of its runs are done.
        failed: seeds without a finished run, and why.
        start, final: success before training, and at the budget.
        greedy: success of greedy decoding at the end.
        area: mean success over the budget.
        curves: against every axis, for every k.
        to_target: what the target takes, by axis.
        ratio: of the restricted mean to the baseline's on the budget's axis, with a paired bootstrap
            interval; below 1 is quicker.
        spent: of every unit.
        fates: share of the sampled tokens by fate.
        updates: versions published.
        selection: what was sampled against what was trained.
    """

    label: str
    num_done: int
    failed: dict[int, str]
    start: Band | None
    final: Band | None
    greedy: Band | None
    area: Band | None
    curves: tuple[Curve, ...]
    to_target: dict[str, ToTarget]
    ratio: tuple[float, float, float] | None
    spent: dict[str, float]
    fates: dict[str, Band]
    updates: float | None
    selection: tuple[Selection, ...]


@dataclass(frozen=True, slots=True)
class Result:
    """A comparison.

    Args:
        plan: what was planned.
        target: success that "to target" is about.
        is_target_chosen: nobody gave it: it lies halfway from the start to the best arm's end.
        arms: one result each, the baseline first.
        contrasts: every other arm against the baseline.
        runs: the runs behind it.
        alpha: the chance of any false finding.
    """

    plan: Plan
    target: float | None
    is_target_chosen: bool
    arms: tuple[ArmResult, ...]
    contrasts: tuple[Contrast, ...]
    runs: tuple[Run, ...]
    alpha: float


def band(values: Sequence[float]) -> Band | None:
    """Return the mean over seeds with Student's interval; None without values."""
    if not values:
        return None
    num, mean = len(values), math.fsum(values) / len(values)
    if num == 1:
        return Band(mean, None, None, 1)
    half = student_quantile(0.975, num - 1) * statistics.stdev(values) / math.sqrt(num)
    return Band(mean, mean - half, mean + half, num)


def read_runs(plan: Plan, out: Path) -> list[Run]:
    """Return every run of the plan as it is now."""
    return [
        read_run(plan.folder(out, arm, seed), arm.label, seed, plan.budget.unit, plan.points())
        for arm in plan.arms
        for seed in plan.seeds
    ]


def outcome(plan: Plan, run: Run) -> float | None:
    """Return a finished run's success at the budget; None where it has none."""
    if run.state != "done" or not run.points:
        return None
    return at_amount(run.points, plan.budget.unit, plan.budget.amount)


def outcomes(plan: Plan, runs: Sequence[Run]) -> dict[str, dict[int, float]]:
    """Return success at the budget by label and seed, of the runs that have one."""
    found: dict[str, dict[int, float]] = {arm.label: {} for arm in plan.arms}
    for run in runs:
        value = outcome(plan, run)
        if value is not None:
            found[run.label][run.seed] = value
    return found


def floor_of(runs: Sequence[Run]) -> float:
    """Return what one rollout of an evaluation is worth: pairs may agree on less by chance."""
    nums = [sum(point.scored) for run in runs for point in run.points[-1:] if sum(point.scored)]
    return 1 / min(nums) if nums else 0.0


def result_of(
    plan: Plan,
    runs: Sequence[Run],
    test: SequentialTest,
    target: float | None = None,
    failed: Mapping[tuple[str, int], str] | None = None,
    has_bias: bool = True,
) -> Result:
    """Take the runs of a comparison together.

    Args:
        target: success to reach; None chooses one.
        failed: why runs failed, by label and seed.
        has_bias: read the journals for what was sampled against what was trained, too.
    """
    done = {
        arm.label: [r for r in runs if r.label == arm.label and r.state == "done" and r.points]
        for arm in plan.arms
    }
    is_chosen = target is None
    target = _target(plan, done) if target is None else target
    found = outcomes(plan, runs)
    baseline = plan.arms[0].label
    compared = contrasts(found, baseline, plan.seeds, test, floor_of(runs), budget=str(plan.budget))
    reaches = {} if target is None else {label: _reaches(mine, target) for label, mine in done.items()}
    horizons = _horizons(plan, done)
    why = failed or {}
    arms = []
    for arm in plan.arms:
        mine = done[arm.label]
        missing = {
            r.seed: why.get((arm.label, r.seed), r.reason)
            for r in runs
            if r.label == arm.label and r not in mine
        }
        taken = reaches.get(arm.label, {})
        arms.append(
            ArmResult(
                label=arm.label,
                num_done=len(mine),
                failed=missing,
                start=band([r.points[0].success for r in mine]),
                final=band(list(found[arm.label].values())),
                greedy=band([r.points[-1].greedy for r in mine if r.points[-1].greedy is not None]),
                area=band([area(r.points, plan.budget.unit, plan.budget.amount) for r in mine]),
                curves=_curves(mine),
                to_target={
                    axis: to_target(list(by_seed.values()), horizons[axis], _BOOTSTRAP)
                    for axis, by_seed in taken.items()
                    if horizons.get(axis)
                },
                ratio=_ratio(reaches, arm.label, baseline, plan.budget.unit, horizons),
                spent=_mean_spent(mine),
                fates=_fates(mine),
                updates=statistics.fmean(r.num_updates for r in mine) if mine else None,
                selection=_selection(mine) if has_bias else (),
            )
        )
    return Result(plan, target, is_chosen, tuple(arms), tuple(compared), tuple(runs), test.alpha)


def _target(plan: Plan, done: Mapping[str, Sequence[Run]]) -> float | None:
    finals = [statistics.fmean(outcome(plan, r) or 0.0 for r in mine) for mine in done.values() if mine]
    starts = [r.points[0].success for mine in done.values() for r in mine]
    return (statistics.fmean(starts) + max(finals)) / 2 if finals else None


def _reaches(mine: Sequence[Run], target: float) -> dict[str, dict[int, Reach]]:
    return {
        axis: {
            r.seed: first_reach([p.spent[axis] for p in r.points], [p.success for p in r.points], target)
            for r in mine
        }
        for axis in AXES
        if mine
    }


def _horizons(plan: Plan, done: Mapping[str, Sequence[Run]]) -> dict[str, float]:
    """Return by axis what every run could spend: up to there nothing is censored."""
    runs = [r for mine in done.values() for r in mine]
    found = {axis: min((r.points[-1].spent[axis] for r in runs), default=0.0) for axis in AXES}
    return {**found, plan.budget.unit: min(plan.budget.amount, found[plan.budget.unit])} if runs else found


def _curves(mine: Sequence[Run]) -> tuple[Curve, ...]:
    ks = sorted(
        set.intersection(*(set(p.pass_at) for r in mine for p in r.points), {*range(1, 1 << 16)})
        if mine
        else ()
    )
    curves = []
    for axis in AXES:
        end = min((r.points[-1].spent[axis] for r in mine), default=0.0)
        if end <= 0:
            continue
        amounts = tuple(float(x) for x in np.linspace(0, end, _GRID))
        for k in ks or ([1] if mine else []):
            values = [[at_amount(r.points, axis, x, k) for r in mine] for x in amounts]
            bands = tuple(found for column in values if (found := band(column)) is not None)
            curves.append(Curve(axis, k, amounts, bands))
    return tuple(curves)


def _ratio(
    reaches: Mapping[str, Mapping[str, Mapping[int, Reach]]],
    label: str,
    baseline: str,
    axis: str,
    horizons: Mapping[str, float],
) -> tuple[float, float, float] | None:
    """Return (ratio, low, high) of the restricted means over the seeds that both arms have."""
    if label == baseline or axis not in reaches.get(label, {}) or axis not in reaches.get(baseline, {}):
        return None
    mine, theirs, horizon = reaches[label][axis], reaches[baseline][axis], horizons[axis]
    seeds = [seed for seed in mine if seed in theirs]
    if not seeds or not horizon:
        return None

    def ratio(chosen: Sequence[int]) -> float:
        below = restricted_mean([theirs[seed] for seed in chosen], horizon)
        return restricted_mean([mine[seed] for seed in chosen], horizon) / below if below else math.nan

    rng = generator(0, "compare", "ratio")
    samples = [ratio([seeds[k] for k in rng.integers(0, len(seeds), len(seeds))]) for _ in range(_BOOTSTRAP)]
    found = (ratio(seeds), *(float(q) for q in np.nanquantile(samples, (0.025, 0.975))))
    return None if math.isnan(found[0]) else (found[0], found[1], found[2])


def _mean_spent(mine: Sequence[Run]) -> dict[str, float]:
    return {unit.value: statistics.fmean(r.spent[unit.value] for r in mine) for unit in Unit} if mine else {}


def _fates(mine: Sequence[Run]) -> dict[str, Band]:
    found = {}
    for fate in Fate:
        shares = band([r.fates[fate.value] / total for r in mine if (total := sum(r.fates.values()))])
        if shares is not None:
            found[fate.value] = shares
    return found


def _selection(mine: Sequence[Run]) -> tuple[Selection, ...]:
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
