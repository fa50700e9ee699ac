"""A run's summary as tables and small charts on the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

from rollwright.cli.progress import held_out
from rollwright.cli.text import bars, chart, number, percent, with_interval

if TYPE_CHECKING:
    from rollwright.lab.rollouts import Rollout
    from rollwright.lab.summary import Books, Point, Row, Summary

_FATES = {
    "trained": "the learner used them",
    "held": "in flight, or waiting for a first training",
    "stale": "too old when their turn came",
    "filtered": "in groups that a filter dropped",
    "pruned": "on branches that were given up",
    "failed": "in rollouts that could not be scored, or that failed",
    "evaluation": "sampled to measure, not to train",
}


def table_of(*columns: str) -> Table:
    """Return an empty table; columns whose name starts with ``>`` are numbers and stand right."""
    found = [
        Column(name.lstrip(">"), justify="right" if name.startswith(">") else "left") for name in columns
    ]
    return Table(*found, box=box.SIMPLE_HEAD, pad_edge=False)


def heading(console: Console, text: str) -> None:
    """Print a section's heading."""
    console.print()
    console.print(Text(text, style="bold"))


def print_header(console: Console, summary: Summary) -> None:
    """Print what the run is and how far it is."""
    cfg = summary.config
    model = cfg.model or "the task's warm start"
    console.print(Text(f"{cfg.task} with {cfg.method}, seed {cfg.seed}, from {model}", style="bold"))
    console.print(Text(f"{summary.path}: {summary.state_text}"), soft_wrap=True)
    for note in summary.notes:
        console.print(Text(f"note: {note}", style="yellow"), soft_wrap=True)


def print_evaluations(console: Console, rows: Sequence[Row]) -> None:
    """Print success on held-out tasks: first, best so far by version, and last."""
    if not rows:
        return
    heading(console, "Held-out tasks (95% intervals over tasks)")
    table = table_of(">version", "sampled", "greedy", ">length", ">tasks", ">not scored")
    for row in rows if len(rows) <= 12 else [*rows[:3], *rows[-8:]]:
        table.add_row(
            str(row["step"]),
            held_out(row, "sampled"),
            held_out(row, "greedy"),
            number(row.get("sampled_length")),
            number(row.get("sampled_num_tasks")),
            number((row.get("sampled_num_not_scored") or 0) + (row.get("greedy_num_not_scored") or 0)),
        )
    console.print(table)


def print_curve(console: Console, curve: Sequence[Point]) -> None:
    """Print success of the training rollouts by step."""
    if not curve:
        return
    first, last = curve[0], curve[-1]
    heading(console, "Success of the training rollouts by step")
    for line in chart([point.success for point in curve], width=min(70, console.width - 10)):
        console.print(Text(line, style="green"))
    console.print(
        f"       step {first.step + 1}: {with_interval(first.success, first.low, first.high)}    "
        f"step {last.step + 1}: {with_interval(last.success, last.low, last.high)}",
        highlight=False,
        markup=False,
    )


def print_books(console: Console, books: Books) -> None:
    """Print the ledger: tokens by fate with their reasons, and units spent."""
    sampled = sum(books.fates.values())
    heading(console, f"Where the {number(sampled)} sampled tokens went")
    table = table_of("fate", ">tokens", ">share", "why")
    for fate, tokens in books.fates.items():
        if not tokens:
            continue
        table.add_row(
            fate,
            number(tokens),
            percent(tokens / sampled),
            _FATES.get(fate, ""),
        )
        reasons = {name: n for name, n in books.reasons.items() if name.startswith(f"{fate}:")}
        for name, num in sorted(reasons.items(), key=lambda item: -item[1])[:6]:
            table.add_row(
                "",
                number(num),
                percent(num / sampled),
                Text(name.removeprefix(f"{fate}:"), style="dim"),
            )
    console.print(table)
    heading(console, "Spent")
    table = table_of("unit", ">spent", ">granted")
    for unit, amount in books.spent.items():
        granted = books.granted.get(unit)
        if amount or granted is not None:
            table.add_row(
                unit.replace("_", " "),
                number(round(amount, 1)),
                "-" if granted is None else number(granted),
            )
    console.print(table)


def print_lengths(console: Console, summary: Summary) -> None:
    """Print how long the rollouts are, in sampled tokens."""
    lengths = summary.lengths[:, 1]
    if not len(lengths):
        return
    quantiles = np.percentile(lengths, [50, 90, 99])
    words = ", ".join(
        f"{name} {number(q)}" for name, q in zip(("median", "90%", "99%"), quantiles, strict=True)
    )
    heading(console, f"Sampled tokens of {number(len(lengths))} rollouts: {words}, longest {lengths.max()}")
    edges = np.histogram_bin_edges(lengths, bins=min(10, int(lengths.max() - lengths.min()) + 1))
    edges = np.unique(np.floor(edges))
    counts, _ = np.histogram(lengths, bins=[*edges[:-1], lengths.max() + 1] if len(edges) > 1 else 1)
    lows = edges[:-1] if len(edges) > 1 else edges[:1]
    highs = [*(low - 1 for low in lows[1:]), lengths.max()]
    ends = [(int(low), int(high)) for low, high in zip(lows, highs, strict=True)]
    labels = [f"{low}" if low == high else f"{low}-{high}" for low, high in ends]
    for line in bars(list(zip(labels, map(float, counts), strict=True))):
        console.print(Text(f"  {line}", style="cyan"))


def print_rollouts(console: Console, title: str, rollouts: Iterable[Rollout]) -> None:
    """Print single rollouts with their texts."""
    rollouts = list(rollouts)
    if not rollouts:
        return
    heading(console, title)
    for rollout in rollouts:
        console.print(Text(_caption(rollout)), soft_wrap=True)
        console.print(Padding(_texts(rollout), (0, 0, 1, 2)))


def _caption(rollout: Rollout) -> str:
    fate = f"{rollout.fate} ({rollout.reason})" if rollout.reason else rollout.fate
    took = "" if rollout.seconds is None else f", {rollout.seconds:.1f} s"
    turns = "" if rollout.turns == 1 else f", {rollout.turns} turns"
    return (
        f"{rollout.stream}, step {rollout.step + 1}: {rollout.tokens} tokens{turns}{took}, {rollout.status}, "
        f"reward {number(rollout.reward)}, {fate}"
    )


def _texts(rollout: Rollout, num_lines: int = 16) -> Text:
    """Return prompt and response; what the policy sampled stands out from what it read."""
    if rollout.response is None:
        return Text("(no text: the run has no checkpoint with a tokeniser yet)", style="dim")
    text = Text()
    for origin, part in rollout.parts or (("prompt", rollout.prompt or ""), ("sampled", rollout.response)):
        text.append(part, style="bold" if origin == "sampled" else "dim")
    lines = list(text.split("\n"))
    if len(lines) > num_lines:
        left_out = Text(f"... {len(lines) - num_lines + 1} lines left out ...", style="italic dim")
        half = (num_lines - 1) // 2
        lines = [*lines[: num_lines - 1 - half], left_out, *lines[-half:]]
    for line in lines:
        line.truncate(400, overflow="ellipsis")
    return Text("\n").join(lines)


def print_failures(console: Console, failures: Sequence[tuple[str, int]]) -> None:
    """Print what failed or was not scored, the most frequent first."""
    if not failures:
        return
    heading(console, "Not scored or failed")
    for message, num in failures[:8]:
        console.print(Text(f"  {num:,} × {message}"), soft_wrap=True)
    if len(failures) > 8:
        console.print(f"  and {len(failures) - 8} other messages")


def print_metrics(console: Console, row: Row) -> None:
    """Print the last step's metrics, those of the rollouts and those of the learner."""
    hidden = ("spent_", "fate_", "reason_", "learn_")
    rest = {name: value for name, value in row.items() if name not in ("kind", "step", "non_finite")}
    learner = {name.removeprefix("learn_"): v for name, v in rest.items() if name.startswith("learn_")}
    rollouts = {name: value for name, value in rest.items() if not name.startswith(hidden)}
    for title, values in (("Rollouts", rollouts), ("Learner", learner)):
        if values:
            heading(console, f"{title} of step {row['step'] + 1}")
            console.print(
                _grid(console, {name: value for name, value in values.items() if value is not None})
            )


def _grid(console: Console, values: Row) -> Table:
    width = max(map(len, values), default=0) + 14
    num_lines = -(-len(values) // max(1, (console.width + 3) // width))
    table = Table.grid(padding=(0, 3))
    items = list(values.items())
    for line in range(num_lines):
        table.add_row(*(cell for name, value in items[line::num_lines] for cell in (name, number(value))))
    return table


def print_summary(console: Console, summary: Summary) -> None:
    """Print everything that `rollwright show` shows."""
    print_header(console, summary)
    print_evaluations(console, summary.evaluations)
    print_curve(console, summary.curve)
    print_books(console, summary.books)
    print_failures(console, summary.failures)
    print_lengths(console, summary)
    print_rollouts(console, "Longest rollouts (bold: sampled; dim: read)", summary.longest)
    shown = {rollout.stream for rollout in summary.longest}
    slowest = [rollout for rollout in summary.slowest if rollout.stream not in shown]
    print_rollouts(console, "Slowest rollouts that are not among the longest", slowest)
    if summary.steps:
        print_metrics(console, summary.steps[-1])
