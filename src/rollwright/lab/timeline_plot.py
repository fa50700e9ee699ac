"""A run's timeline as a picture: who worked when, what was in flight, and how fast tokens came."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rollwright.lab.activity import ENVIRONMENT, GRADE, PROMPT, SAMPLE, Activity
from rollwright.lab.picture import GRID, MUTED, dress, picture
from rollwright.lab.timeline import (
    LEARNER,
    REPORTING,
    Idle,
    Span,
    count,
    idle,
    merged,
    spans,
    steps_of,
    tokens_per_second,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = {
    SAMPLE: "#3b82f6",
    GRADE: "#f59e0b",
    ENVIRONMENT: "#10b981",
    PROMPT: "#94a3b8",
    LEARNER: "#7c3aed",
    REPORTING: "#9ca3af",
}
_LABELS = {
    SAMPLE: "engine",
    GRADE: "graders",
    ENVIRONMENT: "environments",
    PROMPT: "prompts",
    LEARNER: "learner",
    REPORTING: "reporting",
}
_ROWS = (LEARNER, SAMPLE, ENVIRONMENT, GRADE, PROMPT, REPORTING)


def draw_timeline(activity: Activity, path: str | Path, title: str = "run") -> Path:
    """Draw the timeline into a picture; its kind is that of the name (``.png``, ``.svg``, ``.pdf``).

    Raises:
        StoreError: it cannot be written.
    """
    path = Path(path)
    with picture(path, (12, 6.8), title, kind=None) as figure:
        busy, flight, rate = figure.subplots(3, 1, sharex=True, height_ratios=(2.2, 1.6, 1.2))
        _busy(busy, activity, idle(activity))
        _in_flight(flight, activity)
        _rate(rate, activity)
    return path


def _busy(axes: Axes, activity: Activity, found: Idle) -> None:
    dress(axes, "Busy")
    end = activity.last_at or 1.0
    rows = [kind for kind in _ROWS if spans(activity, kind)]
    for place, kind in enumerate(rows):
        bars = [(a, b - a) for a, b in _visible(merged(spans(activity, kind)), end / 4000)]
        axes.broken_barh(bars, (place - 0.36, 0.72), color=_COLOURS[kind], linewidth=0)
    idle_shares = {LEARNER: found.learner_idle, SAMPLE: found.engine_idle}
    busy = {kind: f" ({100 * (1 - share):.0f}%)" for kind, share in idle_shares.items()}
    labels = [_LABELS[kind] + busy.get(kind, "") for kind in rows]
    axes.set_yticks(range(len(rows)), labels)
    axes.set_ylim(len(rows) - 0.4, -1.0)
    axes.set_xlim(0, end)
    _mark_steps(axes, activity, end)
    for at in activity.restarts:
        axes.axvline(at, color="#dc2626", linewidth=1.2, linestyle=":")


def _mark_steps(axes: Axes, activity: Activity, end: float) -> None:
    """Number as many steps as have room."""
    last = -end
    for step in steps_of(activity):
        axes.axvline(step.began, color=GRID, linewidth=0.8, zorder=0)
        if step.began - last >= end / 22:
            axes.text(step.began + end / 400, -0.62, f"step {step.step + 1}", fontsize=8, color=MUTED)
            last = step.began


def _visible(found: Sequence[Span], least: float) -> list[Span]:
    """Return spans at least as wide as a pixel, those that would share one joined."""
    joined: list[Span] = []
    for began, ended in found:
        if joined and began - joined[-1][1] < least:
            joined[-1] = (joined[-1][0], max(ended, joined[-1][1]))
        else:
            joined.append((began, ended))
    return [(a, max(b, a + least)) for a, b in joined]


def _in_flight(axes: Axes, activity: Activity) -> None:
    dress(axes, "Asks in flight")
    for kind in (SAMPLE, ENVIRONMENT, GRADE):
        times, counts = count(spans(activity, kind))
        if len(times):
            axes.fill_between(times, counts, step="post", color=_COLOURS[kind], alpha=0.35, linewidth=0)
            axes.step(times, counts, where="post", color=_COLOURS[kind], linewidth=1, label=_LABELS[kind])
    if axes.has_data():
        axes.legend(frameon=False, fontsize=8, ncols=3, loc="upper right")
    axes.set_ylim(bottom=0)


def _rate(axes: Axes, activity: Activity) -> None:
    dress(axes, "Sampled tokens per second")
    edges, rates = tokens_per_second(activity)
    axes.stairs(rates, edges, fill=True, color=_COLOURS[SAMPLE], alpha=0.35)
    axes.stairs(rates, edges, color=_COLOURS[SAMPLE], linewidth=1)
    axes.set_ylim(0, float(np.max(rates, initial=0.0)) * 1.1 or 1.0)
    axes.set_xlabel("seconds of the run")
