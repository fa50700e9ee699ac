"""Which sequence holds which slot, and which cached keys a new one can take over. No torch here.

Slots 0..num_live-1 are the rows that decode. Slots above hold parked keys of sequences that ended, kept
for their group's next turns, forks and resumes until room is needed (least recently used goes first) or
the group is retired. Methods that rearrange slots return the copies to make as `Moves`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rollwright.events import Submit

_COUNTERS = ("keys", "t", "made", "unreported")  # first, so that one addition moves them all on
_INTS = (*_COUNTERS, "token", "limit", "chunk", "stream", "need")
_INTS += ("top_k", "forced", "num_top", "strings", "number")
_FLOATS = ("temperature", "top_p", "min_p")
_INT_ROW = {name: i for i, name in enumerate(_INTS)}
_FLOAT_ROW = {name: i for i, name in enumerate(_FLOATS)}


class Drawn(Protocol):
    """One token of each live row, [B] each, and alternatives, [B, n]."""

    tokens: Any
    logps: Any
    entropies: Any
    kept_masses: Any
    top_ids: Any
    top_logps: Any


@dataclass(slots=True, eq=False)
class Entry:
    """A sequence that waits (slot -1), decodes or is parked.

    Args:
        command: what was asked.
        number: order of submission.
        prefix: every token so far, while it waits; int64.
        turn_at: index of the turn's first token in the whole sequence.
        made: tokens sampled so far for this ask.
        prefilled: tokens prefilled and not reported yet.
    """

    command: Submit
    number: int
    prefix: NDArray[np.int64]
    turn_at: int
    made: int = 0
    prefilled: int = 0
    slot: int = -1
    last_used: int = 0


@dataclass(slots=True)
class Moves:
    """Slots to copy, all at once: sources[i] to targets[i], the first ``length`` keys."""

    sources: list[int] = field(default_factory=list)
    targets: list[int] = field(default_factory=list)
    length: int = 0

    def add(self, source: int, target: int, length: int) -> None:
        self.sources.append(source)
        self.targets.append(target)
        self.length = max(self.length, length)


class SlotTable:
    """State of every slot in columns that move together, and the index of cached prefixes.

    Columns (int64, one per slot): ``keys`` tokens whose keys are cached, ``token`` the next to feed,
    ``t`` its successor's noise position, ``made``, ``limit`` (max_tokens), ``chunk``, ``stream``,
    ``need`` (keys at most), ``unreported``, ``top_k``, ``forced``, ``num_top``, ``strings`` (index of
    the stop strings' table or -1), ``number``; float32: ``temperature``, ``top_p``, ``min_p``.
    Blocks (slot first): ``tokens`` whose keys are cached, ``stop_ids`` padded with -1, and what was
    sampled and not reported: ``out_tokens`` [S, R], ``out_reals`` [S, (logp, entropy, kept mass), R],
    ``top_ids`` and ``top_logps`` [S, R, n].
    """

    def __init__(self) -> None:
        self.num_live = 0
        self.entries: list[Entry | None] = []
        self.group_to_entries: dict[str, list[Entry]] = {}
        self.ints = np.zeros((len(_INTS), 0), np.int64)
        self.floats = np.zeros((len(_FLOATS), 0), np.float32)
        self.tokens = np.zeros((0, 0), np.int64)
        self.stop_ids = np.zeros((0, 0), np.int64)
        self.out_tokens = np.zeros((0, 0), np.int64)
        self.out_reals = np.zeros((0, 3, 0), np.float32)
        self.top_ids = np.zeros((0, 0, 0), np.int64)
        self.top_logps = np.zeros((0, 0, 0), np.float32)
        self._tick = 0
        self._is_plain: bool | None = None

    @property
    def is_plain(self) -> bool:
        """Whether every live row samples at temperature 1 without cuts and forced tokens."""
        if self._is_plain is None:
            cuts = (self.real("top_p") < 1) | (self["top_k"] > 0) | (self.real("min_p") > 0)
            unlike = cuts | (self.real("temperature") != 1) | (self["forced"] >= 0)
            self._is_plain = not bool(unlike.any())
        return self._is_plain

    def __getitem__(self, column: str) -> NDArray[np.int64]:
        """Return an integer column of the live rows, a view."""
        return self.ints[_INT_ROW[column], : self.num_live]

    def real(self, column: str) -> NDArray[np.float32]:
        """Return a float column of the live rows, a view."""
        return self.floats[_FLOAT_ROW[column], : self.num_live]

    def set(self, slot: int, **values: float) -> None:
        """Write columns of one slot."""
        for name, value in values.items():
            if name in _INT_ROW:
                self.ints[_INT_ROW[name], slot] = value
            else:
                self.floats[_FLOAT_ROW[name], slot] = value

    def num_keys(self, entry: Entry) -> int:
        return int(self.ints[0, entry.slot])

    @property
    def num_slots(self) -> int:
        return len(self.entries)

    @property
    def parked(self) -> list[Entry]:
        return [e for e in self.entries[self.num_live :] if e is not None]

    def resize(self, num_slots: int, length: int) -> None:
        """Change the number of slots and their length; entries in slots that go are dropped."""
        for entry in [e for e in self.entries if e is not None]:
            if entry.slot >= num_slots or self.num_keys(entry) > length:
                self.drop(entry)
        self.entries = (self.entries + [None] * num_slots)[:num_slots]
        self.ints = _resized(self.ints, (len(_INTS), num_slots))
        self.floats = _resized(self.floats, (len(_FLOATS), num_slots))
        self._widen(
            num_slots, length, self.stop_ids.shape[1], self.out_tokens.shape[1], self.top_ids.shape[2]
        )

    def widen_for(self, num_stop_ids: int, num_top: int) -> None:
        """Make the blocks wide enough for a row with so many stop ids and alternatives."""
        now = self.stop_ids.shape[1], self.top_ids.shape[2]
        wide = max(now[0], num_stop_ids), max(now[1], num_top)
        if wide != now:
            self._widen(*self.tokens.shape, wide[0], self.out_tokens.shape[1], wide[1])

    def record(self, drawn: Drawn, num_top: int) -> None:
        """Append one sampled token to each live row and move on by one position."""
        num, unreported = np.arange(self.num_live), self["unreported"]
        width = self.out_tokens.shape[1]
        if unreported.max() >= width:
            size = self.stop_ids.shape[1], max(32, 2 * width), self.top_ids.shape[2]
            self._widen(*self.tokens.shape, *size)
        self.out_tokens[num, unreported] = drawn.tokens
        for i, values in enumerate((drawn.logps, drawn.entropies, drawn.kept_masses)):
            self.out_reals[num, i, unreported] = values
        if num_top:
            self.top_ids[num, unreported, :num_top] = drawn.top_ids
            self.top_logps[num, unreported, :num_top] = drawn.top_logps
        self.ints[: len(_COUNTERS), : self.num_live] += 1
        self["token"][:] = drawn.tokens
        if not self.is_plain:
            self["forced"][:] = -1
            self._is_plain = None

    def _widen(self, num_slots: int, length: int, num_stop_ids: int, num_out: int, num_top: int) -> None:
        self.tokens = _resized(self.tokens, (num_slots, length))
        self.stop_ids = _resized(self.stop_ids, (num_slots, num_stop_ids), fill=-1)
        self.out_tokens = _resized(self.out_tokens, (num_slots, num_out))
        self.out_reals = _resized(self.out_reals, (num_slots, 3, num_out))
        self.top_ids = _resized(self.top_ids, (num_slots, num_out if num_top else 0, num_top))
        self.top_logps = _resized(self.top_logps, self.top_ids.shape)

    def find(self, group: str, wanted: NDArray[np.int64]) -> tuple[Entry | None, int]:
        """Return the group's entry that shares most leading tokens with ``wanted``, and how many."""
        entries = self.group_to_entries.get(group)
        if not entries or not wanted.size:
            return None, 0
        slots = np.array([e.slot for e in entries])
        width = min(wanted.size, self.tokens.shape[1])
        differs = self.tokens[slots, :width] != wanted[:width]
        shared = np.where(differs.any(1), differs.argmax(1), width)
        shared = np.minimum(shared, self.ints[0, slots])
        best = int(shared.argmax())
        self._tick += 1
        entries[best].last_used = self._tick
        return (entries[best], int(shared[best])) if shared[best] else (None, 0)

    def place(self, entry: Entry, slot: int) -> None:
        """Put an entry into a free slot and index it."""
        self._is_plain = None
        assert self.entries[slot] is None
        entry.slot = slot
        self._tick += 1
        entry.last_used = self._tick
        self.entries[slot] = entry
        self.group_to_entries.setdefault(entry.command.group, []).append(entry)

    def drop(self, entry: Entry) -> None:
        """Forget an entry's keys."""
        self.entries[entry.slot] = None
        entry.slot = -1
        others = self.group_to_entries[entry.command.group]
        others.remove(entry)
        if not others:
            del self.group_to_entries[entry.command.group]

    def retire(self, group: str) -> None:
        """Drop what is parked for a group."""
        for entry in list(self.group_to_entries.get(group, ())):
            if entry.slot >= self.num_live:
                self.drop(entry)

    def park(self, rows: Iterable[int]) -> Moves:
        """End live rows: swap them behind the rows that stay live."""
        ended, self._is_plain = set(rows), None
        self.num_live -= len(ended)
        holes = sorted(r for r in ended if r < self.num_live)
        movers = [r for r in range(self.num_live, self.num_live + len(ended)) if r not in ended]
        moves = Moves()
        for hole, mover in zip(holes, movers, strict=True):
            length = int(max(self.ints[0, hole], self.ints[0, mover]))
            moves.add(mover, hole, length)
            moves.add(hole, mover, length)
        self._apply(moves)
        return moves

    def make_room(self, num: int) -> Moves:
        """Free the ``num`` slots behind the live rows: what is parked there moves further back, and the
        least recently used goes where there is no place for all."""
        first, end = self.num_live, self.num_live + num
        newest_first = sorted(self.parked, key=lambda e: -e.last_used)
        for entry in newest_first[self.num_slots - end :]:
            self.drop(entry)
        free = [s for s in range(end, self.num_slots) if self.entries[s] is None]
        moves = Moves()
        for entry in [e for e in self.entries[first:end] if e is not None]:
            moves.add(entry.slot, free.pop(), self.num_keys(entry))
        self._apply(moves)
        return moves

    def _apply(self, moves: Moves) -> None:
        """Move the columns and entries as the keys will be moved."""
        sources, targets = moves.sources, moves.targets
        if not sources:
            return
        for array in (self.ints, self.floats):
            array[:, targets] = array[:, sources]
        blocks = (self.tokens, self.stop_ids, self.out_tokens, self.out_reals, self.top_ids, self.top_logps)
        for block in blocks:
            if block.size:
                block[targets] = block[sources]
        moved = [self.entries[s] for s in sources]
        for source in sources:
            self.entries[source] = None
        for entry, target in zip(moved, targets, strict=True):
            self.entries[target] = entry
            if entry is not None:
                entry.slot = target


def _resized(array: NDArray[Any], shape: tuple[int, ...], fill: int = 0) -> NDArray[Any]:
    if array.shape == shape:
        return array
    new = np.full(shape, fill, array.dtype)
    common = tuple(slice(min(a, b)) for a, b in zip(shape, array.shape, strict=True))
    new[common] = array[common]
    return new


def as_ids(prefix: Sequence[int]) -> NDArray[np.int64]:
    """Return token ids as an array of their own."""
    return np.array(prefix, dtype=np.int64)
