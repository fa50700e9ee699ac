"""The front: are two answers equal? Our own reader first, math-verify for what it cannot read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from rollwright.grade.math.clean import LONGEST, clean
from rollwright.grade.math.equal import same_value
from rollwright.grade.math.evaluate import Undefined
from rollwright.grade.math.expression import Refused, TooLarge, Unreadable
from rollwright.grade.math.library import library_equal
from rollwright.grade.math.read import read, read_as_list
from rollwright.grade.math.settings import MathSettings
from rollwright.grade.math.values import Value, Words


class Sameness(StrEnum):
    """What comparing two answers gave."""

    EQUAL = "equal"
    DIFFERENT = "different"
    FIRST_TOO_LARGE = "first_too_large"
    SECOND_TOO_LARGE = "second_too_large"


_HUGE = re.compile(r"\^\s*\{?\s*\d+\s*\^|\^\s*\{?\s*\d{5,}|\d{4,}\s*!")


@dataclass(frozen=True, slots=True)
class _Reading:
    """A clean text and what it can mean. No values: our reader cannot read it (why)."""

    text: str
    values: tuple[Value, ...] = ()
    why: str = ""
    is_too_large: bool = False
    is_refused: bool = False


def is_equal(a: str, b: str, settings: MathSettings | None = None) -> bool:
    """Whether two answers are equal. It is symmetric, and works in any thread.

    Raises:
        TooLarge: one of them cannot be evaluated within the bounds.
    """
    sameness, detail = compare(a, b, settings or MathSettings())
    if sameness in (Sameness.FIRST_TOO_LARGE, Sameness.SECOND_TOO_LARGE):
        raise TooLarge(detail)
    return sameness is Sameness.EQUAL


def compare(a: str, b: str, settings: MathSettings) -> tuple[Sameness, str]:
    """Return how two answers compare, and how that was found out.

    The same text is equal whatever it means. Where our reader reads both sides, its word stands. Where it
    cannot read one, math-verify is asked in both orders, and both must say yes.
    """
    for side, other, word in ((a, b, Sameness.FIRST_TOO_LARGE), (b, a, Sameness.SECOND_TOO_LARGE)):
        if len(side) > LONGEST and side != other:
            return word, f"an answer of {len(side)} characters"
    first, second = _reading(a), _reading(b)
    if first.text == second.text:
        return (Sameness.EQUAL if first.text else Sameness.DIFFERENT), "the same text"
    if first.is_too_large or second.is_too_large:
        is_first = first.is_too_large
        return (Sameness.FIRST_TOO_LARGE if is_first else Sameness.SECOND_TOO_LARGE), first.why or second.why
    if not first.values or not second.values:
        return _by_library(first, second)
    try:
        same = any(same_value(x, y, settings) for x in first.values for y in second.values)
    except (TooLarge, Undefined) as error:
        return _who_is_too_large(first, second, str(error), settings)
    return (Sameness.EQUAL if same else Sameness.DIFFERENT), "own reader"


def _by_library(first: _Reading, second: _Reading) -> tuple[Sameness, str]:
    why = first.why or second.why
    if _is_words(first) or _is_words(second) or _is_refused(first) or _is_refused(second):
        return Sameness.DIFFERENT, why
    for reading, word in ((first, Sameness.FIRST_TOO_LARGE), (second, Sameness.SECOND_TOO_LARGE)):
        if _HUGE.search(reading.text):  # the library would compute it, whatever it takes
            return word, "a tower of powers, or a power or factorial of a large number"
    return (
        Sameness.EQUAL if library_equal(first.text, second.text) else Sameness.DIFFERENT
    ), f"math-verify; {why}"


def _is_words(reading: _Reading) -> bool:
    return any(isinstance(value, Words) for value in reading.values)


def _is_refused(reading: _Reading) -> bool:
    """Whether the library must not be asked: it reads a part of what has no single reading."""
    return reading.is_refused or (not reading.values and "\\" not in reading.text)


def _who_is_too_large(
    first: _Reading, second: _Reading, detail: str, settings: MathSettings
) -> tuple[Sameness, str]:
    """Say which side is too large, by comparing each with the number 7, which is small."""
    small = _reading("7")
    for reading, word in ((first, Sameness.FIRST_TOO_LARGE), (second, Sameness.SECOND_TOO_LARGE)):
        try:
            for value in reading.values:
                same_value(value, small.values[0], settings)
        except (TooLarge, Undefined):
            return word, detail
    return Sameness.SECOND_TOO_LARGE, detail


@lru_cache(maxsize=4096)
def _reading(text: str) -> _Reading:
    """Read a text; a gold answer is read once for all the answers it is compared with."""
    if len(text) > LONGEST:
        return _Reading(text, why="too long", is_too_large=True)
    cleaned = clean(text)
    try:
        return _Reading(cleaned, tuple(_values(cleaned)))
    except (TooLarge, RecursionError) as error:
        return _Reading(cleaned, why=str(error) or "nested too deeply", is_too_large=True)
    except Unreadable as error:
        return _Reading(cleaned, why=str(error), is_refused=isinstance(error, Refused))


def _values(text: str) -> Iterator[Value]:
    """Yield the readings of a text; commas that may mark thousands give two."""
    yield read(text)
    if (listed := read_as_list(text)) is not None:
        yield listed
