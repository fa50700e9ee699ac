"""A name for a state by its content: equal content, equal name, in any process and on any machine."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Mapping
from enum import Enum
from types import BuiltinFunctionType, FunctionType, ModuleType, NoneType
from typing import Any

import numpy as np

from rollwright.errors import DataError

__all__ = ["signature"]


def signature(value: Any) -> str:
    """Return 32 hexadecimal digits that depend on the content of ``value`` only.

    The order of keys and of members of a set, the process's hash seed, the place in memory and what is
    shared do not matter; types, lengths and values do (1, 1.0 and True differ, a list is not a tuple).
    Objects count by what they would be pickled as, random generators by their state.

    Raises:
        DataError: it holds something without content of its own: a lambda, a lock, a file.

    Example:
        >>> signature({"a": 1, "b": {2, 3}}) == signature({"b": {3, 2}, "a": 1})
        True
    """
    return hashlib.blake2b(_encode(value, ()), digest_size=16).hexdigest()


def _encode(value: Any, above: tuple[int, ...]) -> bytes:
    """Return bytes that no other content has. ``above``: the containers that ``value`` stands in."""
    plain = _plain(value)
    if plain is not None:
        return plain
    if id(value) in above:
        return _tag(b"up", str(len(above) - above.index(id(value))).encode())
    inside = (*above, id(value))
    if isinstance(value, Mapping):
        pairs = [_tag(b"", _encode(key, inside)) + _encode(item, inside) for key, item in value.items()]
        return _tag(b"map", *sorted(pairs))
    if isinstance(value, set | frozenset):
        return _tag(b"set", *sorted(_encode(item, inside) for item in value))
    if type(value) in (list, tuple):
        return _tag(type(value).__name__.encode(), *(_encode(item, inside) for item in value))
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return _tag(b"array", value.dtype.str.encode(), str(value.shape).encode(), value.tobytes())
    if isinstance(value, random.Random):
        return _tag(b"random", repr(value.getstate()).encode())
    if isinstance(value, np.random.Generator):
        return _tag(b"generator", _encode(value.bit_generator.state, inside))
    return _tag(b"object", *(_encode(part, inside) for part in _content(value)))


def _plain(value: Any) -> bytes | None:
    """Return the bytes of a value that holds no others."""
    if value is None:
        return b"n"
    if isinstance(value, Enum):
        return _tag(b"enum", type(value).__qualname__.encode(), value.name.encode())
    if isinstance(value, bool | np.bool_):
        return b"T" if value else b"F"
    if isinstance(value, int | np.integer):
        return _tag(b"int", hex(int(value)).encode())
    if isinstance(value, float | np.floating):
        return _tag(b"float", (float(value) + 0.0).hex().encode())  # + 0.0 makes -0.0 zero
    if isinstance(value, complex):
        return _tag(b"complex", (value.real + 0.0).hex().encode(), (value.imag + 0.0).hex().encode())
    if isinstance(value, str):
        return _tag(b"str", value.encode("utf-8", "surrogatepass"))
    if isinstance(value, bytes | bytearray):
        return _tag(b"bytes", bytes(value))
    if isinstance(value, type):
        return _tag(b"class", f"{value.__module__}.{value.__qualname__}".encode())
    if isinstance(value, FunctionType | BuiltinFunctionType) and not _is_bound(value):
        return _named(value)
    return None


def _content(value: Any) -> list[Any]:
    """Return what an object would be pickled as."""
    try:
        parts = value.__reduce_ex__(4)
    except Exception as error:  # classes raise what they like
        raise _without_content(value) from error
    if isinstance(parts, str):
        raise _without_content(value)
    make, *rest = parts
    return [make, *(list(part) if isinstance(part, Iterator) else part for part in rest)]


def _is_bound(value: Any) -> bool:
    return not isinstance(getattr(value, "__self__", None), ModuleType | NoneType)


def _named(value: Any) -> bytes:
    """Return a class's or function's name. One made inside a function has none that lasts."""
    if "<" in value.__qualname__:
        raise _without_content(value)
    return _tag(b"named", f"{value.__module__}.{value.__qualname__}".encode())


def _without_content(value: Any) -> DataError:
    return DataError(
        f"a state holds {value!r}, which has no content to compare; give the environment a method signature()"
    )


def _tag(kind: bytes, *parts: bytes) -> bytes:
    """Join parts so that no two sequences of parts give the same bytes."""
    return kind + b"(" + b"".join(str(len(part)).encode() + b":" + part for part in parts) + b")"
