"""Small charts as inline SVG: curves with bands, and intervals along a row of looks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 640, 340
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 16, 14, 44
NUM_COLOURS = 8  # classes c0 ... c7 of the page's style


@dataclass(frozen=True, slots=True)
class Line:
    """One curve: its name, its points, and the band around them where there is one.

    Args:
        name: for the legend and the tooltip.
        colour: number of its colour.
        x, y: points, [N].
        low, high: band, [N]; empty without one.
    """

    name: str
    colour: int
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()


@dataclass(frozen=True, slots=True)
class Frame:
    """Where values lie in a picture."""

    x0: float
    x1: float
    y0: float
    y1: float

    def x(self, value: float) -> float:
        return _LEFT + (WIDTH - _LEFT - _RIGHT) * (value - self.x0) / ((self.x1 - self.x0) or 1)

    def y(self, value: float) -> float:
        inside = min(max(value, self.y0), self.y1)
        return HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * (inside - self.y0) / ((self.y1 - self.y0) or 1)


def ticks(low: float, high: float, num: int = 6) -> list[float]:
    """Return round numbers between low and high, about ``num`` of them."""
    if not high > low:
        return [low]
    raw = (high - low) / num
    power = 10 ** math.floor(math.log10(raw))
    step = next(power * k for k in (1, 2, 5, 10) if power * k >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    found = []
    while first * step <= high + step * 1e-9:
        found.append(first * step)
        first += 1
    return found


def chart(
    lines: Sequence[Line],
    x_name: str,
    y_name: str,
    x_text: Callable[[float], str],
    y_text: Callable[[float], str],
    title: str,
) -> str:
    """Return curves with their bands.

    Args:
        x_text, y_text: values of the axes as text.
        title: for who cannot see it.
    """
    lines = [line for line in lines if len(line.x)]
    if not lines:
        return '<p class="muted">nothing to draw yet</p>'
    tops = [value for line in lines for value in (*line.y, *line.high)]
    bottoms = [value for line in lines for value in (*line.y, *line.low)]
    y1 = min(1.0, max(tops) + 0.02)
    y0 = max(0.0, min(bottoms) - 0.02)
    frame = Frame(min(line.x[0] for line in lines), max(line.x[-1] for line in lines), y0, y1)
    parts = [_axes(frame, x_name, y_name, x_text, y_text)]
    for line in lines:
        if line.low:
            there = [*zip(line.x, line.high, strict=True), *reversed([*zip(line.x, line.low, strict=True)])]
            parts.append(
                f'<polygon class="band c{line.colour % NUM_COLOURS}" points="{_points(frame, there)}"/>'
            )
    for line in lines:
        points = _points(frame, [*zip(line.x, line.y, strict=True)])
        name = f"{escape(line.name)}: {escape(y_text(line.y[-1]))} at {escape(x_text(line.x[-1]))}"
        kind = f"line c{line.colour % NUM_COLOURS}"
        parts.append(f'<polyline class="{kind}" points="{points}"><title>{name}</title></polyline>')
    return _svg(parts, title)


def looks(
    lows: Sequence[float],
    highs: Sequence[float],
    means: Sequence[float],
    differences: Sequence[float],
    y_text: Callable[[float], str],
    title: str,
) -> str:
    """Return the differences of pairs as points, and the interval known after each of them as a band."""
    if not means:
        return '<p class="muted">no pair is done yet</p>'
    finite = [abs(v) for v in (*lows, *highs, *differences) if math.isfinite(v)]
    most = max([*finite, 0.01]) * 1.1
    frame = Frame(0.5, len(means) + 0.5, -most, most)
    whole = [t for t in range(1, len(means) + 1) if len(means) <= 12 or t % (len(means) // 10) == 0]
    parts = [_axes(frame, "pairs", "difference", str, y_text, [float(t) for t in whole])]
    parts.append(_line("zero", _LEFT, frame.y(0), WIDTH - _RIGHT, frame.y(0)))
    for k, (low, high, mean, x) in enumerate(zip(lows, highs, means, differences, strict=True), 1):
        at = frame.x(k)
        if math.isfinite(low) and math.isfinite(high):
            parts.append(_line("bar", at, frame.y(low), at, frame.y(high)))
        place = f'cx="{at:.1f}" cy="{frame.y(x):.1f}" r="3"'
        parts.append(f'<circle class="pair" {place}><title>{escape(y_text(x))}</title></circle>')
        parts.append(_line("mean", at - 6, frame.y(mean), at + 6, frame.y(mean)))
    return _svg(parts, title)


def _points(frame: Frame, points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{frame.x(x):.1f},{frame.y(y):.1f}" for x, y in points)


def _axes(
    frame: Frame,
    x_name: str,
    y_name: str,
    x_text: Callable[[float], str],
    y_text: Callable[[float], str],
    x_ticks: Sequence[float] | None = None,
) -> str:
    parts = []
    for value in ticks(frame.y0, frame.y1):
        y = frame.y(value)
        parts.append(_line("grid", _LEFT, y, WIDTH - _RIGHT, y))
        parts.append(_text("tick", _LEFT - 6, y + 4, y_text(value), "end"))
    for value in ticks(frame.x0, frame.x1) if x_ticks is None else x_ticks:
        text = x_text(int(value) if x_ticks is not None else value)
        parts.append(_text("tick", frame.x(value), HEIGHT - _BOTTOM + 18, text, "middle"))
    parts.append(_text("name", (_LEFT + WIDTH - _RIGHT) / 2, HEIGHT - 6, x_name, "middle"))
    parts.append(_text("name", _LEFT, _TOP - 3, y_name, "start"))
    return "".join(parts)


def _line(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _text(kind: str, x: float, y: float, text: str, anchor: str) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _svg(parts: Sequence[str], title: str) -> str:
    name = escape(title)
    head = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{name}">'
    return f"{head}<title>{name}</title>{''.join(parts)}</svg>"
