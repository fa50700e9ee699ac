"""An evaluation as tables on the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from rollwright.cli.report import heading, table_of
from rollwright.cli.text import number, percent, with_interval

if TYPE_CHECKING:
    from rollwright.evaluate.clusters import ClusterMean
    from rollwright.evaluate.exchange import Exchange
    from rollwright.evaluate.perturbed import Composition
    from rollwright.evaluate.samples import Measured, Report

_MEASURES = {
    "pass": "pass@k: one of k is right",
    "auc": "AUC@k: mean of pass@1 to pass@k",
    "cons": "cons@k: the most frequent answer of k",
    "best": "best-of-k by mean logprob",
    "first": "first of k to finish",
}


def print_found(console: Console, title: str, found: Mapping[str, Any]) -> None:
    """Print what `rollwright eval` found, by name."""
    console.print(title, highlight=False, markup=False, style="bold", soft_wrap=True)
    table = table_of("", "success", ">reward", ">length", ">tasks", ">rollouts", ">not scored")
    for name in ("sampled", "greedy"):
        result = found[name]
        counts = (result.num_tasks, result.num_rollouts, result.num_not_scored)
        numbers = map(number, (result.reward, result.length, *counts))
        table.add_row(name, with_interval(result.success, result.low, result.high), *numbers)
    console.print(table)
    print_measures(console, found["measures"])
    if "perturbed" in found:
        print_composition(console, found["perturbed"])
    if "exchange" in found:
        print_exchange(console, found["exchange"])
    if "difficulty" in found:
        print_difficulty(console, found)


def print_measures(console: Console, report: Report) -> None:
    """Print every measure at every k; nothing where there is one sample a task."""
    ks = sorted({one.k for one in report.measured})
    if len(ks) < 2 or report.average is None:
        return
    average = report.average
    heading(console, "Several samples a task (95% intervals over tasks)")
    table = table_of("", *(f">k = {k}" for k in ks))
    for name, text in _MEASURES.items():
        mine = {one.k: one for one in report.measured if one.name == name}
        if mine:
            table.add_row(text, *(_measured(mine.get(k)) for k in ks))
    console.print(table)
    mean = with_interval(average.mean, average.low, average.high)
    console.print(f"avg@n over all samples: {mean}, tasks as clusters", highlight=False)


def _measured(one: Measured | None) -> str:
    return "-" if one is None else with_interval(one.mean, one.low, one.high)


def print_composition(console: Console, found: Composition) -> None:
    """Print how single perturbations compose."""
    heading(console, f"Perturbed: {number(found.num)} runs of {number(found.num_instances)} tasks, matched")
    table = table_of("", ">rate")
    for name, one in found.singles.items():
        table.add_row(Text(f"success under {name}"), _points(one))
    for text, one in (
        ("success under each of them", found.all_singles),
        ("success under all together", found.joint),
        ("emergent failures: right under each, wrong under all", found.emergent),
        ("compensated successes: wrong under one, right under all", found.compensated),
        ("difference of both", found.difference),
        ("changed in all", found.changed),
    ):
        table.add_row(text, _points(one))
    console.print(table)
    if found.num_unmatched:
        console.print(f"left out: {number(found.num_unmatched)} runs that were not scored under every one")
    if found.hides:
        share = percent(found.changed.mean)
        console.print(f"The means hide it: all together looks like the singles, yet {share} change.")


def print_exchange(console: Console, found: Exchange) -> None:
    """Print what samples are worth in samples of the model before training."""
    rule = found.rule
    heading(console, "Samples of the model before training that one of this is worth")
    console.print(
        f"  N_base = {rule.alpha:.3g} · N^{rule.beta:.3g} (fitted on {rule.num} points)", highlight=False
    )
    worth = ", ".join(f"{k} -> {number(round(rule.base(k), 1))}" for k in found.ks)
    console.print(f"  {worth}", highlight=False)
    error = f"{100 * found.error:.1f} [{100 * found.low:.1f}, {100 * found.high:.1f}]"
    console.print(f"  off by {error} points of pass@k on tasks that it was not fitted on", highlight=False)
    if found.out_of_reach:
        console.print(
            f"  {percent(found.out_of_reach)} of the curve is out of reach of the samples before training"
        )


def print_difficulty(console: Console, found: Mapping[str, Any]) -> None:
    """Print how well prompts tell success, and which tasks are far off."""
    one = found["difficulty"]
    heading(console, "Success told from the prompt alone, each task by the others")
    table = table_of(">mean error", ">of the mean alone", ">Brier", ">rank correlation", ">AUC")
    table.add_row(*map(number, (one.mae, one.base_mae, one.brier, one.spearman, one.auc)))
    console.print(table)
    for suspect in found["suspects"][:8]:
        shares = f"{percent(suspect.observed)} right, {percent(suspect.predicted)} expected"
        console.print(f"  {suspect.task}: {shares}, {suspect.why}", highlight=False, markup=False)


def _points(one: ClusterMean) -> str:
    return f"{100 * one.mean:.1f}% [{100 * one.low:.1f}, {100 * one.high:.1f}]"
