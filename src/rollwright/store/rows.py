"""JSON-lines files of rows (metrics, results): whole rows only, bad ones named and done again."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rollwright.errors import StoreError
from rollwright.store.strict import dumps
from rollwright.store.tail import LineFile, Torn, keep_aside, reason, write_atomic

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a file of rows holds.

    Args:
        rows: the whole rows, in order.
        bad_lines: numbers of the whole lines that hold no row, from 1.
        num_torn_bytes: bytes after the last newline: half a row that a crash left.
    """

    rows: list[Row]
    bad_lines: tuple[int, ...]
    num_torn_bytes: int

    def latest(self, key: str) -> dict[Any, Row]:
        """Return the last row of each value of ``key``; rows without the key are left out."""
        return {row[key]: row for row in self.rows if key in row}

    def to_run(self, wanted: Iterable[Any], key: str) -> list[Any]:
        """Return the wanted values of ``key`` that no whole row has, in the order wanted."""
        done = self.latest(key)
        return [value for value in wanted if value not in done]


def load_rows(path: str | Path) -> Loaded:
    """Read the whole rows of a JSON-lines file without changing it.

    Nothing is parsed across the end of the last whole line. A line that is no JSON object is left
    out and named in a warning and in the result: what it stood for counts as not done.

    Raises:
        StoreError: the file cannot be read.
    """
    path = Path(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from error
    end = data.rfind(b"\n") + 1
    rows: list[Row] = []
    bad: list[int] = []
    for number, line in enumerate(data[:end].split(b"\n")[:-1], 1):
        row = _row(line)
        if row is None:
            bad.append(number)
        else:
            rows.append(row)
    if bad:
        warnings.warn(
            f"{path}: {len(bad)} damaged rows left out (lines {_some(bad)}); their work counts as not done",
            stacklevel=2,
        )
    return Loaded(rows, tuple(bad), len(data) - end)


def _row(line: bytes) -> Row | None:
    try:
        row = json.loads(line, parse_constant=_refuse)
    except (ValueError, UnicodeDecodeError):
        return None
    return row if isinstance(row, dict) else None


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is not JSON")


def _some(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers[:8])) + (", ..." if len(numbers) > 8 else "")


class RowFile:
    """The one writer of a JSON-lines file.

    Opening repairs it: a torn tail is cut off, damaged lines are taken out; both are kept in side
    files, so that every line of the file is a row again.

    Attributes:
        loaded: what the file held when it was opened.
        torn: the torn tail that was cut off, or None.

    Raises:
        StoreError: it cannot be opened, repaired or read.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._file = LineFile(self.path)
        self.torn: Torn | None = self._file.torn
        self.loaded = load_rows(self.path)
        if self.loaded.bad_lines:
            self._file.close()
            _take_out(self.path, self.loaded.bad_lines)
            self._file = LineFile(self.path)

    def append(self, row: Mapping[str, object]) -> None:
        """Append one row as strict JSON; it survives the death of the process once this returns.

        Numbers that are not finite are written as null and named under ``non_finite``.

        Raises:
            DataError: a value that JSON cannot hold.
            StoreError: the disk is full or failing; the rows before it are kept, this one is not.
        """
        text, flags = dumps(row)
        if flags:
            text, _ = dumps({**row, "non_finite": flags})
        _, error = self._file.write(text.encode() + b"\n")
        if error is not None:
            raise StoreError(
                f"cannot append to {self.path}: {reason(error)}. The rows before are whole, this one is lost"
            ) from error

    def close(self) -> None:
        """Close the file. Safe to call twice."""
        self._file.close()


def _take_out(path: Path, bad_lines: tuple[int, ...]) -> None:
    try:
        keep_aside(path, 0, path.stat().st_size)
        bad = set(bad_lines)
        lines = path.read_bytes().split(b"\n")[:-1]
    except OSError as error:
        raise StoreError(f"cannot repair {path}: {reason(error)}; it is unchanged") from error
    write_atomic(path, b"".join(line + b"\n" for number, line in enumerate(lines, 1) if number not in bad))
