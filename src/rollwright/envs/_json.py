"""JSON as models write it: read piece by piece, so that each piece keeps its place in the text."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any, NoReturn

_SPACE = re.compile(r"[ \t\n\r]*")


class Malformed(ValueError):
    """Text that is not the JSON it should be. The message is meant for the model that wrote it."""


@dataclass(frozen=True, slots=True)
class Item:
    """A value and where it stands: ``text[start:end]``."""

    value: Any
    start: int
    end: int


def skip_space(text: str, at: int) -> int:
    """Return the first place from ``at`` that holds no white space."""
    found = _SPACE.match(text, at)
    return found.end() if found else at


def read_value(text: str, at: int) -> Item:
    """Read one JSON value that begins at ``at``, white space before it left out.

    Raises:
        Malformed: no whole value stands there; NaN, infinities and a key given twice are refused too.
    """
    start = skip_space(text, at)
    try:
        value, end = _DECODER.raw_decode(text, start)
    except Malformed:
        raise
    except json.JSONDecodeError as error:
        near = text[error.pos : error.pos + 20]
        raise Malformed(f"not valid JSON: {error.msg}, before {near!r}") from error
    except RecursionError as error:
        raise Malformed("not valid JSON: nested too deep") from error
    except ValueError as error:  # Python refuses whole numbers of thousands of digits
        raise Malformed(f"not valid JSON: {error}") from error
    return Item(value, start, end)


def read_object(text: str, at: int) -> tuple[dict[str, Item], int]:
    """Read one JSON object; return its values with their places, and where it ends."""
    at, found = _enter(text, at, "{"), {}
    if text[at : at + 1] == "}":
        return {}, at + 1
    while True:
        key = read_value(text, at)
        if not isinstance(key.value, str) or text[key.start] != '"':
            raise Malformed(f"not valid JSON: a key must be text in double quotes, not {key.value!r}")
        if key.value in found:
            raise Malformed(f"the key {key.value!r} is given twice")
        at = _enter(text, key.end, ":")
        found[key.value] = read_value(text, at)
        at = skip_space(text, found[key.value].end)
        if text[at : at + 1] == "}":
            return found, at + 1
        at = _enter(text, at, ",")


def places_of(text: str, array: Item) -> list[Item]:
    """Return the values of an array that was read whole, with their places in the text."""
    found: list[Item] = []
    at = array.start + 1
    for _ in array.value:
        found.append(read_value(text, at))
        at = skip_space(text, found[-1].end) + 1
    return found


def _enter(text: str, at: int, mark: str) -> int:
    at = skip_space(text, at)
    if text[at : at + 1] != mark:
        given = repr(text[at : at + 20]) if at < len(text) else "the end of the text"
        raise Malformed(f"not valid JSON: expected {mark!r}, got {given}")
    return skip_space(text, at + 1)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise Malformed(f"the key {next(key for key in keys if keys.count(key) > 1)!r} is given twice")
    return found


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise Malformed(f"the number {text} is too large")
    return value


def _refuse(name: str) -> NoReturn:
    raise Malformed(f"not valid JSON: {name} is no number of JSON")


# A line break inside a string has one meaning only, so it is let through (strict=False).
_DECODER = json.JSONDecoder(
    strict=False, object_pairs_hook=_unique, parse_float=_finite, parse_constant=_refuse
)
