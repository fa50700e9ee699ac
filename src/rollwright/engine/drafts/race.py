"""The noise that the sampler will use, for the few tokens that a drafter thinks of.

A token is the one whose exponential time over its probability is the least (`rollwright.rng`). A drafter
that runs the same race with its own estimate of the probabilities guesses right with a chance of at least
(1 - d) / (1 + d), where d is the distance in total variation of the two distributions (coupling by a common
race), however flat they are; the likeliest token is right with its own probability only.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from rollwright.rng import step_words

_MASK = 0xFFFFFFFF


class Noise:
    """The noise of one position of a stream."""

    __slots__ = ("_a", "_b")

    def __init__(self, stream: int, t: int) -> None:
        self._a, self._b = step_words(stream, t)

    def time(self, token: int) -> float:
        """Return a token's exponential time, `rollwright.rng.exponential`, to float32's precision."""
        x = (token * 0x9E3779B9 + self._a) & _MASK
        x ^= x >> 16
        x = x * 0x7FEB352D & _MASK
        x ^= self._b
        x ^= x >> 15
        x = x * 0x846CA68B & _MASK
        x ^= x >> 16
        return -math.log1p(-(x + 0.5) * 2.0**-32)

    def winner(self, token_and_weight: Iterable[tuple[int, float]]) -> int:
        """Return the token that wins the race with these weights, which need not sum to 1."""
        return min(token_and_weight, key=lambda pair: self.time(pair[0]) / pair[1])[0]
