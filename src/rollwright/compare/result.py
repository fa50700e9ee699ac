"""Everything that a comparison says, as plain values."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rollwright.compare import arms
from rollwright.compare.arms import Band, Curve, Selection, band
from rollwright.compare.budget import AXES
from rollwright.compare.contrast import Contrast, contrasts
from rollwright.compare.plan import Plan
from rollwright.compare.reading import Run, area, at_amount, read_run
from rollwright.compare.sequential import SequentialTest
from rollwright.compare.survival import Ratio, Reach, ToTarget, first_reach, ratio_of_means, to_target

_GRID = 33
_BOOTSTRAP = 1000


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
    ratio: Ratio | None
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
    results = []
    for arm in plan.arms:
        mine = done[arm.label]
        missing = {
            r.seed: why.get((arm.label, r.seed), r.reason)
            for r in runs
            if r.label == arm.label and r not in mine
        }
        taken = reaches.get(arm.label, {})
        results.append(
            ArmResult(
                label=arm.label,
                num_done=len(mine),
                failed=missing,
                start=band([r.points[0].success for r in mine]),
                final=band(list(found[arm.label].values())),
                greedy=band([r.points[-1].greedy for r in mine if r.points[-1].greedy is not None]),
                area=band([area(r.points, plan.budget.unit, plan.budget.amount) for r in mine]),
                curves=arms.curves(mine),
                to_target={
                    axis: to_target(list(by_seed.values()), horizons[axis], _BOOTSTRAP)
                    for axis, by_seed in taken.items()
                    if horizons.get(axis)
                },
                ratio=_ratio(reaches, arm.label, baseline, plan.budget.unit, horizons),
                spent=arms.mean_spent(mine),
                fates=arms.fates(mine),
                updates=statistics.fmean(r.num_updates for r in mine) if mine else None,
                selection=arms.selection(mine) if has_bias else (),
            )
        )
    return Result(plan, target, is_chosen, tuple(results), tuple(compared), tuple(runs), test.alpha)


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


def _ratio(
    reaches: Mapping[str, Mapping[str, Mapping[int, Reach]]],
    label: str,
    baseline: str,
    axis: str,
    horizons: Mapping[str, float],
) -> Ratio | None:
    """Return (ratio, low, high) of the restricted means over the seeds that both arms have."""
    if label == baseline or axis not in reaches.get(label, {}) or axis not in reaches.get(baseline, {}):
        return None
    mine, theirs, horizon = reaches[label][axis], reaches[baseline][axis], horizons[axis]
    seeds = [seed for seed in mine if seed in theirs]
    if not seeds or not horizon:
        return None
    return ratio_of_means(
        [mine[seed] for seed in seeds], [theirs[seed] for seed in seeds], horizon, _BOOTSTRAP
    )
