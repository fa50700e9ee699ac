"""The other side of the engine's benchmarks, and the shape that all sides have."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Protocol

import numpy as np

CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}
_clock = ["wall"]


def use_clock(name: str) -> None:
    """Choose what a second is: of the wall's clock, or of this process's processor time.

    The second makes sense with one thread only; then both agree on an idle machine, and on a shared one
    processor time leaves out the moments in which others ran.
    """
    _clock[0] = name


def clock_name() -> str:
    return _clock[0]


def now() -> float:
    """Return the seconds of the chosen clock."""
    return CLOCKS[_clock[0]]()


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests that arrive together: number i has ``prompts[i]`` and makes ``lengths[i]`` tokens."""

    prompts: tuple[tuple[int, ...], ...]
    lengths: tuple[int, ...]

    @property
    def num_tokens(self) -> int:
        return sum(self.lengths)


@dataclass(frozen=True, slots=True)
class Timing:
    """What a run took.

    Args:
        seconds: the whole call, prompts included.
        step_s: a mean step of the second half of the tokens, where the side can tell.
    """

    seconds: float
    step_s: float | None = None


class Side(Protocol):
    """Something that samples a workload at temperature 1 from the full vocabulary."""

    name: str

    def run(self, workload: Workload) -> Timing:
        """Make every token of the workload.

        Raises:
            RuntimeError: it made another number of tokens than was asked for.
        """
        ...

    def close(self) -> None: ...


def equal_lengths(num: int, num_tokens: int, num_words: int, prompt_length: int = 16) -> Workload:
    """Return ``num`` requests with different random prompts of one length."""
    drawn = np.random.default_rng(num).integers(2, num_words, (num, prompt_length))
    return Workload(tuple(tuple(map(int, row)) for row in drawn), (num_tokens,) * num)


def log_normal(num: int, num_words: int, middle: float = 32, sigma: float = 1, cap: int = 256) -> Workload:
    """Return ``num`` requests with log-normal lengths in 1..cap and prompts of 16 to 32 tokens."""
    rng = np.random.default_rng(0)
    lengths = np.clip(np.rint(rng.lognormal(np.log(middle), sigma, num)), 1, cap)
    sizes = rng.integers(16, 33, num)
    prompts = tuple(tuple(map(int, rng.integers(2, num_words, size))) for size in sizes)
    return Workload(prompts, tuple(map(int, lengths)))


def interleave(
    sides: Sequence[Side], workload: Workload, repeats: int, between: Callable[[], object] = lambda: None
) -> dict[str, Timing]:
    """Let each side run the workload in turn, ``repeats`` times over, and return each one's medians."""
    timings: dict[str, list[Timing]] = {side.name: [] for side in sides}
    for _ in range(repeats):
        for side in sides:
            timings[side.name].append(side.run(workload))
            between()
    return {name: _median(of_side) for name, of_side in timings.items()}


def _median(timings: Sequence[Timing]) -> Timing:
    steps = [timing.step_s for timing in timings if timing.step_s is not None]
    return Timing(median(timing.seconds for timing in timings), median(steps) if steps else None)


def check_count(name: str, made: int, workload: Workload) -> None:
    """Refuse a run that did not make the tokens that were asked for."""
    if made != workload.num_tokens:
        raise RuntimeError(f"{name} made {made:,} tokens where {workload.num_tokens:,} were asked for")
