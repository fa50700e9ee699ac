"""Strict JSON from what graders and stages really hand over: numpy scalars, arrays, NaN."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from rollwright.errors import DataError

Path = tuple[str | int, ...]


def plain(value: object, path: Path = ()) -> tuple[Any, list[tuple[Path, str]]]:
    """Return ``value`` as plain JSON values, and where a number was not finite.

    Numbers stay numbers: numpy scalars become int, float or bool, arrays become lists. JSON knows
    no NaN or infinity, so those become None and are named in the second result as
    ``(path, "nan" | "inf" | "-inf")``.

    Args:
        value: None, bool, number, string, sequence, mapping with string keys, numpy array or scalar,
            anything with ``tolist()``.
        path: where ``value`` stands in what is being written, for messages.

    Raises:
        DataError: something JSON cannot hold; it is named, never turned into a string in silence.
    """
    if isinstance(value, Enum):
        value = value.value
    if value is None or isinstance(value, (bool, int, str)):
        return (str(value) if isinstance(value, str) else value), []
    if isinstance(value, float):
        number = float(value)
        return (number, []) if math.isfinite(number) else (None, [(path, str(number))])
    if hasattr(value, "tolist"):
        return plain(value.tolist(), path)
    if isinstance(value, Mapping):
        return _plain_mapping(value, path)
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray, memoryview)):
        if set(map(type, value)) == {float} and math.isfinite(sum(value)):
            return list(value), []
        parts = [plain(item, (*path, place)) for place, item in enumerate(value)]
        return [part for part, _ in parts], [flag for _, flags in parts for flag in flags]
    raise DataError(
        f"{dotted(path) or 'value'} is a {type(value).__name__}, which JSON cannot hold; expected a "
        "number, string, boolean, None, list, mapping or numpy value: convert it where it is made"
    )


def _plain_mapping(value: Mapping[Any, object], path: Path) -> tuple[dict[str, Any], list[tuple[Path, str]]]:
    result: dict[str, Any] = {}
    flags: list[tuple[Path, str]] = []
    for key, item in value.items():
        if not isinstance(key, str):
            raise DataError(f"{dotted(path) or 'mapping'} has the key {key!r}; JSON keys must be strings")
        result[str(key)], more = plain(item, (*path, str(key)))
        flags.extend(more)
    return result, flags


def dotted(path: Path) -> str:
    """Return a path as text: ``("extras", "v", 1)`` is ``extras.v.1``."""
    return ".".join(map(str, path))


def dumps(value: object) -> tuple[str, dict[str, str]]:
    """Return ``value`` as one line of strict JSON and the flags of its non-finite numbers.

    Returns:
        (text, flags): ``flags`` maps the dotted path of each null that stands for a number that is
        not finite to ``"nan"``, ``"inf"`` or ``"-inf"``.

    Raises:
        DataError: as `plain`.
    """
    clean, flags = plain(value)
    text = json.dumps(clean, allow_nan=False, separators=(",", ":"))
    return text, {dotted(path): word for path, word in flags}
