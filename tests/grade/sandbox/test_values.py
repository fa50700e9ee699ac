"""Values that cross from a program, and messages from one that may send anything."""

from __future__ import annotations

import contextlib
import json
import math
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollwright.grade.sandbox.values import Other, decode, encode, is_equal
from rollwright.grade.sandbox.wire import Broken, Inbox, pack

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.complex_numbers()
    | st.text(st.characters())
    | st.binary(max_size=9)
)
HASHABLE = st.none() | st.booleans() | st.integers() | st.text() | st.binary(max_size=5)
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS | st.frozensets(HASHABLE, max_size=4),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(HASHABLE, inner, max_size=4)
        | st.sets(HASHABLE, max_size=4)
    ),
    max_leaves=6,
)


def same(a: Any, b: Any) -> bool:
    """Whether two values are of one type and equal to the bit, NaN and the sign of zero included."""
    if type(a) is not type(b) or (hasattr(a, "__len__") and len(a) != len(b)):
        return False
    if isinstance(a, (list, tuple)):
        return all(map(same, a, b))
    if isinstance(a, dict):
        return list(map(repr, a)) == list(map(repr, b)) and all(map(same, a.values(), b.values()))
    if isinstance(a, (set, frozenset)):
        return sorted(map(repr, a)) == sorted(map(repr, b))
    return repr(a) == repr(b)


@settings(max_examples=30, deadline=None)
@given(VALUES)
def test_values_come_back_as_they_were(value: Any) -> None:
    """Metamorphic: encode, through JSON, decode. Kills: a rounded float, a tuple that becomes a list."""
    back = decode(json.loads(json.dumps(encode(value))))
    assert is_equal(back, value)
    assert same(back, value)


@given(
    st.recursive(st.none() | st.booleans() | st.text() | st.integers() | st.floats(), st.lists, max_leaves=6)
)
def test_what_was_never_written_is_refused(data: Any) -> None:
    """By hand: any JSON gives a value or ValueError, nothing else."""
    with contextlib.suppress(ValueError):
        decode(data)


def test_large_and_odd_values() -> None:
    """By hand: a number of a million digits, a list in itself, what has no plain form, subclasses, numpy."""
    import numpy as np

    large = 7**1_000_000
    assert decode(encode(large)) == large
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(RecursionError):
        encode(loop)
    other = decode(json.loads(json.dumps(encode({"a": object}))))
    assert isinstance(other["a"], Other) and not is_equal(other, {"a": object}) and other["a"] != other["a"]

    class Liar(int):
        def __eq__(self, _: object) -> bool:
            return True

        __hash__ = int.__hash__

    assert not is_equal(decode(encode(Liar(3))), 4) and decode(encode(Liar(3))) == 3
    assert decode(encode(np.arange(3))) == [0, 1, 2] and decode(encode(np.float32(0.5))) == 0.5


EQUAL = [
    (3, 3.0, 0), ([1, 2], (1, 2), 0), ([(1,), [2.0]], [[1], (2,)], 0), (math.nan, math.nan, 0),
    (0.1 + 0.2, 0.3, 1e-9), ({"a": 1.0000000001}, {"a": 1}, 1e-9), (10**400, 10**400, 0), (True, 1, 0),
    (complex(math.nan, 1), complex(math.nan, 1), 0), (1j * 1j, -1, 0),
    (math.inf, math.inf, 0), ({1, 2}, {2, 1}, 0), (-0.0, 0.0, 0),
]  # fmt: skip
DIFFERENT = [
    (3, "3", 0), ([1, 2], [2, 1], 0), ([1], [1, 1], 0), (0.1 + 0.2, 0.3, 0),
    (5 * 10**16, 5 * 10**16 + 1, 1e-6),
    (10**400, 1.0, 1e-6), (math.inf, 1.0, 1e-6), (1j, 1, 0), (None, 0, 0),
    ("", None, 0), ([], (), None), ({1}, [1], 0),
    ({"a": 1}, {"a": 1, "b": 2}, 0), (1e-300, 0.0, 1e-6), (math.inf, -math.inf, 1e-6), ("a", ["a"], 0),
]  # fmt: skip


@pytest.mark.parametrize(("value", "expected", "rel_tol"), EQUAL)
def test_equal(value: Any, expected: Any, rel_tol: float) -> None:
    """By hand: Python's equality, lists for tuples, and a relative tolerance for floats only."""
    assert is_equal(value, expected, rel_tol) and is_equal(expected, value, rel_tol)


@pytest.mark.parametrize(("value", "expected", "rel_tol"), [one for one in DIFFERENT if one[2] is not None])
def test_different(value: Any, expected: Any, rel_tol: float) -> None:
    """By hand: the same rules. Kills: an absolute tolerance, whole numbers compared as floats."""
    assert not is_equal(value, expected, rel_tol) and not is_equal(expected, value, rel_tol)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.dictionaries(st.text(max_size=3), st.integers(), max_size=3), max_size=5), st.data())
def test_messages_in_any_pieces(messages: list[dict[str, int]], data: st.DataObject) -> None:
    """Metamorphic: the same messages, however the bytes are cut."""
    stream, inbox, found = b"".join(map(pack, messages)), Inbox(1 << 16), []
    while stream:
        num = data.draw(st.integers(1, len(stream)))
        found += inbox.add(stream[:num])
        stream = stream[num:]
    assert found == messages


@given(st.binary(max_size=64))
def test_any_bytes_are_messages_or_broken(data: bytes) -> None:
    """By hand: nothing but `Broken` comes out, and no more is kept than the limit."""
    inbox = Inbox(32)
    with contextlib.suppress(Broken):
        assert all(isinstance(message, dict) for message in inbox.add(data))
    with pytest.raises(Broken, match="over the limit"):
        Inbox(32).add(struct.pack("<I", 33))
