"""Sequences that have no row: in order of their turn, or held back until another one's keys are there."""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(slots=True, eq=False)
class Seq:
    """One ask as the scheduler sees it.

    Args:
        name: the ask's name, for messages.
        group: whose rollout it is; groups are retired as a whole.
        number: order of submission; no two sequences share one.
        tokens: all tokens known when it joins, at least one; after a preemption with what it sampled.
        max_keys: the most keys it can ever need, at least ``tokens.size``.
        priority: larger goes first; ties go by number.
        row: its row, -1 while it waits.
        num_cached: tokens of ``tokens`` taken from the cache when it last got a row.
    """

    name: str
    group: str
    number: int
    tokens: NDArray[np.int64]
    max_keys: int
    priority: int = 0
    row: int = -1
    num_cached: int = 0

    @property
    def turn(self) -> tuple[int, int]:
        """Its place in the order; the smallest goes first."""
        return -self.priority, self.number


class Waiting:
    """The sequences that may join, by turn, and those that each leader holds back."""

    def __init__(self) -> None:
        self.queue: list[Seq] = []
        self.held: dict[Seq, list[tuple[int, Seq]]] = {}  # leader -> (keys it must have, sequence)

    def __len__(self) -> int:
        return len(self.queue) + sum(map(len, self.held.values()))

    def add(self, seq: Seq) -> bool:
        """Put a sequence into the queue; return whether it is the first there."""
        insort(self.queue, seq, key=_turn)
        return self.queue[0] is seq

    def remove(self, seq: Seq) -> None:
        """Take out a sequence, from the queue or from those held back."""
        at = bisect_left(self.queue, seq.turn, key=_turn)
        if at < len(self.queue) and self.queue[at] is seq:
            del self.queue[at]
            return
        for leader, followers in self.held.items():
            kept = [(need, other) for need, other in followers if other is not seq]
            if len(kept) < len(followers):
                self._set_held(leader, kept)
                return
        raise AssertionError(f"sequence {seq.name!r} does not wait")

    def hold_first(self, leader: Seq, num_keys: int) -> None:
        """Hold the queue's first sequence back until ``leader`` has so many keys."""
        self.held.setdefault(leader, []).append((num_keys, self.queue.pop(0)))

    def release(self, leader: Seq, num_keys: int | None = None) -> list[Seq]:
        """Take out whom a leader with so many keys (None: whatever it has) does not hold back any more."""
        followers = self.held.get(leader, [])
        freed = [seq for need, seq in followers if num_keys is None or need <= num_keys]
        if freed:
            left = [] if num_keys is None else [(n, seq) for n, seq in followers if n > num_keys]
            self._set_held(leader, left)
        return freed

    def turn(self, leader: Seq) -> tuple[int, int]:
        """Return the earliest turn among a leader and those that it holds back."""
        return min([leader.turn, *(seq.turn for _, seq in self.held.get(leader, ()))])

    def _set_held(self, leader: Seq, followers: list[tuple[int, Seq]]) -> None:
        if followers:
            self.held[leader] = followers
        else:
            del self.held[leader]


def _turn(seq: Seq) -> tuple[int, int]:
    return seq.turn
