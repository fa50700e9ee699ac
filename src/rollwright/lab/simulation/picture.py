"""Schedulers side by side as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rollwright.lab.picture import GRID, dress, picture
from rollwright.lab.simulation.compare import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BLUE, _ORANGE, _GREEN = "#3b82f6", "#ea580c", "#047857"


def draw_rows(rows: Sequence[Row], path: str | Path, title: str) -> Path:
    """Draw throughput, idle shares, a step's time and ages of several schedulers into a PNG.

    Returns:
        The picture's path.

    Raises:
        StoreError: it cannot be written.
    """
    path = Path(path)
    with picture(path, (11, 1.6 + 0.75 * max(4, len(rows))), title, font_size=9) as figure:
        places = figure.add_gridspec(2, 2)
        _throughput(figure.add_subplot(places[0, 0]), rows)
        _idle(figure.add_subplot(places[0, 1]), rows)
        _times(figure.add_subplot(places[1, 0]), rows)
        _ages(figure.add_subplot(places[1, 1]), rows)
    return path


def _dress(axes: Axes, title: str, rows: Sequence[Row]) -> None:
    dress(axes, title, has_base=False)
    axes.set_yticks(range(len(rows)), [row.name for row in rows])
    axes.invert_yaxis()


def _throughput(axes: Axes, rows: Sequence[Row]) -> None:
    values = [row.tokens_per_second for row in rows]
    bars = axes.barh(range(len(rows)), values, color=_BLUE, height=0.6)
    axes.bar_label(bars, [f"{row.speedup:.2f}×" for row in rows], padding=3, fontsize=8)
    axes.margins(x=0.12)
    _dress(axes, "Tokens trained on, a second", rows)


def _idle(axes: Axes, rows: Sequence[Row]) -> None:
    y = np.arange(len(rows))
    engines = [100 * row.report.engine_idle_share for row in rows]
    axes.barh(y - 0.2, engines, height=0.38, color=_BLUE, label="engines")
    learner = [100 * row.report.learner_idle_share for row in rows]
    axes.barh(y + 0.2, learner, height=0.38, color=_ORANGE, label="learner")
    axes.set_xlim(0, 100)
    _dress(axes, "Idle time, %", rows)
    _legend(axes)


def _times(axes: Axes, rows: Sequence[Row]) -> None:
    y = range(len(rows))
    axes.barh(y, [row.step_seconds for row in rows], color=GRID, height=0.6, label="a step")
    axes.barh(y, [row.tail_seconds for row in rows], color=_ORANGE, height=0.3, label="its last tenth")
    _dress(axes, "Seconds", rows)
    _legend(axes)


def _ages(axes: Axes, rows: Sequence[Row]) -> None:
    most = max((max(row.report.ages, default=0) for row in rows), default=0)
    left = np.zeros(len(rows))
    for age in range(most + 1):
        totals = [sum(row.report.ages.values()) or 1 for row in rows]
        shares = [100 * row.report.ages.get(age, 0) / total for row, total in zip(rows, totals, strict=True)]
        fade = age / (most + 1)
        colour = (0.02 + 0.9 * fade, 0.47 + 0.2 * fade, 0.34 + 0.1 * fade)
        axes.barh(range(len(rows)), shares, left=left, color=colour, height=0.6, label=str(age))
        left += shares
    axes.set_xlim(0, 100)
    _dress(axes, "Age in versions, %", rows)
    _legend(axes)


def _legend(axes: Axes) -> None:
    """Put the legend above the axes, on the right, where no bar is."""
    axes.legend(
        frameon=False, fontsize=8, ncols=9, loc="lower right", bbox_to_anchor=(1, 0.99), borderaxespad=0.1,
        handlelength=1.0, columnspacing=1.0,
    )  # fmt: skip
