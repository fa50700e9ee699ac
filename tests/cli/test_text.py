"""Numbers, times and charts as text."""

from __future__ import annotations

import pytest

from rollwright.cli.text import bars, chart, duration, number, percent, shorten, sparkline, with_interval


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (0.0, "0"),
        (12345, "12,345"),
        (12345.6, "12,346"),
        (0.41251, "0.4125"),
        (3e-5, "3.0e-05"),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
        (-2.0, "-2"),
    ],
)
def test_number(value: float | None, text: str) -> None:
    """Oracle: golden. Kills: None or NaN shown as 0."""
    assert number(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-"), (0.4, "0 s"), (59.6, "1:00 min"), (65, "1:05 min"), (3599.9, "1:00 h"), (7620, "2:07 h")],
)
def test_duration(seconds: float | None, text: str) -> None:
    """Oracle: golden. Kills: "60 s" and "60:00 min" from rounding after the unit was chosen."""
    assert duration(seconds) == text


def test_shares() -> None:
    """Oracle: golden."""
    assert percent(None) == "-"
    assert with_interval(0.312, 0.279, 0.346) == "31.2% [27.9, 34.6]"
    assert with_interval(None, None, None) == "-"


def test_shorten_keeps_the_mean() -> None:
    """Oracle: metamorphic: equal stretches of one length have the mean of the whole."""
    values = [float(k) for k in range(120)]
    short = shorten(values, 40)
    assert len(short) == 40
    assert sum(short) / 40 == pytest.approx(sum(values) / 120)
    assert shorten(values[:7], 40) == values[:7]


def test_sparkline_and_chart_rise_with_the_values() -> None:
    """Oracle: golden; a higher value never has a lower block."""
    assert sparkline([0.0, 0.5, 1.0]) == "▁▄█"
    assert chart([0.0, 1.0], height=2, top=1.0) == [" 100% │ █", "   0% │▁█"]
    assert chart([]) == []
    assert sparkline([float("0.3")] * 3, low=0.3, high=0.3) == "▁▁▁"


def test_bars_are_in_proportion() -> None:
    """Oracle: closed form: half the count is half the bar; a count of zero is no bar of full width."""
    assert bars([("a", 4.0), ("bb", 2.0), ("c", 0.0)], width=4) == [" a ████ 4", "bb ██ 2", " c ▏ 0"]
