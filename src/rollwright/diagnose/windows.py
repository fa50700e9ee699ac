"""Shares and means by stretches of steps, and when a share is above a limit by more than chance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rollwright.diagnose.finding import Finding, cannot_tell

_Z = 1.959964


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of steps: how many units it has, how many of them hit, and a few that do."""

    first: int
    last: int
    hits: int
    total: int
    examples: tuple[str, ...] = ()

    @property
    def share(self) -> float:
        return self.hits / self.total if self.total else 0.0

    def joined(self, other: Window) -> Window:
        first, last = min(self.first, other.first), max(self.last, other.last)
        names = tuple(dict.fromkeys((*self.examples, *other.examples)))[:3]
        return Window(first, last, self.hits + other.hits, self.total + other.total, names)


def wilson_low(hits: int, total: int) -> float:
    """Return the lower end of Wilson's 95% interval of a share."""
    share, square = hits / total, _Z * _Z
    half = _Z * math.sqrt(share * (1 - share) / total + square / (4 * total * total))
    return (share + square / (2 * total) - half) / (1 + square / total)


def merged(windows: Sequence[Window], at_least: int) -> list[Window]:
    """Join neighbours until each has at least so many units; what is left over joins the last."""
    found: list[Window] = []
    held: Window | None = None
    for window in windows:
        held = window if held is None else held.joined(window)
        if held.total >= at_least:
            found.append(held)
            held = None
    if held is not None:
        found = [*found[:-1], found[-1].joined(held)] if found else [held]
    return found


def judge_share(windows: Sequence[Window], limit: float, at_least: int, unit: str, what: str) -> Finding:
    """Say whether a share reaches its limit: over the whole run, or surely (95%) in some stretch of it."""
    total = sum(window.total for window in windows)
    if total < at_least:
        return cannot_tell(f"{total} {unit} are too few (at least {at_least})")
    joined = merged(windows, at_least)
    whole = joined[0]
    for window in joined[1:]:
        whole = whole.joined(window)
    sure = [w for w in joined if wilson_low(w.hits, w.total) >= limit]
    numbers = {"share": whole.share, "hits": float(whole.hits), "of": float(total)}
    text = f"{whole.hits:,} of {total:,} {unit} ({100 * whole.share:.1f}%) {what}"
    if not sure and whole.share < limit:
        return Finding("clear", text, numbers=numbers)
    high = sure or [w for w in joined if w.share >= limit] or [whole]
    worst = max(high, key=lambda w: w.share)
    numbers["worst_share"] = worst.share
    if len(joined) > 1:
        text += f"; most in steps {worst.first} to {worst.last}: {100 * worst.share:.1f}%"
    is_certain = bool(sure) or wilson_low(whole.hits, whole.total) >= limit
    return Finding(
        "found",
        text,
        "certain" if is_certain else "likely",
        numbers,
        (high[0].first, high[-1].last),
        tuple(dict.fromkeys((*worst.examples, *whole.examples)))[:3],
    )
