"""The trace file: the format's own rules, and that everything that happened is in it once.

The rules are those of the Trace Event Format and of Perfetto's reader of it: every event has a known phase
with the fields that this phase needs, slices of one thread nest, counters hold numbers.
"""

from __future__ import annotations

import gzip
import json
import random
from collections import Counter

import msgspec
import pytest
from lab_help import write
from test_timeline import two_steps

from rollwright.errors import StoreError
from rollwright.lab.activity import SAMPLE, Activity, Chunk, Work, read_activity
from rollwright.lab.trace import trace_events, write_trace
from rollwright.store.layout import JOURNAL


class Slice(msgspec.Struct, tag_field="ph", tag="X", forbid_unknown_fields=True):
    name: str
    cat: str
    ts: int
    dur: int
    pid: int
    tid: int
    args: dict


class Instant(msgspec.Struct, tag_field="ph", tag="i", forbid_unknown_fields=True):
    name: str
    cat: str
    ts: int
    pid: int
    tid: int
    s: str


class Count(msgspec.Struct, tag_field="ph", tag="C", forbid_unknown_fields=True):
    name: str
    ts: int
    pid: int
    tid: int
    args: dict[str, float]


class Meta(msgspec.Struct, tag_field="ph", tag="M", forbid_unknown_fields=True):
    name: str
    pid: int
    tid: int
    args: dict[str, str | int]


class Trace(msgspec.Struct, forbid_unknown_fields=True):
    displayTimeUnit: str
    traceEvents: list[Slice | Instant | Count | Meta]


def loaded(activity: Activity, folder) -> Trace:
    return msgspec.json.decode(write_trace(activity, folder / "trace.json").read_bytes(), type=Trace)


@pytest.fixture(scope="module", params=["grpo", "april", "dapo", "ahead"])
def both(request, runs, tmp_path_factory) -> tuple[Activity, Trace]:
    activity = read_activity(runs[request.param][0] / JOURNAL)
    return activity, loaded(activity, tmp_path_factory.mktemp("trace"))


def test_it_follows_the_format(both) -> None:
    """Oracle: the format. Kills: a time that is no whole number, a negative length, a nameless track."""
    _, trace = both
    assert trace.displayTimeUnit == "ms"
    names: dict[tuple[int, int], str] = {}
    processes: dict[int, str] = {}
    for event in trace.traceEvents:
        if isinstance(event, Meta):
            assert event.name in ("process_name", "process_sort_index", "thread_name", "thread_sort_index")
            if event.name == "thread_name":
                names[event.pid, event.tid] = event.args["name"]
            if event.name == "process_name":
                processes[event.pid] = event.args["name"]
            continue
        assert event.ts >= 0 and event.pid in processes
        if isinstance(event, Slice):
            assert event.dur >= 0 and (event.pid, event.tid) in names
        if isinstance(event, Instant):
            assert event.s in ("g", "p", "t")
    tids = [tid for _, tid in names]
    assert len(set(tids)) == len(tids), "Perfetto looks a thread up by its id alone"
    assert not set(tids) & set(processes), "a thread with its process's id would be its main thread"


def nested(trace: Trace) -> int:
    """Check that two slices of one thread are apart or one holds the other; return how deep they lie."""
    tracks: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for event in trace.traceEvents:
        if isinstance(event, Slice):
            tracks.setdefault((event.pid, event.tid), []).append((event.ts, event.ts + event.dur))
    depth = 0
    for slices in tracks.values():
        stack: list[int] = []
        for began, ended in sorted(slices, key=lambda s: (s[0], -s[1])):
            while stack and stack[-1] <= began:
                stack.pop()
            assert not stack or ended <= stack[-1]
            stack.append(ended)
            depth = max(depth, len(stack))
    return depth


def test_slices_of_a_track_nest(both) -> None:
    """Oracle: the format's rule: two slices of one thread are apart, or one holds the other."""
    assert nested(both[1]) == 2, "the chunks of an ask lie inside it"


def test_rounding_keeps_them_nested(tmp_path) -> None:
    """Oracle: the format's rule, with times between two microseconds. Kills: rounded lengths."""
    rng = random.Random(7)
    for _ in range(200):
        times = sorted(rng.random() * 9e-6 for _ in range(4))
        work = [
            Work(SAMPLE, "a", "g", "t", times[0], times[2], chunks=[Chunk(t, 1, 0) for t in times[1:3]]),
            Work(SAMPLE, "b", "g", "t", times[2], times[3]),
        ]
        nested(loaded(Activity(work=work, last_at=times[3]), tmp_path))


def test_everything_is_in_it_once(both) -> None:
    """Oracle: the activity. One slice for each ask and each update, its tokens and its span."""
    activity, trace = both
    slices = [event for event in trace.traceEvents if isinstance(event, Slice)]
    asks = Counter((e.args["ask"], e.args.get("attempt", 0), e.ts, e.dur) for e in slices if "ask" in e.args)
    spans = [(w, activity.last_at if w.ended is None else w.ended) for w in activity.work]
    expected = Counter(
        (w.ask, w.attempt, round(w.began * 1e6), round(ended * 1e6) - round(w.began * 1e6))
        for w, ended in spans
    )
    assert asks == expected
    assert sum(e.args.get("tokens", 0) for e in slices if e.cat == SAMPLE) == sum(
        w.num_tokens for w in activity.work
    )
    assert sum(e.cat == "learner" for e in slices) == len(activity.updates)
    assert sum(e.cat == "steps" for e in slices) == len(activity.steps)
    versions = [e.name for e in trace.traceEvents if isinstance(e, Instant) and e.name.startswith("version")]
    assert versions == [f"version {k + 1}" for k in range(len(activity.updates))]


def test_counters_go_up_and_down_to_nothing(both) -> None:
    """Oracle: closed form. What is in flight is counted up and down and ends at what is open: never < 0."""
    activity, trace = both
    counters: dict[str, list[tuple[int, float]]] = {}
    for event in trace.traceEvents:
        if isinstance(event, Count) and len(event.args) == 1:
            counters.setdefault(event.name, []).append((event.ts, *event.args.values()))
    for name, points in counters.items():
        assert [ts for ts, _ in points] == sorted(ts for ts, _ in points), name
        assert all(value >= -1e-6 for _, value in points), name
    flight = [value for _, value in counters["in flight: sample"]]
    assert flight[-1] == 0
    rows = {e.tid for e in trace.traceEvents if isinstance(e, Slice) and e.cat == SAMPLE}
    assert max(flight) == len(rows), "as many rows as the largest batch"
    keys = [value for _, value in counters["keys of the requests in flight"]]
    left = [w for w in activity.work if w.kind == SAMPLE and w.ended is None]
    assert keys[-1] == sum(w.start + w.num_tokens for w in left)
    assert max(keys) > 0


def test_a_run_by_hand(tmp_path) -> None:
    """Oracle: by hand. The learner's slice, the versions' instant, the fates at the report."""
    trace = loaded(read_activity(write(tmp_path, two_steps()) / JOURNAL), tmp_path)
    slices = {(e.cat, e.name): (e.ts, e.dur) for e in trace.traceEvents if isinstance(e, Slice)}
    assert slices["learner", "update to version 1"] == (9_000_000, 3_000_000)
    assert slices["steps", "step 1"] == (1_000_000, 11_000_000)
    assert slices["waits with a deadline", "the learner's update"] == (9_000_000, 3_000_000)
    assert slices["chunk", "3 tokens, version 0"] == (2_000_000, 2_000_000)
    assert slices["chunk", "2 tokens, version 0"] == (4_000_000, 1_000_000)
    (version,) = [e for e in trace.traceEvents if isinstance(e, Instant)]
    assert (version.name, version.ts) == ("version 1", 12_000_000)
    (fates,) = [e for e in trace.traceEvents if isinstance(e, Count) and e.name == "tokens by fate"]
    assert (fates.args, fates.ts) == ({"trained": 10.0}, 12_000_000)


def test_a_compressed_trace_is_the_same(both, tmp_path) -> None:
    """Oracle: metamorphic."""
    activity, _ = both
    plain = write_trace(activity, tmp_path / "new" / "a.json", "r").read_text()
    with gzip.open(write_trace(activity, tmp_path / "a.json.gz", "r"), "rt") as file:
        assert file.read() == plain
    assert json.loads(plain)["traceEvents"] == list(trace_events(activity, "r"))


def test_a_trace_that_cannot_be_written(tmp_path) -> None:
    """Oracle: the contract: an error of ours with the path and the reason."""
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot write the trace"):
        write_trace(Activity(), tmp_path / "file" / "a.json")
    assert json.loads(write_trace(Activity(), tmp_path / "a.json").read_text())["traceEvents"]
