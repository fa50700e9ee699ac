"""Read a run of a comparison: where it stood at each evaluation, on every axis."""

from __future__ import annotations

import bisect
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rollwright.compare.budget import AXES
from rollwright.compare.plan import DONE
from rollwright.errors import DataError
from rollwright.evaluate.measures import pass_at_k
from rollwright.ledger import Fate, Unit
from rollwright.store.layout import CONFIG, METRICS
from rollwright.store.rows import load_rows

Row = dict[str, Any]
_OPEN = "it has not come to its end"


@dataclass(frozen=True, slots=True)
class Point:
    """One evaluation on held-out tasks.

    Args:
        version: updates before it.
        spent: by axis, without what measuring took.
        success: mean over tasks, sampled at temperature 1.
        greedy: the same, greedy; None where nothing was scored.
        pass_at: pass@k by k, from the samples of each task.
        right, scored: by task.
    """

    version: int
    spent: dict[str, float]
    success: float
    greedy: float | None
    pass_at: dict[int, float]
    right: tuple[int, ...]
    scored: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a comparison.

    Args:
        label, seed: which.
        path: its folder.
        state: ``"done"``, ``"short"`` (it ended, but not because its budget was spent), ``"unfinished"`` or
            ``"missing"``.
        reason: why it ended.
        points: evaluations, as far as it came.
        spent: of every unit of the ledger, at its last step.
        fates: sampled tokens by fate, at its last step.
        num_updates: versions that it published.
    """

    label: str
    seed: int
    path: Path
    state: str
    reason: str
    points: tuple[Point, ...]
    spent: dict[str, float]
    fates: dict[str, int]
    num_updates: int


def read_run(path: Path, label: str, seed: int, unit: str, amounts: Sequence[float]) -> Run:
    """Read a run's metrics.

    Evaluations that are no part of the plan are passed over: one that was made because the run was stopped
    and went on, say. So a comparison that was interrupted has the points of one that was not.

    Args:
        unit, amounts: where the plan measures.
    """
    if not (path / CONFIG).is_file():
        return Run(label, seed, path, "missing", "it has not begun", (), {}, {}, 0)
    rows = load_rows(path / METRICS).rows if (path / METRICS).is_file() else []
    steps = [row for row in rows if row["kind"] == "step"]
    reason = json.loads((path / DONE).read_text())["reason"] if (path / DONE).is_file() else None
    last = steps[-1] if steps else {}
    spent = {u.value: float(last.get(f"spent_{u.value}") or 0) for u in Unit}
    points = read_points(rows, unit, amounts, is_done=reason is not None)
    is_short = reason is not None and spent[unit] < amounts[-1]
    spent[Unit.SECONDS.value] -= sum(
        row.get("evaluation_s") or 0 for row in rows if row["kind"] == "evaluation"
    )
    return Run(
        label=label,
        seed=seed,
        path=path,
        state="unfinished" if reason is None else "short" if is_short else "done",
        reason=f"it ended before its budget was spent: {reason}" if is_short else reason or _OPEN,
        points=points,
        spent=spent,
        fates={fate.value: int(last.get(f"fate_{fate.value}") or 0) for fate in Fate},
        num_updates=int(last.get("version") or 0),
    )


def read_points(rows: Sequence[Row], unit: str, amounts: Sequence[float], is_done: bool) -> tuple[Point, ...]:
    """Return the planned evaluations among rows of metrics: the first, one for each amount, the last."""
    spent: dict[int, dict[str, float]] = {0: dict.fromkeys(AXES, 0.0)}
    planned = {0}
    before = measured_s = 0.0
    evaluations: dict[int, Row] = {}
    for row in rows:
        if row["kind"] == "step":
            version, now = int(row["version"]), float(row.get(f"spent_{unit}") or 0)
            spent[version] = {axis: float(row.get(f"spent_{axis}") or 0) for axis in AXES}
            spent[version][Unit.SECONDS.value] -= measured_s
            if bisect.bisect_right(amounts, now) > bisect.bisect_right(amounts, before):
                planned.add(version)
            before = now
        elif row["kind"] == "evaluation":
            evaluations[int(row["step"])] = row
            measured_s += float(row.get("evaluation_s") or 0)
    if is_done and evaluations:
        planned.add(max(evaluations))
    found = [
        _point(evaluations[version], spent[version])
        for version in sorted(planned & evaluations.keys() & spent.keys())
        if evaluations[version]["sampled_success"] is not None
    ]
    return tuple(found)


def _point(row: Mapping[str, Any], spent: dict[str, float]) -> Point:
    right, scored = tuple(row.get("sampled_right") or ()), tuple(row.get("sampled_scored") or ())
    pass_at = {}
    for k in range(1, min(scored, default=0) + 1):
        if k & (k - 1) == 0 or k == min(scored):
            pass_at[k] = float(np.mean([pass_at_k(n, c, k) for c, n in zip(right, scored, strict=True)]))
    return Point(
        version=int(row["step"]),
        spent=spent,
        success=float(row["sampled_success"]),
        greedy=row.get("greedy_success"),
        pass_at=pass_at,
        right=right,
        scored=scored,
    )


def at_amount(points: Sequence[Point], axis: str, amount: float, k: int = 1) -> float:
    """Return success (pass@k) when an amount was spent, on straight lines between evaluations.

    Beyond the last evaluation it is the last one's: a run ends with the step that spends the rest of its
    budget.

    Raises:
        DataError: no evaluation, or none with so many samples a task.
    """
    if not points or any(k > 1 and k not in point.pass_at for point in points):
        raise DataError(f"{len(points)} evaluations; expected at least one, each with pass@{k}")
    values = [point.success if k == 1 else point.pass_at[k] for point in points]
    return float(np.interp(amount, [point.spent[axis] for point in points], values))


def area(points: Sequence[Point], axis: str, amount: float) -> float:
    """Return the mean success over a budget: the area under the curve up to an amount, divided by it."""
    x = [point.spent[axis] for point in points]
    inside = sorted({0.0, amount, *(value for value in x if 0 < value < amount)})
    y = np.interp(inside, x, [point.success for point in points])
    return float(np.trapezoid(y, inside) / amount)
