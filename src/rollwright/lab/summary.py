"""What a run folder says, finished, running or crashed: the data behind `rollwright show`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollwright.config import RunConfig
from rollwright.errors import JournalCorrupt, RollwrightError
from rollwright.lab.activity import Activity
from rollwright.lab.bias import Bias, compare
from rollwright.lab.population import Population
from rollwright.lab.process import writer
from rollwright.lab.records import records
from rollwright.lab.rollouts import JournalNotes, Rollout, Shards, Tail, fold_tail, read_notes
from rollwright.lab.statistics import interval
from rollwright.lab.timeline import Idle
from rollwright.lab.timeline import idle as measure_idle
from rollwright.ledger import Fate, Unit
from rollwright.store.layout import METRICS
from rollwright.store.rows import load_rows
from rollwright.store.run import RunFolder

Row = dict[str, Any]
_PERMUTATIONS = 500


@dataclass(frozen=True, slots=True)
class Point:
    """Success in one step's rollouts: mean over its groups, with a 95% interval (groups are clusters)."""

    step: int
    success: float
    low: float
    high: float
    num_groups: int


@dataclass(frozen=True, slots=True)
class Books:
    """The ledger: units spent and granted, tokens by fate, and by reason where they were not trained."""

    spent: dict[str, float]
    granted: dict[str, float]
    fates: dict[str, int]
    reasons: dict[str, int]


@dataclass
class Summary:
    """Everything that `rollwright show` shows.

    Args:
        path, config: the run.
        state: ``"finished"``, ``"running"`` or ``"stopped"``.
        state_text: the same in a sentence, with the reason.
        steps: one row of metrics a finished step.
        evaluations: one row an evaluation on held-out tasks.
        curve: success of the rollouts by step.
        books: the ledger now.
        lengths: (step, sampled tokens) of every rollout, [N, 2].
        longest, slowest: single rollouts.
        failures: how often which failure happened, the most frequent first.
        bias: what was sampled against what was trained; None without a readable journal.
        idle: how learner and engine spent the time; None without a readable journal.
        notes: what could not be read, and where figures come from.
    """

    path: Path
    config: RunConfig
    state: str
    state_text: str
    steps: list[Row]
    evaluations: list[Row]
    curve: list[Point]
    books: Books
    lengths: NDArray[np.int64]
    longest: list[Rollout]
    slowest: list[Rollout]
    failures: list[tuple[str, int]]
    bias: Bias | None = None
    idle: Idle | None = None
    notes: list[str] = field(default_factory=list)


def summarise(path: str | Path, num_rollouts: int = 3) -> Summary:
    """Read a run folder without changing it; the run may go on meanwhile.

    Args:
        path: the run folder.
        num_rollouts: how many of the longest and of the slowest rollouts to give.

    Raises:
        StoreError: it is no run folder, or was written by a newer version.
    """
    folder = RunFolder.view(path)
    config = folder.config()
    metrics = folder.path / METRICS
    rows = load_rows(metrics).rows if metrics.exists() else []
    steps = _by_step(rows, "step")
    notes: list[str] = []
    journal = _journal(folder, notes)
    shards = Shards(folder.path)
    tail = _tail(folder, shards, journal, steps, notes)
    rollouts = tail.rollouts if tail else []
    bias, idle = _selection(folder, notes) if journal.num_records else (None, None)
    state, state_text = _state(folder.path, config, journal, steps)
    fresh = shards.longest(num_rollouts, journal.seconds)
    longest = sorted([*fresh, *rollouts], key=lambda r: -r.tokens)[:num_rollouts]
    return Summary(
        path=folder.path,
        config=config,
        state=state,
        state_text=state_text,
        steps=steps,
        evaluations=_by_step(rows, "evaluation"),
        curve=_curve(shards.shares(), rollouts),
        books=_books(config, steps, tail),
        lengths=_lengths(shards, rollouts),
        longest=longest,
        slowest=_slowest(shards, journal.seconds, rollouts, num_rollouts),
        failures=journal.failures.most_common(),
        bias=bias,
        idle=idle,
        notes=notes,
    )


def _by_step(rows: Sequence[Row], kind: str) -> list[Row]:
    found = {row["step"]: row for row in rows if row.get("kind") == kind and isinstance(row.get("step"), int)}
    return [found[step] for step in sorted(found)]


def _journal(folder: RunFolder, notes: list[str]) -> JournalNotes:
    if not folder.journal_path.exists():
        return JournalNotes()
    try:
        return read_notes(folder.journal_path)
    except JournalCorrupt as error:
        notes.append(str(error))
        return JournalNotes()


def _selection(folder: RunFolder, notes: list[str]) -> tuple[Bias | None, Idle | None]:
    population, activity = Population(), Activity()
    try:
        for event, decisions in records(folder.journal_path):
            population.take(event, decisions)
            activity.take(event, decisions)
    except JournalCorrupt as error:
        notes.append(str(error))
        return None, None
    return compare(population, _PERMUTATIONS), measure_idle(activity)


def _tail(
    folder: RunFolder, shards: Shards, journal: JournalNotes, steps: Sequence[Row], notes: list[str]
) -> Tail | None:
    """Fold the journal where it knows more than the shards and the metrics."""
    in_shards = shards.steps()
    missing = [row["step"] for row in steps if row["num_rollouts"] and row["step"] not in in_shards]
    if not journal.num_records or (journal.finish is not None and not missing):
        return None
    try:
        return fold_tail(folder, in_shards, journal.seconds)
    except RollwrightError as error:
        notes.append(
            f"what the shards do not hold yet is left out, for the journal cannot be folded: {error}"
        )
        return None


def _curve(shares: Sequence[tuple[int, float | None]], rollouts: Sequence[Rollout]) -> list[Point]:
    of_group: dict[tuple[int, str], list[bool]] = {}
    for rollout in rollouts:
        if rollout.reward is not None:
            of_group.setdefault((rollout.step, rollout.group), []).append(rollout.status == "right")
    by_step: dict[int, list[float]] = {}
    for step, share in [*shares, *((step, float(np.mean(r))) for (step, _), r in of_group.items())]:
        if share is not None:
            by_step.setdefault(int(step), []).append(share)
    return [
        Point(step, float(np.mean(values)), *interval(values), len(values))
        for step, values in sorted(by_step.items())
    ]


def _lengths(shards: Shards, rollouts: Sequence[Rollout]) -> NDArray[np.int64]:
    rows = [*shards.lengths(), *((rollout.step, rollout.tokens) for rollout in rollouts)]
    return np.array(rows, dtype=np.int64).reshape(-1, 2)


def _books(config: RunConfig, steps: Sequence[Row], tail: Tail | None) -> Books:
    if tail is not None:
        ledger = tail.runner.ledger
        spent = {**ledger.spent, Unit.SECONDS.value: tail.runner.last_at}
        return Books(spent, dict(config.budget), dict(ledger.fates), dict(ledger.reasons))
    last = steps[-1] if steps else {}

    def named(prefix: str) -> dict[str, Any]:
        return {name.removeprefix(prefix): value for name, value in last.items() if name.startswith(prefix)}

    fates = {fate.value: int(named("fate_").get(fate.value, 0)) for fate in Fate}
    return Books(named("spent_"), dict(config.budget), fates, named("reason_"))


def _slowest(
    shards: Shards, seconds: dict[str, float], rollouts: Sequence[Rollout], num: int
) -> list[Rollout]:
    names = sorted(seconds, key=lambda name: -seconds[name])[: 4 * num]
    known = {r.stream: r for r in [*rollouts, *shards.named(names, seconds)]}
    return [known[name] for name in names if name in known][:num]


def _state(path: Path, config: RunConfig, journal: JournalNotes, steps: Sequence[Row]) -> tuple[str, str]:
    done = f"{len(steps)} of {config.num_steps} steps"
    pid = writer_pid(path)
    if pid is not None:
        return "running", f"running as pid {pid}, {done} done"
    if journal.finish is not None:
        return "finished", f"finished: {journal.finish} ({len(steps)} steps)"
    return "stopped", f"stopped after {done}; go on with: rollwright train --resume {path}"


def writer_pid(path: Path) -> int | None:
    """Return the pid of another process on this machine that writes a run folder, None if there is none.

    It takes no lock, so it never stands in a writer's way.
    """
    found = writer(path)
    if found is None or found.state == "elsewhere" or found.pid == os.getpid():
        return None
    return found.pid
