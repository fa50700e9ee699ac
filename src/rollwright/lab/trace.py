"""A run as a trace file that Perfetto (and Chrome's tracing page) opens: Trace Event Format, JSON.

Slices of one track never overlap (Perfetto does not show overlapping ones): each request of a batch has a
row of its own. Times are whole microseconds of the run's clock.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rollwright.errors import StoreError
from rollwright.lab.activity import ENVIRONMENT, GRADE, PROMPT, SAMPLE, Activity, Work
from rollwright.lab.timeline import LEARNER, count, lanes, spans, steps_of, tokens_per_second
from rollwright.store.tail import reason

Event = dict[str, Any]
_RUN = 1  # pid of the run's own tracks; those of engines, graders and the like follow
_TITLES = {GRADE: "graders", ENVIRONMENT: "environments", PROMPT: "prompts"}


def write_trace(activity: Activity, path: str | Path, title: str = "run") -> Path:
    """Write the trace; a name that ends in ``.gz`` is compressed, which Perfetto opens as well.

    Args:
        title: of the run, shown with its tracks.

    Raises:
        StoreError: it cannot be written.
    """
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with gzip.open(path, "wt") if path.suffix == ".gz" else path.open("w") as file:
            file.write('{"displayTimeUnit":"ms","traceEvents":[\n')
            for number, event in enumerate(trace_events(activity, title)):
                file.write(",\n" if number else "")
                file.write(json.dumps(event, separators=(",", ":"), allow_nan=False))
            file.write("\n]}\n")
    except OSError as error:
        raise StoreError(f"cannot write the trace {path}: {reason(error)}") from error
    return path


def trace_events(activity: Activity, title: str = "run") -> Iterator[Event]:
    """Yield the trace's events.

    Tracks: the run (steps, learner, waits with a deadline, reporting), one process for each policy's
    engine with a row for each request of its largest batch, and one for graders, environments and prompts.
    New versions and restarts are instants; counters are requests in flight, keys in use, tokens per second
    and tokens by fate.
    """
    names = _Names()
    yield from names.process(_RUN, title)
    yield from _run(activity, names)
    policies = sorted({work.policy for work in activity.work if work.kind == SAMPLE})
    groups = [
        (f"engine ({p})", [w for w in activity.work if w.kind == SAMPLE and w.policy == p]) for p in policies
    ]
    groups += [(name, [w for w in activity.work if w.kind == kind]) for kind, name in _TITLES.items()]
    for pid, (name, work) in enumerate(((name, work) for name, work in groups if work), _RUN + 1):
        yield from names.process(pid, name)
        yield from _rows(activity, work, pid, names)
    yield from _instants(activity)
    yield from _counters(activity)


class _Names:
    """Gives every track an id of its own: Perfetto looks threads up by their id alone."""

    def __init__(self) -> None:
        self.num = 0
        self._first = 1000  # no thread has a process's id: it would be taken for its main thread

    def process(self, pid: int, name: str) -> Iterator[Event]:
        yield _meta("process_name", pid, 0, name=name)
        yield _meta("process_sort_index", pid, 0, sort_index=pid)

    def thread(self, pid: int, name: str) -> tuple[int, list[Event]]:
        self.num += 1
        tid = self._first + self.num
        return tid, [
            _meta("thread_name", pid, tid, name=name),
            _meta("thread_sort_index", pid, tid, sort_index=self.num),
        ]


def _meta(what: str, pid: int, tid: int, **args: Any) -> Event:
    return {"name": what, "ph": "M", "pid": pid, "tid": tid, "args": args}


def _micro(seconds: float) -> int:
    return round(seconds * 1e6)


def _slice(name: str, kind: str, began: float, ended: float, pid: int, tid: int, **args: Any) -> Event:
    since = _micro(began)
    return {
        "name": name,
        "cat": kind,
        "ph": "X",
        "ts": since,
        "dur": _micro(ended) - since,
        "pid": pid,
        "tid": tid,
        "args": args,
    }


# ---------------------------------------------------------------- slices


def _run(activity: Activity, names: _Names) -> Iterator[Event]:
    end = activity.last_at
    found: list[tuple[str, float, float, dict[str, Any]]]
    found = [(f"step {s.step + 1}", s.began, s.ended, {"step": s.step + 1}) for s in steps_of(activity)]
    yield from _flat("steps", found, names)
    found = [
        (
            f"update to version {u.version + 1}",
            u.began,
            end if u.ended is None else u.ended,
            {"step": u.step + 1, "trajectories": u.num_trajectories, "published": u.published},
        )
        for u in activity.updates
    ]
    yield from _flat("learner", found, names)
    found = [
        (
            t.what,
            t.since,
            end if t.ended is None else t.ended,
            {"timer": t.name, "deadline_s": round(t.deadline, 6), "fired": t.has_fired},
        )
        for t in activity.waits
    ]
    yield from _flat("waits with a deadline", found, names)
    yield from _flat("reporting", [("reporting", a, b, {}) for a, b in activity.reporting], names)


def _flat(
    title: str, found: Sequence[tuple[str, float, float, dict[str, Any]]], names: _Names
) -> Iterator[Event]:
    """Yield slices of the run's own, in as many rows as they overlap."""
    tids: dict[int, int] = {}
    work = [Work(title, str(k), "", "", began, ended) for k, (_, began, ended, _) in enumerate(found)]
    for row, one in lanes(work, 0.0):
        if row not in tids:
            tids[row], events = names.thread(_RUN, title if row == 0 else f"{title} {row + 1}")
            yield from events
        name, began, ended, args = found[int(one.ask)]
        yield _slice(name, title, began, ended, _RUN, tids[row], **args)


def _rows(activity: Activity, work: Sequence[Work], pid: int, names: _Names) -> Iterator[Event]:
    tids: dict[int, int] = {}
    end = activity.last_at
    for row, one in lanes(work, end):
        if row not in tids:
            tids[row], events = names.thread(pid, f"row {row + 1}")
            yield from events
        ended = end if one.ended is None else one.ended
        args: Event = {"ask": one.ask, "outcome": one.outcome or "open"}
        if one.kind == SAMPLE:
            versions = sorted({chunk.version for chunk in one.chunks})
            args |= {
                "tokens": one.num_tokens,
                "before": one.start,
                "attempt": one.attempt,
                "versions": versions,
            }
        yield _slice(one.group, one.kind, one.began, ended, pid, tids[row], **args)
        if len(one.chunks) > 1:
            since = one.began
            for chunk in one.chunks:
                name = f"{chunk.num} tokens, version {chunk.version}"
                yield _slice(name, "chunk", since, chunk.at, pid, tids[row], version=chunk.version)
                since = chunk.at


# ---------------------------------------------------------------- instants and counters


def _instants(activity: Activity) -> Iterator[Event]:
    for update in activity.updates:
        if update.published is not None and update.ended is not None:
            yield _instant(f"version {update.published}", update.ended)
    for at in activity.restarts:
        yield _instant("restart", at)
    for timer in activity.waits:
        if timer.has_fired and timer.ended is not None:
            yield _instant(f"deadline: {timer.what}", timer.ended)
    if activity.finish is not None:
        yield _instant(f"end: {activity.finish}", activity.finished_at or activity.last_at)


def _instant(name: str, at: float) -> Event:
    return {"name": name, "cat": "run", "ph": "i", "s": "g", "ts": _micro(at), "pid": _RUN, "tid": 0}


def _counter(name: str, at: float, **values: float) -> Event:
    return {"name": name, "ph": "C", "ts": _micro(at), "pid": _RUN, "tid": 0, "args": values}


def _counters(activity: Activity) -> Iterator[Event]:
    for kind in (SAMPLE, GRADE, ENVIRONMENT, LEARNER):
        for at, num in zip(*count(spans(activity, kind)), strict=True):
            yield _counter(f"in flight: {kind}", float(at), num=int(num))
    for at, num in _keys(activity):
        yield _counter("keys of the requests in flight", at, tokens=num)
    edges, rates = tokens_per_second(activity)
    for at, rate in zip(edges[:-1], rates, strict=True):
        yield _counter("sampled tokens per second", float(at), rate=round(float(rate), 3))
    for step in activity.steps:
        fates = {k.removeprefix("fate_"): v for k, v in step.metrics.items() if k.startswith("fate_")}
        yield _counter("tokens by fate", step.at, **{name: num or 0 for name, num in fates.items()})


def _keys(activity: Activity) -> Iterator[tuple[float, int]]:
    """Yield (time, tokens that the requests in flight stand on); shared prefixes count for each."""
    changes: list[tuple[float, int]] = []
    for work in activity.work:
        if work.kind == SAMPLE:
            changes.append((work.began, work.start))
            changes += [(chunk.at, chunk.num) for chunk in work.chunks]
            if work.ended is not None:
                changes.append((work.ended, -work.start - work.num_tokens))
    total = 0
    changes.sort(key=lambda change: change[0])
    for k, (at, num) in enumerate(changes):
        total += num
        if k + 1 == len(changes) or changes[k + 1][0] != at:
            yield at, total
