"""What was sampled against what was trained: counts, distances, tasks that were never trained.

A selection that does not look at lengths, durations, tasks or rewards leaves their distributions as they
are. Everything is read from the journal, so it goes for runs that are running, dead or done, and for all
methods alike.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rollwright.lab.distance import selection_distance, selection_p_value
from rollwright.lab.population import TRAINED, Population, Sample, read_population
from rollwright.store.layout import JOURNAL

MAX_TASKS = 20  # tasks that a report names


@dataclass(frozen=True, slots=True)
class Comparison:
    """One measure of the sampled rollouts against that of the trained ones.

    Args:
        measure: ``"length"`` (sampled tokens), ``"length at the close"``, ``"seconds"`` (prompt to grade),
            ``"reward"``. At the close: a rollout counts at every close at which it was there, as trained
            only at that of its own batch, so that an early close shows even if nothing is lost in the end.
        num_sampled, num_trained: rollouts of which it is known.
        mean_sampled, mean_trained: None where there are none.
        distance: Kolmogorov-Smirnov, trained from sampled, in [0, 1].
        p_value: how often a choice that does not look at the measure lies as far off; None where all or
            none were trained (`rollwright.lab.distance.selection_p_value`).
    """

    measure: str
    num_sampled: int
    num_trained: int
    mean_sampled: float | None
    mean_trained: float | None
    distance: float | None
    p_value: float | None


@dataclass(frozen=True, slots=True)
class End:
    """Rollouts that ended in one way: how many, their tokens, and their mean reward."""

    end: str
    num: int
    num_tokens: int
    length_mean: float | None
    seconds_mean: float | None
    reward_mean: float | None


@dataclass(frozen=True, slots=True)
class UntrainedTask:
    """A task that cost tokens and was never trained on."""

    task: str
    num_rollouts: int
    num_tokens: int
    reward_mean: float | None


@dataclass(frozen=True, slots=True)
class StepLengths:
    """One update: mean sampled tokens of the rollouts that were there, and of those that it trained on.

    There are the rollouts that had begun by the close and had not left before; each counts with the tokens
    that it had in the end. An early close shows here: what is trained is shorter than what is there.
    """

    step: int
    num_there: int
    num_trained: int
    mean_there: float
    mean_trained: float


@dataclass(frozen=True, slots=True)
class Bias:
    """What a run's selection did.

    Args:
        num_sampled, num_trained: rollouts that are decided on, and those of them that were trained.
        num_unfinished: of the sampled, those that a step's close passed over and that are not done: they
            count with the tokens that they have so far.
        num_undecided: rollouts of the step that is under way: left out.
        comparisons: one for each measure.
        ends: rollouts by how they ended.
        num_tasks, num_tasks_trained: tasks of the sampled and of the trained rollouts.
        never_trained: the tasks of which nothing was trained, those that cost most tokens first.
        num_never_trained: how many they are in all.
        task_distance: half the sum over tasks of |share of the sampled - share of the trained|, in [0, 1].
        tokens_trained_share: of the sampled tokens of these rollouts; the ledger counts shared prefixes once.
        steps: lengths by update.
    """

    num_sampled: int
    num_trained: int
    num_unfinished: int
    num_undecided: int
    comparisons: tuple[Comparison, ...]
    ends: tuple[End, ...]
    num_tasks: int
    num_tasks_trained: int
    never_trained: tuple[UntrainedTask, ...]
    num_never_trained: int
    task_distance: float | None
    tokens_trained_share: float | None
    steps: tuple[StepLengths, ...]


def report(run: str | Path, num_permutations: int = 2000) -> Bias:
    """Compare what a run sampled with what it trained on.

    Args:
        run: a run folder, or a journal.
        num_permutations: of each test.

    Raises:
        StoreError: there is no journal.
        JournalCorrupt: a record before the end is damaged.
    """
    path = Path(run)
    return compare(read_population(path / JOURNAL if path.is_dir() else path), num_permutations)


def compare(population: Population, num_permutations: int = 2000) -> Bias:
    """Return the report on a population."""
    samples = population.decided()
    trained = [s for s in samples if s.is_trained]
    num_tokens = sum(s.num_tokens for s in samples)
    never = _never_trained(samples)
    tasks, tasks_trained = _shares(samples), _shares(trained)
    there = _there(population, samples)
    measured = _measured(samples, there)
    return Bias(
        num_sampled=len(samples),
        num_trained=len(trained),
        num_unfinished=sum(population.is_unfinished(s) for s in samples),
        num_undecided=population.num_undecided,
        comparisons=tuple(_compare(*item, num_permutations) for item in measured.items()),
        ends=_ends(population, samples),
        num_tasks=len(tasks),
        num_tasks_trained=len(tasks_trained),
        never_trained=tuple(never[:MAX_TASKS]),
        num_never_trained=len(never),
        task_distance=sum(abs(share - tasks_trained.get(task, 0.0)) for task, share in tasks.items()) / 2
        if trained
        else None,
        tokens_trained_share=sum(s.num_tokens for s in trained) / num_tokens if num_tokens else None,
        steps=_steps(population, there),
    )


Measured = tuple[float, bool, str]  # value, whether it was trained, cluster


def _measured(samples: Sequence[Sample], there: Sequence[Sequence[Sample]]) -> dict[str, list[Measured]]:
    return {
        "length": [(s.num_tokens, s.is_trained, s.group) for s in samples],
        "length at the close": [
            (s.num_tokens, s.trained_in == k, f"{k} {s.group}") for k, here in enumerate(there) for s in here
        ],
        "seconds": [(s.seconds, s.is_trained, s.group) for s in samples if s.seconds is not None],
        "reward": [(s.reward, s.is_trained, s.group) for s in samples if s.reward is not None],
    }


def _compare(measure: str, rows: Sequence[Measured], num_permutations: int) -> Comparison:
    values = [value for value, _, _ in rows]
    is_trained = [chosen for _, chosen, _ in rows]
    return Comparison(
        measure=measure,
        num_sampled=len(rows),
        num_trained=sum(is_trained),
        mean_sampled=_mean(values),
        mean_trained=_mean([value for value, chosen, _ in rows if chosen]),
        distance=selection_distance(values, is_trained),
        p_value=selection_p_value(values, is_trained, [cluster for *_, cluster in rows], num_permutations),
    )


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None


def _shares(samples: Sequence[Sample]) -> dict[str, float]:
    counts: dict[str, int] = {}
    for sample in samples:
        counts[sample.task] = counts.get(sample.task, 0) + 1
    return {task: num / len(samples) for task, num in counts.items()}


def _by(samples: Iterable[tuple[str, Sample]]) -> dict[str, list[Sample]]:
    found: dict[str, list[Sample]] = {}
    for name, sample in samples:
        found.setdefault(name, []).append(sample)
    return found


def _ends(population: Population, samples: Sequence[Sample]) -> tuple[End, ...]:
    ends = [
        End(
            end=end,
            num=len(found),
            num_tokens=sum(s.num_tokens for s in found),
            length_mean=_mean(float(s.num_tokens) for s in found),
            seconds_mean=_mean(s.seconds for s in found),
            reward_mean=_mean(s.reward for s in found),
        )
        for end, found in _by((population.end_of(s), s) for s in samples).items()
    ]
    return tuple(sorted(ends, key=lambda end: (end.end != TRAINED, -end.num_tokens)))


def _never_trained(samples: Sequence[Sample]) -> list[UntrainedTask]:
    found = [
        UntrainedTask(task, len(mine), sum(s.num_tokens for s in mine), _mean(s.reward for s in mine))
        for task, mine in _by((s.task, s) for s in samples).items()
        if not any(s.is_trained for s in mine)
    ]
    return sorted(found, key=lambda one: (-one.num_tokens, one.task))


def _there(population: Population, samples: Sequence[Sample]) -> list[list[Sample]]:
    """Return for each close the rollouts that had begun by then and had not left before."""
    there: list[list[Sample]] = [[] for _ in population.closes]
    for sample in samples:
        last = population.left_in(sample)
        for here in there[sample.first : None if last is None else last + 1]:
            here.append(sample)
    return there


def _steps(population: Population, there: Sequence[Sequence[Sample]]) -> tuple[StepLengths, ...]:
    steps = []
    for k, (step, here) in enumerate(zip(population.closes, there, strict=True)):
        lengths = [s.num_tokens for s in here]
        chosen = [s.num_tokens for s in here if s.trained_in == k]
        if chosen:
            means = sum(lengths) / len(lengths), sum(chosen) / len(chosen)
            steps.append(StepLengths(step, len(lengths), len(chosen), *means))
    return tuple(steps)
