"""What a training run shows while it goes on: a live panel on a terminal, else one line a step."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn
from rich.text import Text

from rollwright.cli.text import duration, number, percent, sparkline, with_interval

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Rates:
    """How fast it goes, and how long it will take; None where nothing is known yet."""

    tokens_per_s: float | None
    rollouts_per_s: float | None
    seconds_left: float | None


class Pace:
    """Measures the pace of a run by the wall clock; evaluations do not count as rollout time.

    Args:
        num_steps: the last step, counted from 1.
        budget: limits by unit.
        is_fresh: the run starts now, so nothing was spent before.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        num_steps: int,
        budget: Mapping[str, float],
        is_fresh: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.num_steps, self.budget, self.clock = num_steps, budget, clock
        self._last_row = clock()
        self._tokens: float | None = 0.0 if is_fresh else None
        self._recent: deque[tuple[float, Row]] = deque(maxlen=21)

    def evaluation(self) -> None:
        """Note that an evaluation ended now."""
        self._last_row = self.clock()

    def step(self, row: Row) -> Rates:
        """Note that a step ended now and return the rates of this step."""
        now = self.clock()
        took = max(now - self._last_row, 1e-9)
        sampled = float(row.get("spent_sampled_tokens") or 0)
        tokens = None if self._tokens is None else (sampled - self._tokens) / took
        self._last_row, self._tokens = now, sampled
        self._recent.append((now, row))
        return Rates(tokens, float(row.get("num_rollouts") or 0) / took, self._left(row))

    def _left(self, row: Row) -> float | None:
        if len(self._recent) < 2:
            return None
        (began, first), (now, _) = self._recent[0], self._recent[-1]
        num = len(self._recent) - 1
        steps_left: float = self.num_steps - 1 - int(row["step"])
        for unit, limit in self.budget.items():
            spent = float(row.get(f"spent_{unit}") or 0)
            per_step = (spent - float(first.get(f"spent_{unit}") or 0)) / num
            if per_step > 0:
                steps_left = min(steps_left, (limit - spent) / per_step)
        return max(0.0, steps_left) * (now - began) / num


def step_line(row: Row, rates: Rates, num_steps: int) -> str:
    """Return a step as one plain line."""
    parts = [
        f"step {int(row['step']) + 1}/{num_steps}",
        f"reward {number(row.get('reward_mean'))}",
        f"right {percent(success(row))}",
        f"length {number(row.get('length_mean'))}",
        f"{number(rates.tokens_per_s)} tokens/s",
        f"{number(rates.rollouts_per_s)} rollouts/s",
    ]
    if row.get("num_not_scored"):
        parts.append(f"{number(row['num_not_scored'])} not scored")
    if row.get("num_failed"):
        parts.append(f"{number(row['num_failed'])} failed")
    if row.get("skipped_update"):
        parts.append("no update (nothing to learn from)")
    return "  ".join([*parts, f"left {duration(rates.seconds_left)}"])


def success(row: Row) -> float | None:
    """Return the share of right rollouts among the scored ones of a step; None without any."""
    scored = row.get("num_scored")
    return float(row.get("status:right") or 0) / float(scored) if scored else None


def held_out(row: Row, name: str) -> str:
    """Return one kind of success of an evaluation row with its interval."""
    return with_interval(row.get(f"{name}_success"), row.get(f"{name}_low"), row.get(f"{name}_high"))


def evaluation_line(row: Row) -> str:
    """Return an evaluation as one plain line."""
    return (
        f"held-out at version {row['step']}: sampled {held_out(row, 'sampled')}  "
        f"greedy {held_out(row, 'greedy')}  ({number(row.get('sampled_num_tasks'))} tasks)"
    )


class Display:
    """Shows rows of metrics as they come.

    Args:
        console: where to.
        title: what runs.
        num_steps, budget: the ends of the run.
        is_fresh: False for a run that goes on.
        num_done: steps done before.
    """

    def __init__(
        self,
        console: Console,
        title: str,
        num_steps: int,
        budget: Mapping[str, float],
        is_fresh: bool = True,
        num_done: int = 0,
    ) -> None:
        self.console, self.title, self.num_steps = console, title, num_steps
        self.pace = Pace(num_steps, budget, is_fresh)
        self.curve: list[float] = []
        self.evaluations: list[Row] = []
        self.line, self.message = "starting", ""
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("step {task.completed}/{task.total}"),
            BarColumn(bar_width=30),
            TextColumn("{task.percentage:3.0f}%  left {task.fields[left]}"),
            console=console,
        )
        self._task = self._bar.add_task("", total=num_steps, completed=num_done, left="-")
        self._live: Live | None = None

    def __enter__(self) -> Display:
        if self.console.is_terminal:
            self._live = Live(get_renderable=self.render, console=self.console, refresh_per_second=6)
            self._live.__enter__()
        else:
            self.say(self.title)
        return self

    def __exit__(self, *error: Any) -> None:
        if self._live is not None:
            self._live.__exit__(*error)

    def say(self, text: str) -> None:
        """Print a line that stays."""
        self.console.print(text, soft_wrap=True, markup=False, highlight=False)

    def row(self, row: Row) -> None:
        """Show a row of metrics."""
        if row["kind"] == "evaluation":
            self.pace.evaluation()
            self.evaluations.append(row)
            if self._live is None:
                self.say(evaluation_line(row))
            return
        rates = self.pace.step(row)
        right = success(row)
        self.curve += [] if right is None else [right]
        self.line = step_line(row, rates, self.num_steps)
        self._bar.update(self._task, completed=int(row["step"]) + 1, left=duration(rates.seconds_left))
        if self._live is None:
            self.say(self.line)

    def render(self) -> Group:
        """Return the panel as it is now."""
        lines = [Text(self.title, style="bold"), self._bar.get_renderable()]
        details = self.line.partition("  ")[2].rpartition("  ")[0] or self.line
        lines.append(Text(f"  {details}"))
        if self.curve:
            lines.append(Text.assemble("  success ", (sparkline(self.curve), "green")))
        if self.evaluations:
            lines += [Text(f"  {evaluation_line(row)}") for row in self._shown_evaluations()]
        if self.message:
            lines.append(Text(f"  {self.message}", style="yellow"))
        return Group(*lines)

    def _shown_evaluations(self) -> list[Row]:
        first, last = self.evaluations[0], self.evaluations[-1]
        return [first] if first is last else [first, last]
