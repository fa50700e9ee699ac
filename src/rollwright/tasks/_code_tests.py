"""Tests of programs as they stand in a row: asserts as text, or objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rollwright.errors import DataError
from rollwright.grade.code import CallTest, StdinTest, Test, call_test_of

_EXPECTED = (
    "expected an assert as text (`assert f(1) == 2`), {stdin, stdout}, or {function, args, expected} (kwargs)"
)


def tests_of(answer: Any) -> list[Test]:
    """Return the tests of a row's answer: one, or a list of them.

    Raises:
        DataError: one of them is none.
    """
    rows = answer if isinstance(answer, list) else [answer]
    if not rows:
        raise DataError(f"there are no tests; {_EXPECTED}")
    return [_test_of(row) for row in rows]


def _test_of(row: Any) -> Test:
    if isinstance(row, str):
        return call_test_of(row)
    if isinstance(row, Mapping):
        if row.keys() == {"stdin", "stdout"} and all(isinstance(value, str) for value in row.values()):
            return StdinTest(row["stdin"], row["stdout"])
        if {"function", "args", "expected"} <= row.keys() <= {"function", "args", "expected", "kwargs"}:
            args, kwargs = row["args"], row.get("kwargs", {})
            if isinstance(row["function"], str) and isinstance(args, list) and isinstance(kwargs, dict):
                return CallTest(row["function"], tuple(args), row["expected"], kwargs)
    raise DataError(f"{str(row)[:200]!r} is no test; {_EXPECTED}")
