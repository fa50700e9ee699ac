"""Numbers, times and small charts as text."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

_BLOCKS = " ▁▂▃▄▅▆▇█"


def percent(share: float | None) -> str:
    """Return a share as per cent, ``"-"`` where there is none."""
    return "-" if share is None else f"{100 * share:.1f}%"


def with_interval(share: float | None, low: float | None, high: float | None) -> str:
    """Return ``"31.2% [27.9, 34.6]"``: a share and its 95% interval."""
    if share is None or low is None or high is None:
        return percent(share)
    return f"{percent(share)} [{100 * low:.1f}, {100 * high:.1f}]"


def number(value: float | None) -> str:
    """Return a number short enough for a table: ``12,345``, ``0.4125``, ``3.0e-05``, ``"-"`` for None."""
    if value is None:
        return "-"
    if not math.isfinite(value):
        return str(value)
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1e}" if abs(value) < 1e-3 else f"{value:.4g}"


def duration(seconds: float | None) -> str:
    """Return seconds as ``"8 s"``, ``"1:05 min"`` or ``"2:07 h"``; ``"-"`` for None."""
    if seconds is None:
        return "-"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02d} min"
    return f"{whole // 3600}:{whole % 3600 // 60:02d} h"


def shorten(values: Sequence[float], width: int) -> list[float]:
    """Return at most ``width`` values: means of equal stretches, in order."""
    if len(values) <= width:
        return list(values)
    return [float(np.mean(part)) for part in np.array_split(np.array(values), width)]


def sparkline(values: Sequence[float], width: int = 60, low: float = 0.0, high: float = 1.0) -> str:
    """Return values as one line of blocks between ``low`` and ``high``."""
    return "".join(column[0] for column in _columns(shorten(values, width), low, high, 1))


def chart(values: Sequence[float], width: int = 60, height: int = 6, top: float | None = None) -> list[str]:
    """Return values as lines of blocks, highest line first, with the scale in per cent on the left.

    Args:
        values: shares, in [0, 1].
        top: the share at the upper edge; None is the next tenth above the largest value.
    """
    if not values:
        return []
    if top is None:
        top = min(1.0, max(0.1, math.ceil(max(values) * 10 + 1e-9) / 10))
    columns = _columns(shorten(values, width), 0.0, top, height)
    lines = []
    for line in reversed(range(height)):
        is_marked = line == height - 1 or line == 0
        mark = f"{100 * (top if line else 0):4.0f}%" if is_marked else " " * 5
        lines.append(f"{mark} │{''.join(column[line] for column in columns)}")
    return lines


def _columns(values: Sequence[float], low: float, high: float, height: int) -> list[list[str]]:
    """Return for each value its blocks from the lowest line up."""
    columns = []
    for value in values:
        share = min(1.0, max(0.0, (value - low) / ((high - low) or 1.0)))
        eighths = max(1, round(share * height * 8))
        columns.append([_BLOCKS[min(8, max(0, eighths - 8 * line))] for line in range(height)])
    return columns


def bars(counts: Sequence[tuple[str, float]], width: int = 40) -> list[str]:
    """Return one line of ``label ████ count`` for each count."""
    most = max((count for _, count in counts), default=0) or 1
    left = max((len(label) for label, _ in counts), default=0)
    return [
        f"{label:>{left}} {'█' * round(width * count / most) or '▏'} {number(count)}"
        for label, count in counts
    ]
