"""Countdown: reach a target from two or three numbers, with retries in the text."""

from __future__ import annotations

import itertools
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

_LIMIT = 99  # no written value is larger, so every value has one or two digits
_CHAIN = re.compile(r"\d{1,4}(?:[-+*/]\d{1,4}=\d{1,4})+", re.ASCII)
_STEP = re.compile(r"([-+*/])(\d+)=(\d+)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Level:
    """A kind of instance: how many numbers, the largest of them, and the operators that are allowed."""

    size: int
    largest: int
    operators: str


LEVELS = {1: Level(2, 12, "+-*"), 2: Level(3, 10, "+-"), 3: Level(3, 9, "+-*")}


@dataclass(frozen=True, slots=True)
class Instance:
    """Numbers in the order of the prompt, the allowed operators and the target."""

    numbers: tuple[int, ...]
    operators: str
    target: int

    @property
    def content(self) -> str:
        return f"{sorted(self.numbers)}{self.operators}={self.target}"


def apply(left: int, operator: str, right: int) -> int | None:
    """Return the whole, non-negative value of one operation, or None where it has none."""
    if operator == "+":
        return left + right
    if operator == "*":
        return left * right
    if operator == "-":
        return left - right if left >= right else None
    return left // right if right and left % right == 0 else None


@lru_cache(maxsize=65536)
def chains(numbers: tuple[int, ...], operators: str) -> tuple[tuple[str, int], ...]:
    """Return every (chain, value) that uses each number once and stays within 0..99.

    A chain is worked left to right with every value written: ``3*7=21-5=16``. Chains that only swap
    the first two numbers of a sum or product are given once, larger number first.
    """
    found: dict[str, int] = {}
    for order in itertools.permutations(numbers):
        for chosen in itertools.product(operators, repeat=len(numbers) - 1):
            if chosen[0] in "+*" and order[0] < order[1]:
                continue
            text, value = str(order[0]), order[0]
            for operator, number in zip(chosen, order[1:], strict=True):
                after = apply(value, operator, number)
                if after is None or after > _LIMIT:
                    break
                value = after
                text += f"{operator}{number}={value}"
            else:
                found[text] = value
    return tuple(sorted(found.items()))


def check_chain(line: str, instance: Instance) -> str:
    """Return ``"right"``, ``"no_answer"`` (not a chain at all) or what is wrong with the chain."""
    if not _CHAIN.fullmatch(line):
        return "no_answer"
    head = re.match(r"\d+", line)
    assert head is not None
    value, used = int(head.group()), [int(head.group())]
    for operator, number, stated in _STEP.findall(line[head.end() :]):
        if operator not in instance.operators:
            return f"{operator} is not one of {instance.operators}"
        after = apply(value, operator, int(number))
        if after != int(stated):
            return f"{value}{operator}{number} is not {stated}"
        value = after
        used.append(int(number))
    if sorted(used) != sorted(instance.numbers):
        return f"uses {used}, not each of {list(instance.numbers)} once"
    return "right" if value == instance.target else f"reaches {value}, not {instance.target}"


@lru_cache(maxsize=8)
def _instances(levels: tuple[int, ...], per_level: int) -> dict[str, tuple[Instance, ...]]:
    """Enumerate the instances of some levels, by split, in a fixed shuffled order."""
    pools: dict[str, list[Instance]] = {"train": [], "test": []}
    for level in levels:
        pool = _level(level)
        num = min(per_level, len(pool))
        for instance in pool[:num]:
            pools[split_of(instance.content)].append(instance)
    return {split: tuple(_shuffled(pool, split)) for split, pool in pools.items()}


@lru_cache(maxsize=8)
def _level(level: int) -> list[Instance]:
    """Return every instance of a level once, shuffled."""
    kind = LEVELS[level]
    rng = generator(0, "countdown", "numbers", level)
    pool: list[Instance] = []
    for numbers in itertools.combinations_with_replacement(range(1, kind.largest + 1), kind.size):
        shown = tuple(int(n) for n in rng.permutation(numbers))
        for target in sorted({value for _, value in chains(shown, kind.operators)} - {0}):
            pool.append(Instance(shown, kind.operators, target))
    return _shuffled(pool, f"level {level}")


def _shuffled(items: list[Instance], label: str) -> list[Instance]:
    return [items[k] for k in generator(0, "countdown", label).permutation(len(items))]


@dataclass(frozen=True, slots=True)
class Countdown:
    """See `countdown`."""

    levels: tuple[int, ...]
    per_level: int
    max_tokens: int
    name: str = field(default="countdown", init=False)
    grader_version: str = field(default="1", init=False)
    max_turns: int = field(default=1, init=False)
    stop_strings: tuple[str, ...] = field(default=(), init=False)
    recipe: Recipe = field(
        default=Recipe(noise=0.85, steps=2000, clean_share=0.75, learning_rate=3e-3), init=False
    )

    def __post_init__(self) -> None:
        if not self.levels or set(self.levels) - set(LEVELS):
            raise ConfigError(f"levels {list(self.levels)}: expected some of {list(LEVELS)}")

    @property
    def context(self) -> int:
        return self.max_tokens + 20

    def _all(self) -> dict[str, tuple[Instance, ...]]:
        return _instances(self.levels, self.per_level)

    def _num(self, split: str) -> int:
        return len(self._all()[split])

    def instance(self, task_id: TaskId) -> Instance:
        """Return the numbers and the target of an id."""
        split, number = parse_id(self.name, task_id, self._num)
        return self._all()[split][number]

    def ids(self, split: str) -> Sequence[TaskId]:
        return Ids(self.name, split, self._num(split) if split in ("train", "test") else 0)

    def prompt(self, task_id: TaskId) -> str:
        instance = self.instance(task_id)
        return f"{' '.join(map(str, instance.numbers))} {instance.operators}:{instance.target}\n"

    def reset(self, task_id: TaskId) -> Instance:
        return self.instance(task_id)

    def step(self, state: Instance, text: str) -> tuple[Instance, Observation]:
        raise EnvironmentFault("countdown has one turn and no environment step")

    def grade(self, task_id: TaskId, state: Any, turns: Sequence[str], truncated: bool) -> Verdict:
        """Check the last line: allowed operators, true steps, each number once, the target reached."""
        instance = self.instance(task_id)
        line = "".join(turns).rstrip("\n").rpartition("\n")[2]
        if truncated:
            return Verdict(0.0, "truncated", line or None, "cut before the end token")
        word = check_chain(line, instance)
        if word in ("right", "no_answer"):
            return Verdict(float(word == "right"), word, line if word == "right" else None)
        return Verdict(0.0, "wrong", line, word)

    def demonstrate(self, task_id: TaskId, rng: Any, noise: float) -> Sequence[str]:
        """Try chains in random order, no value twice, until one is right or the room is used up.

        An impatient solver, with probability ``noise``, gives up after its first wrong attempt.
        """
        instance = self.instance(task_id)
        options = chains(instance.numbers, instance.operators)
        is_impatient = rng.random() < noise
        lines: list[str] = []
        tried: set[int] = set()
        num_left = self.max_tokens
        for k in rng.permutation(len(options)):
            chain, value = options[k]
            if value in tried:
                continue
            num_left -= len(chain) + 1
            if num_left < 0:
                break
            lines.append(chain)
            tried.add(value)
            if value == instance.target or is_impatient:
                break
        return ["\n".join(lines)]


def countdown(*, levels: Sequence[int] = (1, 2, 3), per_level: int = 1000, max_tokens: int = 96) -> Countdown:
    """Reach a target from two or three numbers; wrong attempts may be followed by further ones.

    Args:
        levels: 1 is two numbers with + - *; 2 is three numbers with + -; 3 is three numbers with + - *.
        per_level: the most instances of a level, train and test together.
        max_tokens: cap on the answer.
    """
    return Countdown(tuple(levels), per_level, max_tokens)
