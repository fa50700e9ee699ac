"""`rollwright demo`."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import as_file, files
from pathlib import Path

from rich.console import Console
from rich.text import Text

from rollwright.cli import launch
from rollwright.cli.progress import Row, held_out
from rollwright.config import RunConfig, load_config

_INTRO = (
    "A model of under a million parameters learns Countdown: reach a target from given numbers, each used "
    "once. It starts from imperfect demonstrations and learns from its own rollouts, graded right or wrong. "
    "Every token is recorded."
)


def demo(*, seed: int = 0, out: Path | None = None, seconds: float | None = None) -> int:
    """Train a small model on Countdown in a few minutes and show what came of it.

    Prints success on held-out tasks before and after, sampled and greedy, with 95% intervals; where
    every token went; and saves a picture in the run folder. Ctrl-C stops it cleanly.

    For example:

    `rollwright demo`

    `rollwright demo --seed 3 --seconds 60`

    Args:
        seed: Of all randomness: the same seed gives the same run.
        out: The run folder; a new one under `runs/` without it.
        seconds: End the training after so many seconds.
    """
    console = Console()
    config = preset(seed, out, seconds)
    console.print(Text(_INTRO))
    console.print()
    code, folder = launch.start(config, console)
    if code == 0:
        _print_result(console, folder)
    return code


def preset(seed: int = 0, out: Path | None = None, seconds: float | None = None) -> RunConfig:
    """Return the demo's config."""
    with as_file(files("rollwright.cli") / "demo.toml") as path:
        given = {"seed": seed, "out": None if out is None else str(out), "budget.seconds": seconds}
        return load_config(path, given)


def _print_result(console: Console, folder: Path) -> None:
    from rollwright.cli.report import heading, print_books, print_curve
    from rollwright.lab.plots import draw
    from rollwright.lab.summary import summarise

    summary = summarise(folder)
    picture = draw(summary, folder / "plots" / "summary.png")
    print_curve(console, summary.curve)
    print_books(console, summary.books)
    print_before_after(console, summary.evaluations)
    heading(console, "What is left, and what to try next")
    lines = [
        ("the run folder", str(folder)),
        ("the picture", str(picture)),
        ("look at it again", f"rollwright show {folder}"),
        ("measure it on more tasks", f"rollwright eval {folder} --num 500"),
        ("another way to spend rollouts", "rollwright methods"),
    ]
    if not summary.config.budget:  # a run that its budget ended has nothing left to go on with
        longer = f"rollwright train --resume {folder} --num-steps {2 * len(summary.steps)}"
        lines.insert(4, ("train it for longer", longer))
    width = max(len(what) for what, _ in lines)
    for what, how in lines:
        console.print(Text(f"  {what:<{width}}  {how}"), soft_wrap=True)


def print_before_after(console: Console, rows: Sequence[Row]) -> None:
    """Print success on held-out tasks before and after training."""
    from rollwright.cli.report import heading, table_of

    if not rows:
        return
    before, after = rows[0], rows[-1]
    heading(console, f"Held-out tasks ({before['sampled_num_tasks']} tasks, 95% intervals)")
    table = table_of("", "before", f"after {after['step']} updates", ">change in points")
    for name, text in (("sampled", "sampled, temperature 1"), ("greedy", "greedy")):
        change = _difference(after.get(f"{name}_success"), before.get(f"{name}_success"))
        table.add_row(text, held_out(before, name), held_out(after, name), change)
    console.print(table)


def _difference(after: float | None, before: float | None) -> str:
    return "-" if after is None or before is None else f"{100 * (after - before):+.1f}"
