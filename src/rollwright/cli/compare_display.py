"""What a comparison shows: a live table of its runs, then what they say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from rollwright.cli.report import heading, table_of
from rollwright.cli.text import number, percent, sparkline
from rollwright.compare.budget import AXES
from rollwright.compare.page import percent as in_percent
from rollwright.compare.page import ratio_text, to_target_text

if TYPE_CHECKING:
    from rollwright.compare.arms import Band
    from rollwright.compare.result import Result
    from rollwright.compare.run import Comparison

Row = dict[str, Any]


class Display:
    """A live table on a terminal, else one line for each run that ends."""

    def __init__(self, comparison: Comparison, console: Console) -> None:
        self.comparison, self.console = comparison, console
        self.spent: dict[tuple[str, int], float] = {}
        self.curves: dict[tuple[str, int], list[float]] = {}
        self.failed: dict[tuple[str, int], str] = {}
        self._live: Live | None = None
        for key, run in comparison.runs.items():
            self.curves[key] = [point.success for point in run.points]
            self.spent[key] = run.spent.get(comparison.plan.budget.unit, 0.0)

    def __enter__(self) -> Display:
        plan = self.comparison.plan
        done = sum(run.state == "done" for run in self.comparison.runs.values())
        self.say(
            f"{plan.task}: {', '.join(arm.label for arm in plan.arms)}; "
            f"{len(plan.seeds)} seeds at {plan.budget} each"
            f" ({done} of {len(self.comparison.keys)} runs are done), into {self.comparison.out}"
        )
        if self.console.is_terminal:
            self._live = Live(get_renderable=self.render, console=self.console, refresh_per_second=2)
            self._live.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        if self._live is not None:
            self._live.__exit__(*error)

    def say(self, text: str) -> None:
        self.console.print(text, soft_wrap=True, markup=False, highlight=False)

    def row(self, label: str, seed: int, row: Row) -> None:
        """Take note of a row of metrics of a run."""
        key = (label, seed)
        if row["kind"] == "step":
            self.spent[key] = float(row.get(f"spent_{self.comparison.plan.budget.unit}") or 0)
        elif row.get("sampled_success") is not None:
            self.curves[key].append(float(row["sampled_success"]))

    def end(self, label: str, seed: int, end: Row) -> None:
        """Take note of the end of a run."""
        key = (label, seed)
        run = self.comparison.runs[key]
        self.curves[key] = [point.success for point in run.points]
        if "failed" in end:
            self.failed[key] = str(end["failed"])
            self.say(f"{label} seed {seed} failed: {end['failed']}")
        elif self._live is None and "done" in end:
            last = run.points[-1].success if run.points else None
            self.say(f"{label} seed {seed}: {percent(last)} after {run.num_updates} updates ({end['done']})")

    def render(self) -> Group:
        """Return the table as it is now: one line an arm, one cell a seed."""
        plan, runs = self.comparison.plan, self.comparison.runs
        table = Table("", *(f"seed {seed}" for seed in plan.seeds[-8:]), box=None, pad_edge=False)
        for arm in plan.arms:
            cells = [self._cell((arm.label, seed)) for seed in plan.seeds[-8:]]
            table.add_row(Text(arm.label, style="bold"), *cells)
        done = sum(run.state == "done" for run in runs.values())
        return Group(
            table, Text(f"{done} of {len(runs)} runs done, {len(self.comparison.flying)} going on", "dim")
        )

    def _cell(self, key: tuple[str, int]) -> Text:
        curve = self.curves.get(key, [])
        line = sparkline(curve, 9)
        last = percent(curve[-1]) if curve else "-"
        if key in self.failed:
            return Text("failed", style="red")
        if key in self.comparison.flying:
            share = self.spent.get(key, 0.0) / self.comparison.plan.budget.amount
            return Text.assemble((line, "green"), f" {last} ", (f"{min(share, 1):.0%} spent", "dim"))
        if self.comparison.runs[key].state == "done":
            return Text.assemble((line, "green"), f" {last}")
        return Text("waits", style="dim")


def print_result(console: Console, result: Result) -> None:
    """Print what a comparison says."""
    plan = result.plan
    heading(console, f"Success at {plan.budget} (95% intervals over seeds)")
    table = table_of("", ">seeds", ">before", ">at the budget", ">over the budget", ">greedy", ">updates")
    for arm in result.arms:
        cells = (
            _mean(arm.start),
            in_percent(arm.final),
            in_percent(arm.area),
            _mean(arm.greedy),
        )
        table.add_row(Text(arm.label), str(arm.num_done), *cells, number(arm.updates))
    console.print(table)
    for one in result.contrasts:
        style = "bold" if one.is_found else ""
        console.print(Text(one.sentence, style=style), soft_wrap=True)
    _print_target(console, result)
    _print_waste(console, result)
    for arm in result.arms:
        for seed, why in arm.failed.items():
            console.print(Text(f"left out: {arm.label} seed {seed}: {why}", style="yellow"), soft_wrap=True)


def _print_target(console: Console, result: Result) -> None:
    if result.target is None:
        return
    how = "halfway from the start to the best end" if result.is_target_chosen else "as given"
    heading(console, f"What {percent(result.target)} success takes ({how}; median, interval over seeds)")
    table = table_of("", ">reached", *(f">{word}" for word in AXES.values()), ">against the baseline")
    for arm in result.arms:
        cells = [to_target_text(arm.to_target.get(axis)) for axis in AXES]
        one = next(iter(arm.to_target.values()), None)
        table.add_row(
            Text(arm.label), f"{one.num_reached}/{one.num}" if one else "-", *cells, ratio_text(arm)
        )
    console.print(table)


def _print_waste(console: Console, result: Result) -> None:
    heading(console, "Where the sampled tokens went, and what was trained of what was sampled")
    table = table_of(
        "", ">trained", "the rest", ">sampled length", ">trained length", ">trained reward − sampled"
    )
    for arm in result.arms:
        rest = [
            f"{name} {percent(b.mean)}"
            for name, b in arm.fates.items()
            if name != "trained" and b.mean >= 0.0005
        ]
        by_name = {one.measure: one for one in arm.selection}
        length, reward = by_name.get("length"), by_name.get("reward")
        gap = None
        if reward and reward.mean_trained is not None and reward.mean_sampled is not None:
            gap = reward.mean_trained - reward.mean_sampled
        trained = arm.fates.get("trained")
        table.add_row(
            Text(arm.label),
            percent(trained.mean if trained else None),
            Text(", ".join(rest) or "nothing"),
            number(length.mean_sampled if length else None),
            number(length.mean_trained if length else None),
            "-" if gap is None else f"{gap:+.3f}",
        )
    console.print(table)


def _mean(band: Band | None) -> str:
    return percent(None if band is None else band.mean)
