"""Journal records: what goes in comes out, and decisions are the same bytes."""

import json
import math
import string

import msgspec
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rollwright.errors import LawBroken
from rollwright.events import (
    BudgetChanged,
    EmitBatch,
    Failed,
    Observed,
    Published,
    Report,
    Sampled,
    Score,
    Scored,
    Started,
    Submit,
    TimerFired,
)
from rollwright.store.codec import (
    canonical,
    damage,
    decision_bytes,
    decode_record,
    encode_record,
    runs,
    unroll,
)
from rollwright.tree import Group, Node, Origin, Sampling, StopReason, Trajectory

texts = st.text(st.characters(codec="utf-8"), max_size=12)
floats = st.floats()
ids = st.integers(0, 2**31 - 1)


@st.composite
def sampled(draw):
    num = draw(st.integers(0, 5))
    row = st.lists(floats, min_size=num, max_size=num).map(tuple)
    top = st.lists(st.lists(st.tuples(ids, floats), max_size=2).map(tuple), min_size=num, max_size=num)
    return Sampled(
        at=draw(floats),
        ask=draw(texts),
        tokens=draw(st.lists(ids, min_size=num, max_size=num).map(tuple)),
        logprobs=draw(row),
        version=draw(st.integers(0, 10**6)),
        entropies=draw(st.none() | row),
        kept_masses=draw(st.none() | row),
        top=draw(st.none() | top.map(tuple)),
        stop=draw(st.none() | st.sampled_from(StopReason)),
    )


number_tables = st.dictionaries(texts, floats, max_size=3)
events = st.one_of(
    st.builds(Started, at=floats),
    sampled(),
    st.builds(
        Observed, ask=texts, tokens=st.lists(ids, max_size=3).map(tuple), terminated=st.booleans(),
        reward=st.none() | floats,
    ),
    st.builds(
        Scored, ask=texts, reward=st.none() | floats, status=texts, rewards=number_tables, detail=texts
    ),
    st.builds(Failed, ask=texts, kind=st.just("engine"), message=texts),
    st.builds(Published, step=st.integers(0, 9), version=st.integers(0, 9), metrics=number_tables),
    st.builds(TimerFired, timer=texts),
    st.builds(BudgetChanged, granted=number_tables),
)  # fmt: skip


@given(events)
@example(Scored(ask="a", reward=math.nan, status="right"))
@example(Observed(ask="a", tokens=(), reward=math.nan))
@settings(max_examples=300, deadline=None)
def test_event_reads_back_exactly(event):
    """Oracle: identity, NaN and infinities included (repr tells them, and -0.0, and 1 from 1.0)."""
    line = encode_record(event, [])
    assert damage(line) == ""
    read, decisions = decode_record(line)
    assert type(read) is type(event)
    assert repr(msgspec.to_builtins(read)) == repr(msgspec.to_builtins(event))
    assert decisions == b"[]"


@given(events)
@settings(max_examples=100, deadline=None)
def test_record_is_strict_json(event):
    """Oracle: the standard library's parser with NaN and Infinity refused."""

    def refuse(word):
        raise AssertionError(word)

    body = json.loads(encode_record(event, [])[9:], parse_constant=refuse)
    assert body["e"]["type"] == type(event).__name__


INEXACT = [
    Scored(ask="a", reward=1, status="right"),
    Scored(ask="a", reward=np.float32(0.1), status="right"),
    Scored(ask="a", reward=np.float64(0.5), status="right", rewards={"x": 1}),
    Sampled(ask="a", tokens=(1, 2), logprobs=(-0.5, 0)),
    Sampled(ask="a", tokens=np.array([1, 2]), logprobs=np.array([-0.5, -0.25], dtype=np.float32)),
    Sampled(ask="a", tokens=(np.int64(1),), logprobs=(float("nan"),)),
    Published(step=0, version=1, metrics={"loss": np.float32(0.5), "num": 3}),
    Failed(ask="a", kind="data", message="no file \udcff.txt"),
    TimerFired(timer="a", at=3),
]


@pytest.mark.parametrize("event", INEXACT, ids=lambda event: type(event).__name__)
def test_inexact_event_is_refused_and_canonical_is_taken(event):
    """An int, a numpy value or a lone surrogate would read back as another value. Oracle: the values."""
    with pytest.raises(LawBroken, match="canonical"):
        encode_record(event, [])
    exact = canonical(event)
    read, _ = decode_record(encode_record(exact, []))
    assert repr(read) == repr(exact)
    for name in ("reward", "at", "version"):
        if hasattr(event, name):
            assert getattr(read, name) == getattr(event, name)


def test_canonical_leaves_an_exact_event_alone():
    event = Scored(ask="a", reward=math.nan, status="right")
    assert canonical(event) is event


def node(name, parent, origin, tokens, **fields):
    if origin is Origin.SAMPLED:
        fields = {
            "policy": "policy",
            "version": 0,
            "logprobs": (-1.0,) * len(tokens),
            "temperature": 1.0,
        } | fields
    return Node(name, parent, 1 if parent else 0, origin, tokens, **fields)


def group(replayed=False, advantages=(0.5, 0.5, 0.0), **fields):
    nodes = {
        "g/root": node("g/root", None, Origin.PROMPT, (7,)),
        "g/0": node("g/0", "g/root", Origin.SAMPLED, (1, 2, 3)),
        "g/1": node("g/1", "g/root", Origin.SAMPLED, (4, 5, 6)),
    }
    leaves = (
        Trajectory("g/0", 0, reward=1.0, score=1.0, advantages=advantages),
        Trajectory("g/1", 1, score=None, replayed=replayed, weight=0.25),
    )
    return Group("g", "task/train/1", nodes, leaves, **fields)


def test_batch_is_written_short():
    """Golden: only what the stages decided; no nodes, for the journal has them as events."""
    got = json.loads(decision_bytes([EmitBatch(step=3, version=2, groups=(group(),))]))
    assert got == [
        {
            "type": "EmitBatch",
            "step": 3,
            "version": 2,
            "groups": [
                {
                    "id": "g",
                    "trajectories": [
                        {"leaf": "g/0", "score": 1.0, "advantages": {"values": [0.5, 0.0], "counts": [2, 1]}},
                        {"leaf": "g/1", "score": None, "weight": 0.25},
                    ],
                }
            ],
        }
    ]


def test_replayed_nodes_are_written_whole():
    """Oracle: the nodes themselves, read back; those of fresh trajectories are left out."""
    batch = group(replayed=True, baseline=0.5)
    (got,) = json.loads(decision_bytes([EmitBatch(step=0, version=0, groups=(batch,))]))[0]["groups"]
    assert got["baseline"] == 0.5
    nodes = msgspec.convert(got["nodes"], list[Node])
    assert nodes == [batch.nodes["g/root"], batch.nodes["g/1"]]


@pytest.mark.parametrize("part", ["advantages", "score", "weight", "baseline"])
def test_decisions_that_differ_give_other_bytes(part):
    """Metamorphic: one part changed by the last bit changes the bytes; the same decisions do not."""
    base = group(baseline=0.5)
    bits = np.nextafter(0.5, 1).item()
    if part == "baseline":
        other = msgspec.structs.replace(base, baseline=bits)
    else:
        change = {"advantages": (0.5, bits, 0.0), "score": bits, "weight": bits}[part]
        first = msgspec.structs.replace(base.trajectories[0], **{part: change})
        other = msgspec.structs.replace(base, trajectories=(first, base.trajectories[1]))

    def written(value):
        return decision_bytes([EmitBatch(step=0, version=0, groups=(value,))])

    assert written(base) == written(group(baseline=0.5))
    assert written(base) != written(other)


def test_non_finite_decisions_are_null_and_flagged():
    """Strict JSON with the kind of number beside it. Golden."""
    report = Report(step=1, metrics={"a": math.nan, "b": None, "c": np.float32(0.5), "d": -math.inf})
    assert json.loads(decision_bytes([report])) == [
        {
            "type": "Report",
            "step": 1,
            "metrics": {"a": None, "b": None, "c": 0.5, "d": None},
            "non_finite": {"metrics.a": "nan", "metrics.d": "-inf"},
        }
    ]
    bad = EmitBatch(step=0, version=0, groups=(group(advantages=(0.5, math.nan, 0.0)),))
    flags = json.loads(decision_bytes([bad]))[0]["non_finite"]
    assert flags == {"groups.0.trajectories.0.advantages.values.1": "nan"}


def test_plain_commands_read_back():
    """Oracle: msgspec's own decoder gives the commands again."""
    commands = [
        Submit(
            ask="a", group="g", parent="r", at=1, stream=2**63 - 1, start=1, max_tokens=4, sampling=Sampling()
        ),
        Score(ask="b", group="g", leaf="a"),
    ]
    assert msgspec.json.decode(decision_bytes(commands), type=list[Submit | Score]) == commands


@given(st.lists(st.sampled_from([0.0, -0.0, 1.0, 0.1, math.nan, -1e300]) | floats, max_size=20))
@settings(max_examples=200, deadline=None)
def test_runs_are_exact(values):
    """Oracle: unrolling gives every bit again, the sign of zero included."""
    assert list(map(repr, unroll(runs(tuple(values))))) == list(map(repr, values))


@given(st.text(string.hexdigits, min_size=1, max_size=3), st.integers(0, 200))
def test_any_changed_byte_is_damage(change, place):
    """Oracle: the line itself; a line that differs anywhere must not pass its checksum."""
    line = encode_record(Scored(ask="task/train/1#0/0.1", reward=0.5, status="right"), [])
    place %= len(line) - 1
    other = line[:place] + change.encode() + line[place + len(change) :]
    if other != line and other.endswith(b"\n"):
        assert damage(other) != ""
