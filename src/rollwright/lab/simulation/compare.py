"""Several schedulers on one setup, side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from rollwright.lab.simulate import SimulationReport, StepTimes, simulate
from rollwright.lab.simulation.setup import Scheduler, Setup


class Row(msgspec.Struct, frozen=True):
    """What a scheduler did on a setup, without the warm-up and the last ``num_ahead`` steps.

    Args:
        tokens_per_second: response tokens trained on; rollout_rate: over the time of the rollouts alone.
        step_seconds, tail_seconds: means; the tail is the last tenth of the rollouts.
        speedup: tokens_per_second over those of the first scheduler.
        rollout_speedup: the same for tokens over the time of the rollouts alone.
        tail_ratio: tail_seconds over those of the first scheduler.
        age_mean, age_max: of the trained rollouts, in versions.
        report: everything.
    """

    name: str
    tokens_per_second: float
    rollout_rate: float
    step_seconds: float
    tail_seconds: float
    speedup: float
    rollout_speedup: float
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
        # The last steps roll out alone, where the others had the next ones beside them.
        last = max(setup.num_warm + 1, len(report.steps) - scheduler.num_ahead)
        steps = report.steps[setup.num_warm : last]
        rows.append(_row(scheduler.name, report, steps, rows[0] if rows else None))
        if on_row is not None:
            on_row(rows[-1])
    return rows


def _over(amount: float, whole: float) -> float:
    return amount / whole if whole else 0.0


def _row(name: str, report: SimulationReport, steps: Sequence[StepTimes], first: Row | None) -> Row:
    rolling = sum(step.rollouts_seconds for step in steps)
    seconds = rolling + sum(step.learn_seconds for step in steps)
    num_trained = sum(step.num_trained for step in steps)
    rate, rollout_rate = _over(num_trained, seconds), _over(num_trained, rolling)
    tail = sum(step.tail_seconds for step in steps) / max(1, len(steps))
    num = sum(report.ages.values())
    return Row(
        name=name,
        tokens_per_second=rate,
        step_seconds=seconds / max(1, len(steps)),
        tail_seconds=tail,
        rollout_rate=rollout_rate,
        speedup=1.0 if first is None else _over(rate, first.tokens_per_second),
        rollout_speedup=1.0 if first is None else _over(rollout_rate, first.rollout_rate),
        tail_ratio=1.0 if first is None or not first.tail_seconds else tail / first.tail_seconds,
        age_mean=sum(age * count for age, count in report.ages.items()) / num if num else 0.0,
        age_max=max(report.ages, default=0),
        report=report,
    )
