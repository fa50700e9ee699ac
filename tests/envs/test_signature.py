"""Signatures: by content, whatever the process, the order and the place in memory."""

from __future__ import annotations

import copy
import os
import random
import subprocess
import sys
import threading
from collections import OrderedDict, deque
from dataclasses import dataclass
from datetime import date
from enum import Enum
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollwright.envs import signature
from rollwright.errors import DataError
from rollwright.tasks.registry import load_task


class Thing:
    def __init__(self, **values):
        self.__dict__.update(values)


class Slotted:
    __slots__ = ("x",)

    def __init__(self, x):
        self.x = x


@dataclass(frozen=True, slots=True)
class Place:
    row: int
    column: int = 0


class Colour(Enum):
    RED = 1
    BLUE = 2


# Each of these is another content than every other.
DIFFERENT = [
    None,
    False,
    True,
    0,
    1,
    2,
    1.0,
    0.0,
    float("nan"),
    1j,
    "",
    "1",
    b"1",
    (),
    (1,),
    [1],
    [],
    {},
    {"a": 1},
    {"a": "1"},
    {1: "a"},
    {1},
    set(),
    [[1], 2],
    [1, [2]],
    [1, 2],
    [12],
    ["ab", "c"],
    ["a", "bc"],
    Place(1),
    Place(0, 1),
    Thing(x=1),
    Thing(y=1),
    Thing(),
    Slotted(1),
    Slotted(2),
    Colour.RED,
    Colour.BLUE,
    deque([1]),
    date(2026, 1, 2),
    Fraction(1, 2),
    random.Random(1),
    random.Random(2),
    np.random.default_rng(1),
    np.random.default_rng(2),
    np.zeros(2),
    np.zeros((1, 2)),
    np.zeros(2, dtype=int),
    len,
    Thing,
    -1,
]


def test_different_content_has_different_signatures():
    """Oracle: enumeration of pairs. Broken by: parts without their lengths."""
    names = [signature(value) for value in DIFFERENT]
    assert len(set(names)) == len(names)
    assert all(len(name) == 32 and int(name, 16) >= 0 for name in names)


@pytest.mark.parametrize("value", DIFFERENT, ids=lambda value: type(value).__name__)
def test_copies_have_the_same_signature(value):
    """Oracle: deep copies. Broken by: anything that depends on the place in memory."""
    assert signature(copy.deepcopy(value)) == signature(value)


def test_equal_content():
    """Oracle: by hand."""
    shuffled = dict(sorted({str(k): k for k in range(20)}.items(), key=lambda pair: -pair[1]))
    same = [
        ({str(k): k for k in range(20)}, shuffled),
        ({"a": 1}, OrderedDict(a=1)),
        ({1, 2, 30}, frozenset((30, 2, 1))),
        (np.int64(3), 3),
        (np.float64(0.5), 0.5),
        (0.0, -0.0),
        (float("nan"), -float("nan")),
        (np.arange(6).reshape(2, 3), np.asfortranarray(np.arange(6).reshape(2, 3))),
    ]
    for left, right in same:
        assert signature(left) == signature(right), (left, right)
    shared = [1]
    assert signature([shared, shared]) == signature([[1], [1]])
    moved = random.Random(1)
    moved.random()
    assert signature(moved) != signature(random.Random(1))


def test_what_holds_itself():
    """Oracle: by hand; kills an endless recursion."""
    ring, other = [1], [1]
    ring.append(ring)
    other.append(other)
    assert signature(ring) == signature(other) != signature([1, [1]])


@pytest.mark.parametrize("value", [lambda: 0, threading.Lock(), (k for k in "a"), sys.stdout])
def test_what_has_no_content(value):
    """Oracle: the error tree. Broken by: falling back on repr, which holds an address."""
    with pytest.raises(DataError, match="no content to compare"):
        signature({"deep": [value]})


@given(
    st.dictionaries(st.text(max_size=2), st.frozensets(st.integers() | st.text(max_size=2)), max_size=5),
    st.randoms(),
)
@settings(max_examples=50, deadline=None)
def test_order_does_not_matter(value, rng):
    """Oracle: a shuffled twin. Broken by: encoding a mapping or a set in its own order."""
    pairs = list(value.items())
    rng.shuffle(pairs)
    twin = {key: frozenset(sorted(item, key=lambda _: rng.random())) for key, item in pairs}
    assert signature(twin) == signature(value)


def test_other_processes_agree():
    """Oracle: two hash seeds. Broken by: hash(), or the order of a set of texts."""
    code = (
        "from rollwright.envs import signature\n"
        "print(signature({'a': {'x', 'y', 'z'}, 'b': frozenset(['q', 'w'])}))"
    )
    said = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    here = signature({"b": {"w", "q"}, "a": {"z", "y", "x"}})
    assert [text.strip() for text in said] == [here, here]


def test_lake_forgets_the_way():
    """Oracle: by hand: two ways to a place are one state, but not on slippery ice."""
    for slip, is_same in ((0.0, True), (0.3, False)):
        task = load_task("lake", slip=slip)
        start = task.reset("lake/train/0")
        there = task.step(start, "x\n")[0]
        assert there != start and (task.signature(there) == task.signature(start)) is is_same
    assert task.signature(task.reset("lake/train/1")) != task.signature(start)
