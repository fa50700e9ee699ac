"""What one pass of a decoder computes: the values that the engine hands to a forward, compiled or torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

Ints = NDArray[np.int32]
Floats = NDArray[np.float32]


@dataclass(slots=True)
class Pass:
    """Tokens to feed, N in all, those of a sequence in order.

    Args:
        tokens, positions: [N] what is fed and where it stands in its sequence.
        slots: [N] its sequence's line in ``table`` and ``counts``.
        pages, offsets: [N] the place of its key.
        table, counts: [slots, W] each sequence's pages, and how many places of each are its own, this
            pass's tokens among them; a page may hold less than it could.
        out_rows: [S] indices of the tokens whose logits are wanted, ascending.
    """

    tokens: Ints
    positions: Ints
    slots: Ints
    pages: Ints
    offsets: Ints
    table: Ints
    counts: Ints
    out_rows: Ints


@dataclass(slots=True)
class Noise:
    """How the S rows of logits are sampled.

    Args:
        words: [2, S] of `rollwright.engine.noise.step_words`.
        temperature: [S]; 0 takes the most likely token.
        forced: [S] a token id or -1.
        skip: [S] rows that somebody else samples are not 0.
    """

    words: NDArray[np.uint32]
    temperature: Floats
    forced: NDArray[np.int64]
    skip: Ints


@dataclass(slots=True)
class Drawn:
    """Tokens, and their logprobs and the entropies after temperature over the whole vocabulary, [S] each."""

    tokens: NDArray[np.int64]
    logps: Floats
    entropies: Floats


@dataclass(slots=True)
class BurstPass:
    """Up to T steps in which rows 0..B-1 all decode; what the scheduler counts is moved on in place.

    Args:
        tokens: [B] to feed first.
        num_keys, room, num_pages: the scheduler's columns, [B]; a row without room goes on in the page that
            stands behind its last one in ``table``.
        table, counts: as in `Pass`; ``counts`` are moved on.
        words: [T, 2, B] the noise's seeds.
        temperature: [B].
        is_end: [V] tokens that end any row.
        stop_ids: [B, n], -1 for none.
        stop_set: [B] line of ``may_stop`` or -1.
        may_stop: [sets, V] tokens that may complete a stop string.
    """

    tokens: NDArray[np.int64]
    num_keys: NDArray[np.int64]
    room: NDArray[np.int64]
    num_pages: Ints
    table: Ints
    counts: Ints
    words: NDArray[np.uint32]
    temperature: Floats
    is_end: NDArray[np.bool_]
    stop_ids: NDArray[np.int64]
    stop_set: NDArray[np.int64]
    may_stop: NDArray[np.bool_]


class ForwardPass(Protocol):
    """Computes passes: `rollwright.engine.native.forward` or `rollwright.engine.forward`."""

    name: str

    @property
    def weight_bytes(self) -> int:
        """Bytes of weights that it keeps beside the model's own."""
        ...

    def release(self) -> int:
        """Free what `load_weights` made and return the bytes; it must be called again before `run`."""
        ...

    def load_weights(self) -> None:
        """Take over the model's weights as they are now."""
        ...

    @property
    def can_burst(self) -> bool:
        """Whether it samples by itself, so that `burst` may be called."""
        ...

    def burst(self, work: BurstPass) -> Drawn:
        """Do steps until one in which a row may have ended; return what was drawn, [steps, B] each."""
        ...

    def run(self, work: Pass, noise: Noise | None) -> tuple[Tensor, Drawn | None]:
        """Return the logits of ``out_rows``, [S, V], and what was drawn where it can draw itself."""
        ...
