"""Sums: add two small numbers. A language model of a hundred million weights gets some of them right."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from rollwright.errors import ConfigError, EnvironmentFault
from rollwright.rng import generator
from rollwright.tasks._content import Ids, parse_id, split_of
from rollwright.tasks._recipe import Recipe
from rollwright.tasks.api import Observation, Verdict
from rollwright.tree import TaskId

# A minus behind a digit is an operator; 9.5 and 1,000 are one number each.
_NUMBER = re.compile(r"(?:(?<!\d)[-−])?\d+(?:[.,]\d+)*", re.ASCII)
_TEST_SHARE = 0.5  # there are few pairs: half of them make a test that is large enough


@dataclass(frozen=True, slots=True)
class Sums:
    """See `sums`."""

    largest: int
    max_tokens: int
    name: str = field(default="sums", init=False)
    grader_version: str = field(default="1", init=False)
    max_turns: int = field(default=1, init=False)
    context: int = field(default=256, init=False)
    stop_strings: tuple[str, ...] = field(default=(), init=False)
    recipe: Recipe = field(default=Recipe(), init=False)

    def __post_init__(self) -> None:
        if self.largest < 2:
            raise ConfigError(f"largest={self.largest} must be 2 or more")

    def ids(self, split: str) -> Sequence[TaskId]:
        return Ids(self.name, split, self.num_instances(split))

    def num_instances(self, split: str) -> int:
        return len(_pairs(self.largest).get(split, ()))

    def pair(self, task_id: TaskId) -> tuple[int, int]:
        """Return the two numbers of an id; each pair is one instance."""
        split, number = parse_id(self.name, task_id, self.num_instances)
        return _pairs(self.largest)[split][number]

    def prompt(self, task_id: TaskId) -> str:
        left, right = self.pair(task_id)
        return f"Calculate {left} + {right} and reply with the result only."

    def reset(self, task_id: TaskId) -> TaskId:
        return task_id

    def step(self, state: TaskId, text: str) -> tuple[TaskId, Observation]:
        raise EnvironmentFault("sums has one turn and no environment step")

    def grade(self, task_id: TaskId, state: Any, turns: Sequence[str], truncated: bool) -> Verdict:
        """Compare the last number of a finished reply with the sum; they must be the same digits."""
        right = str(sum(self.pair(task_id)))
        said = _NUMBER.findall("".join(turns))
        if truncated:
            return Verdict(0.0, "truncated", said[-1] if said else None, "the reply was cut off")
        if not said:
            return Verdict(0.0, "no_answer", None, "the reply has no number")
        status = "right" if said[-1] == right else "wrong"
        return Verdict(float(status == "right"), status, said[-1], "" if status == "right" else right)

    def demonstrate(self, task_id: TaskId, rng: Any, noise: float) -> Sequence[str]:
        """Reply with the sum; with probability ``noise`` it is off by one or two."""
        slip = int(rng.choice([-2, -1, 1, 2])) if rng.random() < noise else 0
        return [str(sum(self.pair(task_id)) + slip)]


@lru_cache(maxsize=8)
def _pairs(largest: int) -> dict[str, tuple[tuple[int, int], ...]]:
    """Return each split's pairs in a fixed, mixed order; a + b and b + a are in the same split."""
    numbers = range(1, largest + 1)
    pairs = [(left, right) for left in numbers for right in numbers]
    order = generator(0, "sums", largest).permutation(len(pairs))
    splits: dict[str, list[tuple[int, int]]] = {"train": [], "test": []}
    for place in order:
        left, right = pairs[int(place)]
        splits[split_of(f"{min(left, right)}+{max(left, right)}", _TEST_SHARE)].append((left, right))
    return {split: tuple(found) for split, found in splits.items()}


def sums(*, largest: int = 20, max_tokens: int = 24) -> Sums:
    """Add two numbers and say the sum; the last number of the reply counts, and the reply must end.

    Half of the pairs are held out. It is for pretrained chat models, such as ``smollm2``, and ships no
    model of its own.

    Args:
        largest: the largest number, from 1.
        max_tokens: the longest reply.
    """
    return Sums(largest=largest, max_tokens=max_tokens)
