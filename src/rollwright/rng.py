"""Counter-based randomness: noise is a function of names and positions, never of the schedule.

The noise at position ``t`` of a trajectory is a function of (run seed, task id, trajectory key, t).
A token is ``argmax(logits / temperature + gumbel)`` over the kept set, which is the same as
``argmin(exponential / probability)``; both forms see the bits that `noise_bits` defines. The engine
has a torch twin of the functions here (`rollwright.engine.noise`), tested to give the same bits.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1
# 2⁻³² times the largest float32 below 1: the largest word must not become u = 1, whose E is infinite.
STEP = np.float32(2.0**-32 * (1 - 2.0**-24))


def stream_key(run_seed: int, task_id: str, trajectory: str) -> int:
    """Return the 63-bit key of a trajectory's noise stream.

    Args:
        run_seed: the run's seed, any integer.
        task_id: the task's stable id.
        trajectory: the trajectory's key, unique within the task (visit, sample number, forks).
    """
    text = f"{run_seed}\x1f{task_id}\x1f{trajectory}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") >> 1


def step_words(stream: int, t: int) -> tuple[int, int]:
    """Return the two 32-bit words that seed position ``t`` of a stream (splitmix64's finaliser)."""
    z = (stream + _GOLDEN * (t + 1)) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    z ^= z >> 31
    return z >> 32, z & 0xFFFFFFFF


def noise_bits(words: tuple[int, int], num_words: int) -> NDArray[np.uint32]:
    """Return ``num_words`` 32-bit random words, one per vocabulary entry, for one position.

    x = v·0x9E3779B9 + a; x ^= x»16; x *= 0x7FEB352D; x ^= b; x ^= x»15; x *= 0x846CA68B; x ^= x»16
    (the lowbias32 finaliser with the second word mixed in between).
    """
    a, b = np.uint32(words[0]), np.uint32(words[1])
    with np.errstate(over="ignore"):
        x = np.arange(num_words, dtype=np.uint32) * np.uint32(0x9E3779B9) + a
        x ^= x >> np.uint32(16)
        x *= np.uint32(0x7FEB352D)
        x ^= b
        x ^= x >> np.uint32(15)
        x *= np.uint32(0x846CA68B)
        x ^= x >> np.uint32(16)
    return x


def exponential(bits: NDArray[np.uint32]) -> NDArray[np.float32]:
    """Map 32-bit words to standard exponentials: E = -log1p(-(bits + 0.5)·STEP), in float32.

    Small E keep the resolution of 2⁻³², which is where the winner of the race is decided; all are finite,
    so that a token outside the kept set (E / 0 = inf) never wins. gumbel = -log(E).
    """
    u = (bits.astype(np.float32) + np.float32(0.5)) * STEP
    return np.asarray(-np.log1p(-u), dtype=np.float32)


def generator(run_seed: int, *labels: object) -> np.random.Generator:
    """Return a numpy generator keyed by the run seed and labels, for decisions of stages."""
    text = "\x1f".join([str(run_seed), *map(str, labels)]).encode()
    key = int.from_bytes(hashlib.blake2b(text, digest_size=16).digest(), "little")
    return np.random.Generator(np.random.Philox(key=key))
