"""Plain values as text: what may cross from a program to its grader. Standard library only.

Neither pickle nor eval: what comes from a program is data, whatever it says. Whole numbers travel in base 16,
which has no limit on digits; floats by `float.hex`, so that no bit is lost.
"""

from __future__ import annotations

from typing import Any

_ITEMS = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}


class Other:
    """A value of another type than those that travel; equal to nothing."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text

    def __eq__(self, other: object) -> bool:
        return False

    __hash__ = None  # type: ignore[assignment]


def encode(value: Any) -> Any:
    """Return a value in terms of JSON.

    None, bool, int, float, complex, str, bytes, list, tuple, set, frozenset and dict keep their type; of a
    subclass the base is kept, so no method of the program's own is called when values are compared.
    Numpy's arrays and numbers become lists and numbers; anything else becomes `Other`.

    Raises:
        RecursionError: the value contains itself, or is nested very deep.
    """
    if value is None or value is True or value is False:
        return value
    if isinstance(value, int):
        return ["int", format(int.__index__(value), "x")]
    if isinstance(value, float):
        return ["float", float.hex(value)]
    if isinstance(value, complex):
        return ["complex", float.hex(value.real), float.hex(value.imag)]
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, (bytes, bytearray)):
        return ["bytes", bytes(value).hex()]
    if isinstance(value, dict):
        return ["dict", [[encode(key), encode(item)] for key, item in dict.items(value)]]
    for name, kind in _ITEMS.items():
        if isinstance(value, kind):
            return [name, [encode(item) for item in kind.__iter__(value)]]
    if type(value).__module__.partition(".")[0] == "numpy" and hasattr(value, "tolist"):
        return encode(value.tolist())
    return ["other", f"{type(value).__name__}: {repr(value)[:200]}"]


def decode(data: Any) -> Any:
    """Return the value that `encode` wrote.

    Raises:
        ValueError: it never wrote that.
        RecursionError: nested very deep.
    """
    if data is None or isinstance(data, (bool, str)):
        return data
    try:
        kind, first, *rest = data
        if kind == "complex":
            return complex(float.fromhex(first), float.fromhex(rest[0]))
        if rest:
            raise ValueError("too long")
        if kind == "int":
            return int(first, 16)
        if kind == "float":
            return float.fromhex(first)
        if kind == "bytes":
            return bytes.fromhex(first)
        if kind == "other":
            return Other(str(first))
        if kind == "dict":
            return {decode(key): decode(item) for key, item in first}
        return _ITEMS[kind](decode(item) for item in first)
    except (TypeError, KeyError, IndexError, OverflowError) as error:
        raise ValueError(f"not an encoded value: {str(data)[:100]}") from error


def is_plain(value: Any) -> bool:
    """Whether a value is made only of what travels."""
    if isinstance(value, dict):
        return all(is_plain(key) and is_plain(item) for key, item in value.items())
    if isinstance(value, (list, tuple, set, frozenset)):
        return all(map(is_plain, value))
    return value is None or isinstance(value, (int, float, complex, str, bytes, bytearray))


def is_equal(value: Any, expected: Any, rel_tol: float = 0.0) -> bool:
    """Whether a program's value is the expected one, by Python's equality and these rules:

    a list equals a tuple of the same items (JSON has no tuples); floats, also inside lists and dicts, may
    differ by ``rel_tol`` of the larger; NaN equals NaN.
    """
    if isinstance(expected, (list, tuple)):
        return (
            isinstance(value, (list, tuple))
            and len(value) == len(expected)
            and all(is_equal(a, b, rel_tol) for a, b in zip(value, expected, strict=True))
        )
    if isinstance(expected, dict):
        return (
            isinstance(value, dict)
            and value.keys() == expected.keys()
            and all(is_equal(value[key], item, rel_tol) for key, item in expected.items())
        )
    if isinstance(expected, complex) and isinstance(value, (int, float, complex)):
        parts = ((value.real, expected.real), (value.imag, expected.imag))
        return all(_is_close(a, b, rel_tol) for a, b in parts)
    if isinstance(value, complex) and isinstance(expected, (int, float)):
        return is_equal(expected, value, rel_tol)
    if isinstance(expected, float) and isinstance(value, (int, float)):
        return _is_close(value, expected, rel_tol)
    if isinstance(value, float) and isinstance(expected, int):
        return _is_close(value, expected, rel_tol)
    return bool(value == expected)


def _is_close(value: float, expected: float, rel_tol: float) -> bool:
    if value == expected or (value != value and expected != expected):
        return True
    try:
        return abs(value - expected) <= rel_tol * max(abs(value), abs(expected)) < float("inf")
    except OverflowError:  # an int beyond the floats
        return False
