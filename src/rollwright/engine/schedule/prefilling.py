"""The live sequences whose known tokens are not all computed, found by how they begin."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from rollwright.engine.schedule.waiting import Seq


class Prefilling:
    """An ordered set of sequences.

    Args:
        head: tokens by which sequences are told apart; fewer common ones are of no interest.
    """

    def __init__(self, head: int) -> None:
        self._head = head
        self._seq_to_head: dict[Seq, bytes] = {}
        self._head_to_seqs: dict[bytes, dict[Seq, None]] = {}

    def __iter__(self) -> Iterator[Seq]:
        return iter(self._seq_to_head)

    def __contains__(self, seq: Seq) -> bool:
        return seq in self._seq_to_head

    def __len__(self) -> int:
        return len(self._seq_to_head)

    def add(self, seq: Seq) -> None:
        """Add one at the end."""
        head = self._seq_to_head[seq] = self._head_of(seq.tokens)
        self._head_to_seqs.setdefault(head, {})[seq] = None

    def discard(self, seq: Seq) -> None:
        """Take one out, if it is there."""
        head = self._seq_to_head.pop(seq, None)
        if head is not None:
            del self._head_to_seqs[head][seq]
            if not self._head_to_seqs[head]:
                del self._head_to_seqs[head]

    def like(self, tokens: NDArray[np.int64]) -> dict[Seq, None]:
        """Return those that share at least the head with ``tokens``, in order."""
        return self._head_to_seqs.get(self._head_of(tokens), {})

    def _head_of(self, tokens: NDArray[np.int64]) -> bytes:
        return tokens[: self._head].tobytes()
