"""What a run's selection did and how idle it was, as tables on the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from rollwright.cli.report import heading, table_of
from rollwright.cli.text import number, percent
from rollwright.cli.timeline import lines

if TYPE_CHECKING:
    from rollwright.lab.bias import Bias
    from rollwright.lab.timeline import Idle


def print_bias(console: Console, bias: Bias) -> None:
    """Print what was sampled against what was trained."""
    if not bias.num_sampled:
        return
    share = percent(bias.num_trained / bias.num_sampled)
    of_all = f"{number(bias.num_trained)} of {number(bias.num_sampled)} rollouts ({share})"
    heading(console, f"Sampled against trained: {of_all} were trained")
    table = table_of("mean", ">sampled", ">trained", ">distance", ">p")
    for one in bias.comparisons:
        if one.num_sampled:
            values = (one.mean_sampled, one.mean_trained, one.distance, one.p_value)
            table.add_row(one.measure, *map(number, values))
    console.print(table)
    console.print(
        "  distance: Kolmogorov-Smirnov, trained from sampled; p: how often a blind choice lies as far off",
        style="dim",
        highlight=False,
    )
    _print_ends(console, bias)
    _print_tasks(console, bias)


def _print_ends(console: Console, bias: Bias) -> None:
    table = table_of("rollouts that were", ">number", ">tokens", ">length", ">seconds", ">reward")
    for end in bias.ends:
        means = (end.length_mean, end.seconds_mean, end.reward_mean)
        table.add_row(end.end, number(end.num), number(end.num_tokens), *map(number, means))
    console.print(table)
    if bias.num_undecided:
        console.print(f"  not counted yet: {number(bias.num_undecided)} of the step under way", style="dim")


def _print_tasks(console: Console, bias: Bias) -> None:
    words = f"  tasks: {number(bias.num_tasks)} sampled, {number(bias.num_tasks_trained)} trained"
    if bias.task_distance is not None:
        words += f", distance {number(bias.task_distance)}"
    console.print(words, highlight=False)
    if not bias.num_never_trained:
        return
    worst = [
        f"{one.task} ({one.num_rollouts} rollouts, {number(one.num_tokens)} tokens, "
        f"reward {number(one.reward_mean)})"
        for one in bias.never_trained[:4]
    ]
    more = ", ..." if bias.num_never_trained > len(worst) else ""
    words = f"  never trained: {number(bias.num_never_trained)}, most costly first: {', '.join(worst)}{more}"
    console.print(Text(words), soft_wrap=True)


def print_idle(console: Console, idle: Idle) -> None:
    """Print how the run's seconds divide."""
    if not idle.seconds:
        return
    heading(console, "Idle")
    for line in lines(idle):
        console.print(Text(f"  {line}"), soft_wrap=True)
