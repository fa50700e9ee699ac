"""A run's summary as tables and small charts on the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from rich import box
from rich.console import Console
from rich.panel import Panel
from rich.table import Column, Table
from rich.text import Text

from rollwright.cli.progress import held_out
from rollwright.cli.text import bars, chart, duration, number, percent, with_interval
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
    found = [Column(name.lstrip(">"), justify="right" if name[0] == ">" else "left") for name in columns]
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
        console.print(Panel(_texts(rollout), title=Text(_caption(rollout)), title_align="left"))


def _caption(rollout: Rollout) -> str:
    fate = f"{rollout.fate} ({rollout.reason})" if rollout.reason else rollout.fate
    took = "" if rollout.seconds is None else f", {rollout.seconds:.1f} s"
    turns = "" if rollout.turns == 1 else f", {rollout.turns} turns"
    return (
        f"{rollout.stream}, step {rollout.step + 1}: {rollout.tokens} tokens{turns}{took}, {rollout.status}, "
        f"reward {number(rollout.reward)}, {fate}"
    )


def _texts(rollout: Rollout, most: int = 1200) -> Text:
    if rollout.response is None:
        return Text("(no text: the run has no checkpoint with a tokeniser yet)", style="dim")
    response = rollout.response
    if len(response) > most:
        cut = len(response) - most
        response = f"{response[: most // 2]}\n... {cut:,} characters left out ...\n{response[-most // 2 :]}"
    return Text.assemble((rollout.prompt or "", "dim"), response)


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
    """Print the last step's metrics in columns."""
    heading(console, f"Metrics of step {row['step'] + 1}")
    hidden = ("spent_", "fate_", "reason_")
    values = [
        (name, value)
        for name, value in row.items()
        if name not in ("kind", "step", "non_finite") and not name.startswith(hidden) and value is not None
    ]
    table = Table.grid(padding=(0, 3))
    num_lines = -(-len(values) // 3)
    for line in range(num_lines):
        cells = [cell for name, value in values[line::num_lines] for cell in (name, number(value))]
        table.add_row(*cells)
    console.print(table)


def print_summary(console: Console, summary: Summary) -> None:
    """Print everything that `rollwright show` shows."""
    print_header(console, summary)
    print_evaluations(console, summary.evaluations)
    print_curve(console, summary.curve)
    print_books(console, summary.books)
    print_failures(console, summary.failures)
    print_lengths(console, summary)
    print_rollouts(console, "Longest rollouts", summary.longest)
    slowest = [r for r in summary.slowest if r.stream not in {r.stream for r in summary.longest}]
    print_rollouts(console, f"Slowest rollouts (up to {duration(_most(summary))})", slowest)
    if summary.steps:
        print_metrics(console, summary.steps[-1])


def _most(summary: Summary) -> float | None:
    return max((r.seconds for r in summary.slowest if r.seconds is not None), default=None)
