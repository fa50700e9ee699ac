"""Several schedulers on one setup, side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from rollwright.lab.simulate import SimulationReport, simulate
from rollwright.lab.simulation.setup import Scheduler, Setup


class Row(msgspec.Struct, frozen=True):
    """What a scheduler did on a setup, warm-up left out.

    Args:
        tokens_per_second: response tokens trained on.
        step_seconds, tail_seconds: means; the tail is the last tenth of the rollouts.
        speedup: tokens_per_second over those of the first scheduler.
        tail_ratio: tail_seconds over those of the first scheduler.
        age_mean, age_max: of the trained rollouts, in versions.
        report: everything.
    """

    name: str
    tokens_per_second: float
    step_seconds: float
    tail_seconds: float
    speedup: float
    tail_ratio: float
    age_mean: float
    age_max: int
    report: SimulationReport


def compare(
    setup: Setup, schedulers: Iterable[Scheduler], on_row: Callable[[Row], None] | None = None
) -> list[Row]:
    """Simulate each scheduler on the setup; the first one is what the others are compared with.

    Raises:
        ConfigError: a scheduler or the setup cannot be run.
    """
    rows: list[Row] = []
    for scheduler in schedulers:
        report = simulate(*scheduler.build(setup))
        rows.append(_row(scheduler.name, report, setup.num_warm, rows[0] if rows else None))
        if on_row is not None:
            on_row(rows[-1])
    return rows


def _row(name: str, report: SimulationReport, num_warm: int, first: Row | None) -> Row:
    steps = report.steps[num_warm:]
    seconds = sum(step.rollouts_seconds + step.learn_seconds for step in steps)
    rate = sum(step.num_trained for step in steps) / seconds if seconds else 0.0
    tail = sum(step.tail_seconds for step in steps) / max(1, len(steps))
    num = sum(report.ages.values())
    return Row(
        name=name,
        tokens_per_second=rate,
        step_seconds=seconds / max(1, len(steps)),
        tail_seconds=tail,
        speedup=1.0 if first is None else rate / first.tokens_per_second,
        tail_ratio=1.0 if first is None or not first.tail_seconds else tail / first.tail_seconds,
        age_mean=sum(age * count for age, count in report.ages.items()) / num if num else 0.0,
        age_max=max(report.ages, default=0),
        report=report,
    )
