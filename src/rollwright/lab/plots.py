"""Pictures of a run, as PNG."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rollwright.lab.picture import MUTED, dress, picture
from rollwright.lab.summary import Row, Summary
from rollwright.ledger import Fate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TRAINING, _SAMPLED, _GREEDY = "#3b82f6", "#ea580c", "#047857"
_FATES = {
    Fate.TRAINED: "#3b82f6",
    Fate.HELD: "#c7d2fe",
    Fate.STALE: "#a78bfa",
    Fate.FILTERED: "#fbbf24",
    Fate.PRUNED: "#fb923c",
    Fate.FAILED: "#ef4444",
    Fate.EVALUATION: "#94a3b8",
}

_LABELS = {Fate.HELD: "held at its end"}


def draw(summary: Summary, path: str | Path) -> Path:
    """Draw success, tokens by fate and lengths of a run into a PNG.

    Returns:
        The picture's path.

    Raises:
        StoreError: it cannot be written.
    """
    path, cfg = Path(path), summary.config
    title = f"{cfg.task} with {cfg.method}, seed {cfg.seed}: {len(summary.steps)} steps"
    with picture(path, (11, 5.6), title) as figure:
        places = figure.add_gridspec(2, 2, width_ratios=(1.5, 1))
        _success(figure.add_subplot(places[:, 0]), summary)
        _fates(figure.add_subplot(places[0, 1]), summary.steps)
        _lengths(figure.add_subplot(places[1, 1]), summary)
    return path


def _dress(axes: Axes, title: str, x: str, y: str) -> None:
    dress(axes, title, grid="y")
    axes.set_xlabel(x)
    axes.set_ylabel(y)


def _nothing(axes: Axes, text: str) -> None:
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color=MUTED)
    axes.set_xticks([])
    axes.set_yticks([])


def _success(axes: Axes, summary: Summary) -> None:
    _dress(axes, "Success, with 95% intervals", "version of the policy", "right rollouts")
    if not summary.curve and not summary.evaluations:
        return _nothing(axes, "no step is finished yet")
    if summary.curve:
        # The rollouts of step k were sampled by version k: they stand where that version stands.
        x = [point.step for point in summary.curve]
        low, high = [p.low for p in summary.curve], [p.high for p in summary.curve]
        axes.fill_between(x, low, high, color=_TRAINING, alpha=0.15, linewidth=0)
        axes.plot(
            x, [p.success for p in summary.curve], color=_TRAINING, linewidth=1.4, label="training rollouts"
        )
    for name, colour, marker in (("greedy", _GREEDY, "s"), ("sampled", _SAMPLED, "o")):
        _held_out(axes, summary.evaluations, name, colour, marker)
    # Room above the highest interval for the legend; a share never needs more than 100%.
    axes.set_ylim(0, min(1.12, max(0.1, 1.15 * axes.dataLim.y1)))
    axes.yaxis.set_major_formatter(_per_cent())
    axes.margins(x=0.03)
    axes.legend(frameon=False, loc="upper left", ncols=3, fontsize=9)
    return None


def _held_out(axes: Axes, rows: list[Row], name: str, colour: str, marker: str) -> None:
    rows = [row for row in rows if row.get(f"{name}_success") is not None]
    if not rows:
        return
    x = [row["step"] for row in rows]
    y = np.array([row[f"{name}_success"] for row in rows])
    spread = np.array([[row[f"{name}_low"] for row in rows], [row[f"{name}_high"] for row in rows]])
    label = f"held-out, {name}"
    around = np.maximum(np.abs(spread - y), 0)
    style: dict[str, Any] = {
        "color": colour,
        "marker": marker,
        "markersize": 5,
        "capsize": 3,
        "linewidth": 1.2,
    }
    axes.errorbar(x, y, yerr=around, linestyle="--" if len(x) > 1 else "", label=label, **style)
    for k in {0, len(x) - 1}:
        offset = (6, 6) if k == 0 else (-6, 6)
        axes.annotate(
            f"{100 * y[k]:.0f}%",
            (x[k], y[k]),
            xytext=offset,
            textcoords="offset points",
            ha="left" if k == 0 else "right",
            color=colour,
            fontsize=9,
            fontweight="bold",
        )


def _per_cent() -> Any:
    from matplotlib.ticker import PercentFormatter

    return PercentFormatter(1.0, decimals=0)


def _fates(axes: Axes, steps: list[Row]) -> None:
    _dress(axes, "Sampled tokens of each step by fate", "step", "tokens")
    if not steps:
        return _nothing(axes, "no step is finished yet")
    x = np.array([row["step"] + 1 for row in steps])
    base = np.zeros(len(steps))
    for fate, colour in _FATES.items():
        total = np.array([float(row.get(f"fate_{fate.value}") or 0) for row in steps])
        # What is held is a stock, every other fate a running total.
        tokens = total if fate is Fate.HELD else np.maximum(np.diff(total, prepend=0.0), 0)
        if tokens.any():
            axes.bar(
                x,
                tokens,
                bottom=base,
                width=1.0,
                color=colour,
                label=_LABELS.get(fate, fate.value),
                linewidth=0,
            )
            base = base + tokens
    axes.set_ylim(0, (base.max() or 1) * 1.25)
    axes.margins(x=0.02)
    axes.yaxis.set_major_formatter(_short())
    axes.legend(frameon=False, loc="upper left", ncols=4, fontsize=8, handlelength=1.0)
    return None


def _short() -> Any:
    from matplotlib.ticker import EngFormatter

    return EngFormatter(sep="")


def _lengths(axes: Axes, summary: Summary) -> None:
    _dress(axes, "Sampled tokens of a rollout", "tokens", "share of rollouts")
    steps, lengths = summary.lengths[:, 0], summary.lengths[:, 1]
    if not len(lengths):
        return _nothing(axes, "no rollout is finished yet")
    # Bins of whole tokens, equally many in each: else a bin with two lengths stands beside one with one.
    width = int(np.ptp(lengths)) // 30 + 1
    bins = np.arange(lengths.min(), lengths.max() + width + 1, width) - 0.5
    known = np.unique(steps)
    num = max(1, len(known) // 5)
    early, late = known[:num], known[-num:]
    parts = (
        [(MUTED, early, "first"), (_TRAINING, late, "last")] if len(known) > 1 else [(_TRAINING, late, "")]
    )
    for colour, chosen, word in parts:
        mine = lengths[np.isin(steps, chosen)]
        label = f"{word} {num} steps, mean {mine.mean():.0f}" if word else f"mean {mine.mean():.0f}"
        weights = np.full(len(mine), 1 / len(mine))
        style: dict[str, Any] = {"bins": bins, "weights": weights, "color": colour}
        axes.hist(mine, alpha=0.25, **style)
        axes.hist(mine, histtype="step", linewidth=1.3, label=label, **style)
    axes.yaxis.set_major_formatter(_per_cent())
    axes.legend(frameon=False, fontsize=9)
    return None
