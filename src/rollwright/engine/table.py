"""What the engine knows of each row that is live, in columns; rows stay compact."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollwright.engine.passes import Drawn
from rollwright.engine.schedule.waiting import Seq
from rollwright.events import Submit

_COUNTERS = ("t", "made", "unreported")  # first, so that one addition moves them all on
_INTS = (*_COUNTERS, "limit", "chunk", "stream", "top_k", "forced", "num_top", "strings")
_FLOATS = ("temperature", "top_p", "min_p")
_INT_ROW = {name: i for i, name in enumerate(_INTS)}
_FLOAT_ROW = {name: i for i, name in enumerate(_FLOATS)}

At = slice | NDArray[np.intp]  # all live rows, or some of them


@dataclass(slots=True)
class Record:
    """What was sampled and not reported: ``tokens`` [n], ``reals`` [(logp, entropy, kept mass), n], and the
    most likely tokens, ``top_ids`` and ``top_logps`` [n, k]."""

    tokens: NDArray[np.int64]
    reals: NDArray[np.float32]
    top_ids: NDArray[np.int64]
    top_logps: NDArray[np.float32]

    @property
    def num(self) -> int:
        return int(self.tokens.size)

    @classmethod
    def empty(cls) -> Record:
        none = np.zeros((0, 0))
        return cls(
            np.zeros(0, np.int64),
            np.zeros((3, 0), np.float32),
            none.astype(np.int64),
            none.astype(np.float32),
        )


@dataclass(slots=True)
class Saved:
    """The row of a sequence that lost it for a while."""

    ints: NDArray[np.int64]
    floats: NDArray[np.float32]
    record: Record

    def take_record(self) -> Record:
        """Return the record and leave an empty one: it is reported."""
        record, self.record = self.record, Record.empty()
        self.ints[_INT_ROW["unreported"]] = 0
        return record


@dataclass(slots=True, eq=False)
class Entry:
    """An ask in flight.

    Args:
        command: what was asked.
        seq: it, as the scheduler sees it.
        turn_at: index of the turn's first token in the whole sequence.
        prefilled: tokens prefilled and not reported yet.
        saved: its row, while it waits after it had one.
    """

    command: Submit
    seq: Seq
    turn_at: int
    prefilled: int = 0
    saved: Saved | None = None

    @property
    def row(self) -> int:
        return self.seq.row


class RowTable:
    """Columns of the live rows.

    Integers (int64, one a row): ``t`` the noise position of the next token, ``made``, ``unreported``,
    ``limit`` (max_tokens), ``chunk``, ``stream``, ``top_k``, ``forced``, ``num_top``, ``strings`` (index of
    the stop strings' table or -1); float32: ``temperature``, ``top_p``, ``min_p``. Blocks (row first):
    ``tokens`` all known, ``stop_ids`` padded with -1, and the unreported record: ``out_tokens`` [R, n],
    ``out_reals`` [R, (logp, entropy, kept mass), n], ``top_ids`` and ``top_logps`` [R, n, k].
    """

    def __init__(self, max_rows: int) -> None:
        self.ints = np.zeros((len(_INTS), max_rows), np.int64)
        self.floats = np.zeros((len(_FLOATS), max_rows), np.float32)
        self.tokens = np.zeros((max_rows, 0), np.int64)
        self.stop_ids = np.zeros((max_rows, 0), np.int64)
        self.out_tokens = np.zeros((max_rows, 0), np.int64)
        self.out_reals = np.zeros((max_rows, 3, 0), np.float32)
        self.top_ids = np.zeros((max_rows, 0, 0), np.int64)
        self.top_logps = np.zeros((max_rows, 0, 0), np.float32)

    def get(self, column: str, at: At) -> NDArray[np.int64]:
        """Return an integer column of rows: a view of all, a copy of some."""
        return self.ints[_INT_ROW[column], at]

    def real(self, column: str, at: At) -> NDArray[np.float32]:
        """Return a float column of rows."""
        return self.floats[_FLOAT_ROW[column], at]

    def set(self, at: At | int, **values: float) -> None:
        """Write columns of rows."""
        for name, value in values.items():
            if name in _INT_ROW:
                self.ints[_INT_ROW[name], at] = value
            else:
                self.floats[_FLOAT_ROW[name], at] = value

    def one(self, column: str, row: int) -> int:
        return int(self.ints[_INT_ROW[column], row])

    # ------------------------------------------------------------ rows come, move and go

    def fill(
        self, row: int, tokens: NDArray[np.int64], length: int, stop_ids: Sequence[int], num_top: int
    ) -> None:
        """Write a sequence's tokens, with room for ``length`` in all, and its stop ids."""
        self._widen(length, len(stop_ids), 0, num_top)
        self.tokens[row, : tokens.size] = tokens
        self.stop_ids[row] = -1
        self.stop_ids[row, : len(stop_ids)] = stop_ids

    def move(self, source: int, target: int) -> None:
        """The last row takes the place of one that ended."""
        for array in (self.ints, self.floats):
            array[:, target] = array[:, source]
        for block in (
            self.tokens,
            self.stop_ids,
            self.out_tokens,
            self.out_reals,
            self.top_ids,
            self.top_logps,
        ):
            block[target] = block[source]

    def save(self, row: int) -> Saved:
        """Return a copy of what a row holds besides its tokens."""
        return Saved(self.ints[:, row].copy(), self.floats[:, row].copy(), self.record_of(row))

    def restore(self, row: int, saved: Saved) -> None:
        """Write back what `save` returned."""
        record, num = saved.record, saved.record.num
        self.ints[:, row], self.floats[:, row] = saved.ints, saved.floats
        self._widen(0, 0, num, record.top_ids.shape[1])
        self.out_tokens[row, :num], self.out_reals[row, :, :num] = record.tokens, record.reals
        width = record.top_ids.shape[1]
        self.top_ids[row, :num, :width] = record.top_ids
        self.top_logps[row, :num, :width] = record.top_logps

    def record_of(self, row: int) -> Record:
        """Return a copy of what a row sampled since its last report."""
        num = self.one("unreported", row)
        return Record(
            self.out_tokens[row, :num].copy(),
            self.out_reals[row, :, :num].copy(),
            self.top_ids[row, :num].copy(),
            self.top_logps[row, :num].copy(),
        )

    # ------------------------------------------------------------ what is sampled

    def append(self, at: At, positions: NDArray[np.int64], draw: Drawing) -> None:
        """Append one sampled token to rows: it becomes the token at ``positions``, and is to be reported."""
        unreported = self.get("unreported", at)
        if unreported.max() >= self.out_tokens.shape[1]:
            self._widen(0, 0, int(unreported.max()) + 1, 0)
        rows = np.arange(self.out_tokens.shape[0])[at]
        self.tokens[rows, positions] = draw.tokens
        self.out_tokens[rows, unreported] = draw.tokens
        for i, values in enumerate((draw.logps, draw.entropies, draw.kept_masses)):
            self.out_reals[rows, i, unreported] = values
        for row, ids, logps in draw.tops:
            here = self.one("unreported", row)
            self.top_ids[row, here, : ids.size], self.top_logps[row, here, : ids.size] = ids, logps
        self.ints[: len(_COUNTERS), at] += 1
        self.set(at, forced=-1)

    def append_many(self, num: int, positions: NDArray[np.int64], drawn: Drawn) -> None:
        """Append T sampled tokens to each of the first rows, the first of them at ``positions``, [num]."""
        steps = drawn.tokens.shape[0]
        unreported = self.ints[_INT_ROW["unreported"], :num]
        self._widen(0, 0, int(unreported.max()) + steps, 0)
        rows, more = np.arange(num)[:, None], np.arange(steps)
        to = unreported[:, None] + more
        self.tokens[rows, positions[:, None] + more] = drawn.tokens.T
        self.out_tokens[rows, to] = drawn.tokens.T
        self.out_reals[rows, 0, to], self.out_reals[rows, 1, to] = drawn.logps.T, drawn.entropies.T
        self.out_reals[rows, 2, to] = 1
        self.ints[: len(_COUNTERS), :num] += steps

    def append_ragged(
        self,
        rows: NDArray[np.intp],
        within: NDArray[np.int64],
        positions: NDArray[np.int64],
        nums: NDArray[np.int64],
        drawn: Drawn,
    ) -> None:
        """Append sampled tokens, some to each of the first rows.

        Args:
            rows: [N] whose token it is.
            within: [N] its number among the row's.
            positions: [B] of each row's first one.
            nums: [B] how many each row gets.
            drawn: [N] each.
        """
        unreported = self.ints[_INT_ROW["unreported"], : nums.size]
        self._widen(0, 0, int((unreported + nums).max()), 0)
        to = unreported[rows] + within
        self.tokens[rows, positions[rows] + within] = drawn.tokens
        self.out_tokens[rows, to] = drawn.tokens
        self.out_reals[rows, 0, to], self.out_reals[rows, 1, to] = drawn.logps, drawn.entropies
        self.out_reals[rows, 2, to] = 1
        self.ints[: len(_COUNTERS), : nums.size] += nums

    def _widen(self, length: int, num_stop_ids: int, num_out: int, num_top: int) -> None:
        have = self.tokens.shape[1], self.stop_ids.shape[1], self.out_tokens.shape[1], self.top_ids.shape[2]
        length, num_stop_ids = _grown(have[0], length), max(have[1], num_stop_ids)
        num_out, num_top = _grown(have[2], num_out), max(have[3], num_top)
        rows = self.tokens.shape[0]
        self.tokens = _resized(self.tokens, (rows, length))
        self.stop_ids = _resized(self.stop_ids, (rows, num_stop_ids), fill=-1)
        self.out_tokens = _resized(self.out_tokens, (rows, num_out))
        self.out_reals = _resized(self.out_reals, (rows, 3, num_out))
        self.top_ids = _resized(self.top_ids, (rows, num_out, num_top))
        self.top_logps = _resized(self.top_logps, (rows, num_out, num_top))


@dataclass(slots=True)
class Drawing:
    """One token of each of B rows, [B] each; ``tops`` are (row, token ids, logprobs) where wanted."""

    tokens: NDArray[np.int64]
    logps: NDArray[np.float32]
    entropies: NDArray[np.float32]
    kept_masses: NDArray[np.float32]
    tops: list[tuple[int, NDArray[np.int64], NDArray[np.float32]]] = field(default_factory=list)


def _grown(have: int, want: int) -> int:
    return have if want <= have else max(want, 2 * have, 32)


def _resized(array: NDArray[Any], shape: tuple[int, ...], fill: int = 0) -> NDArray[Any]:
    if array.shape == shape:
        return array
    new = np.full(shape, fill, array.dtype)
    common = tuple(slice(min(a, b)) for a, b in zip(shape, array.shape, strict=True))
    new[common] = array[common]
    return new
