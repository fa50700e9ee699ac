"""Where a run's time went: idle shares of learner and engines, and a trace for Perfetto.

Both are read from the journal alone (`rollwright.lab.activity`). A part of the run is busy while work
for it is under way: the learner from a batch to its new weights, an engine while it owes the answer to at
least one request. What an engine does with that time (decode, prefill, wait for the thread) the journal
does not say.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rollwright.lab.activity import ENVIRONMENT, GRADE, KINDS, PROMPT, SAMPLE, Activity, Work

Span = tuple[float, float]
LEARNER, REPORTING = "learner", "reporting"
_INSTANT = 1e-6  # seconds that tokens take which came in no time


@dataclass(frozen=True, slots=True)
class Idle:
    """How a run's seconds divide.

    Args:
        seconds: of the run so far.
        learner_idle, engine_idle: shares of them in which the learner has no batch, and in which no
            request is with an engine, in [0, 1]; engines by policy.
        both_idle: share in which neither works.
        overlap: share in which both work.
        in_flight_mean: requests with the engines, mean over the time in which there are any.
        waits: seconds in which neither works, by what was under way instead: ``"grade"``,
            ``"environment"``, ``"prompt"``, ``"reporting"`` (records, checkpoints, evaluations) or
            ``"nothing"``; of several the first in this order.
        tokens_per_second: sampled tokens per second of the run, and per second of a busy engine.
    """

    seconds: float
    learner_idle: float
    engine_idle: float
    engine_idle_by_policy: dict[str, float]
    both_idle: float
    overlap: float
    in_flight_mean: float
    waits: dict[str, float]
    tokens_per_second: float
    tokens_per_busy_second: float


def spans(activity: Activity, kind: str, policy: str | None = None) -> list[Span]:
    """Return (from, to) of all work of a kind; what is open ends at the last record.

    Args:
        kind: one of `KINDS`, `LEARNER` or `REPORTING`.
        policy: only what this policy sampled.
    """
    end = activity.last_at
    if kind == LEARNER:
        return [(u.began, end if u.ended is None else u.ended) for u in activity.updates]
    if kind == REPORTING:
        return list(activity.reporting)
    return [
        (work.began, end if work.ended is None else work.ended)
        for work in activity.work
        if work.kind == kind and (policy is None or work.policy == policy)
    ]


def count(found: Sequence[Span]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return (times, how many spans hold from each time on to the next), spans closed on the left."""
    if not found:
        return np.zeros(0), np.zeros(0, dtype=np.int64)
    edges = np.array(found, dtype=np.float64)
    times, place = np.unique(edges, return_inverse=True)
    change = np.zeros(len(times), dtype=np.int64)
    place = place.reshape(edges.shape)
    np.add.at(change, place[:, 0], 1)
    np.add.at(change, place[:, 1], -1)
    return times, np.cumsum(change)


def idle(activity: Activity) -> Idle:
    """Measure how busy learner and engines were, up to the last record."""
    seconds = activity.last_at
    parts = {kind: count(spans(activity, kind)) for kind in (*KINDS, LEARNER, REPORTING)}
    grid = np.unique(np.concatenate([[0.0, seconds], *(times for times, _ in parts.values())]))
    width = np.diff(grid)
    num = {kind: _on(grid, *part) for kind, part in parts.items()}
    learns, samples = num[LEARNER] > 0, num[SAMPLE] > 0
    is_left = ~(learns | samples)
    waits: dict[str, float] = {}
    for kind in (GRADE, ENVIRONMENT, PROMPT, REPORTING):
        waits[kind] = float(width[is_left & (num[kind] > 0)].sum())
        is_left &= num[kind] == 0
    waits["nothing"] = float(width[is_left].sum())
    busy = float(width[samples].sum())
    policies = sorted({work.policy for work in activity.work if work.kind == SAMPLE})
    num_tokens = sum(work.num_tokens for work in activity.work)

    def share(part: float) -> float:
        return part / seconds if seconds else 0.0

    return Idle(
        seconds=seconds,
        learner_idle=share(seconds - float(width[learns].sum())),
        engine_idle=share(seconds - busy),
        engine_idle_by_policy={
            policy: share(seconds - length(spans(activity, SAMPLE, policy))) for policy in policies
        },
        both_idle=share(float(width[~(learns | samples)].sum())),
        overlap=share(float(width[learns & samples].sum())),
        in_flight_mean=float((num[SAMPLE] * width).sum()) / busy if busy else 0.0,
        waits=waits,
        tokens_per_second=share(num_tokens),
        tokens_per_busy_second=num_tokens / busy if busy else 0.0,
    )


def _on(
    grid: NDArray[np.float64], times: NDArray[np.float64], counts: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the counts on each interval of a grid that holds all of ``times``."""
    place = np.searchsorted(times, grid[:-1], side="right") - 1
    found = np.zeros(len(place), dtype=np.int64)
    found[place >= 0] = counts[place[place >= 0]]
    return found


def merged(found: Sequence[Span]) -> list[Span]:
    """Return the times that at least one of the spans holds, as spans that do not touch."""
    joined: list[Span] = []
    for began, ended in sorted(found):
        if joined and began <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(ended, joined[-1][1]))
        else:
            joined.append((began, ended))
    return joined


def length(found: Sequence[Span]) -> float:
    """Return the seconds that at least one of the spans holds."""
    return sum(ended - began for began, ended in merged(found))


def lanes(work: Iterable[Work], end: float) -> list[tuple[int, Work]]:
    """Give each piece of work the first row that is free when it begins, so that none overlap in a row.

    The number of rows is the most that was in flight at once: for an engine, its largest batch.

    Returns:
        (row from 0, work) in order of their beginning.
    """
    free: list[int] = []
    running: list[tuple[float, int]] = []
    num, found = 0, []
    for one in sorted(work, key=lambda w: w.began):
        while running and running[0][0] <= one.began:
            heapq.heappush(free, heapq.heappop(running)[1])
        if free:
            row = heapq.heappop(free)
        else:
            row, num = num, num + 1
        heapq.heappush(running, (end if one.ended is None else one.ended, row))
        found.append((row, one))
    return found


def tokens_per_second(
    activity: Activity, num_bins: int = 200
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return (edges [N+1], tokens per second [N]) over the run.

    A chunk's tokens are spread evenly from the answer before it (or the request) to its own.
    """
    edges = np.linspace(0.0, activity.last_at or 1.0, num_bins + 1)
    rows = []
    for work in activity.work:
        since = work.began
        for chunk in work.chunks:
            rows.append((min(since, chunk.at - _INSTANT), chunk.at, chunk.num))
            since = chunk.at
    if not rows:
        return edges, np.zeros(num_bins)
    began, ended, num = np.array(rows, dtype=np.float64).T
    rate = num / (ended - began)
    times = np.concatenate([began, ended])
    change = np.concatenate([rate, -rate])
    order = np.argsort(times, kind="stable")
    times, rates = times[order], np.cumsum(change[order])
    made = np.concatenate([[0.0], np.cumsum(rates[:-1] * np.diff(times))])
    return edges, np.diff(np.interp(edges, times, made)) / np.diff(edges)


@dataclass(frozen=True, slots=True)
class StepSpan:
    """A step from its first wait to its report, or to the last record."""

    step: int
    began: float
    ended: float
    is_done: bool


def steps_of(activity: Activity) -> list[StepSpan]:
    """Return the steps in order. A step begins when its rollouts get their deadline, ``rollouts:<step>``."""
    began: dict[int, float] = {}
    for timer in activity.waits:
        name, _, step = timer.name.partition(":")
        if name == "rollouts" and step.isdigit():
            began.setdefault(int(step), timer.since)
    ended = {step.step: step.at for step in activity.steps}
    return [
        StepSpan(step, since, ended.get(step, activity.last_at), step in ended)
        for step, since in sorted(began.items())
    ]
