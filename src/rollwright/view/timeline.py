"""Who worked when, as spans and curves that a page can draw whatever the run's length."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollwright.lab.activity import KINDS, SAMPLE, Activity, Work
from rollwright.lab.timeline import LEARNER, REPORTING, count, idle, lanes, spans, steps_of, tokens_per_second

MAX_SPANS = 2500  # rectangles that a browser draws without a pause
MAX_LANES = 64
_NUM_BINS = 240


def timeline(activity: Activity, since: float = 0.0, until: float | None = None) -> dict[str, Any]:
    """Return a part of a run's timeline.

    Args:
        activity: the run, folded from its journal.
        since, until: seconds; until None is the last record.

    Returns:
        ``lanes``: a list of ``{"name", "spans"}``, spans as ``[began, ended, label, outcome]``, for the
        learner, for reports and for each request that was in flight at once (engines, graders, environments);
        ``is_whole``: False where there were too many requests here, so that only their number is told;
        ``curves``: requests in flight by kind, and tokens per second, at ``times``; ``steps`` and ``idle``.
    """
    end = activity.last_at
    until = end if until is None else min(until, end)
    since = max(0.0, min(since, until))
    here = [w for w in activity.work if w.began <= until and (end if w.ended is None else w.ended) >= since]
    is_whole = len(here) <= MAX_SPANS
    found = [
        {"name": "learner", "kind": LEARNER, "spans": _updates(activity, since, until)},
        {"name": "records", "kind": REPORTING, "spans": _clipped(spans(activity, REPORTING), since, until)},
    ]
    if is_whole:
        found += [lane for kind in KINDS for lane in _lanes(kind, here, end)]
    return {
        "since": since,
        "until": until,
        "end": end,
        "num_here": len(here),
        "is_whole": is_whole,
        "lanes": found[: MAX_LANES + 2],
        "num_lanes_left_out": max(0, len(found) - MAX_LANES - 2),
        **_curves(activity, since, until),
        "steps": [
            [one.step, one.began, one.ended, one.is_done]
            for one in steps_of(activity)
            if one.began < until and one.ended > since
        ][:400],
        "restarts": [at for at in activity.restarts if since <= at <= until],
        "idle": _idle(activity),
        "waits": [[t.name, t.what, t.since, t.deadline] for t in activity.timers.values()],
    }


def _curves(activity: Activity, since: float, until: float) -> dict[str, Any]:
    edges = np.linspace(since, until or 1.0, _NUM_BINS + 1)
    made_edges, made = tokens_per_second(activity, 4 * _NUM_BINS)
    return {
        "times": [float(t) for t in edges],
        "curves": {kind: _in_flight(spans(activity, kind), edges) for kind in KINDS},
        "tokens_per_second": [float(v) for v in np.interp(edges, made_edges[:-1], made)],
    }


def _idle(activity: Activity) -> dict[str, float]:
    found = idle(activity)
    return {
        "learner": found.learner_idle,
        "engine": found.engine_idle,
        "both": found.both_idle,
        "overlap": found.overlap,
    }


def _updates(activity: Activity, since: float, until: float) -> list[list[Any]]:
    found = []
    for update in activity.updates:
        ended = activity.last_at if update.ended is None else update.ended
        if update.began < until and ended > since:
            label = f"step {update.step}: version {update.version} to {update.published}"
            found.append([update.began, ended, label, f"{update.num_trajectories} rollouts"])
    return found[:MAX_SPANS]


def _clipped(found: list[tuple[float, float]], since: float, until: float) -> list[list[Any]]:
    return [[a, b, "records, checkpoints, evaluations", ""] for a, b in found if a < until and b > since][
        :MAX_SPANS
    ]


def _lanes(kind: str, here: list[Work], end: float) -> list[dict[str, Any]]:
    placed: dict[int, list[list[Any]]] = {}
    for row, work in lanes([w for w in here if w.kind == kind], end):
        tokens = f", {work.num_tokens} tokens" if kind == SAMPLE else ""
        ended = end if work.ended is None else work.ended
        placed.setdefault(row, []).append([work.began, ended, f"{work.ask}{tokens}", work.outcome or "open"])
    return [{"name": f"{kind} {row + 1}", "kind": kind, "spans": placed[row]} for row in sorted(placed)]


def _in_flight(found: list[tuple[float, float]], edges: NDArray[np.float64]) -> list[float]:
    """Return how many spans hold at each time."""
    times, num = count(found)
    if not len(times):
        return [0.0] * len(edges)
    place = np.searchsorted(times, edges, side="right") - 1
    return [float(v) for v in np.where(place < 0, 0, num[np.maximum(place, 0)])]
