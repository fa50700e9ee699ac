"""Calc: work out an expression of one to six operations with a calculator for single operations."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np

from rollwright.errors import ConfigError, EnvironmentFault
from rollwright.tasks._content import Ids, draw, parse_id
from rollwright.tasks._recipe import Recipe
from rollwright.tasks.api import Observation, Verdict
from rollwright.tree import TaskId

_CALL = re.compile(r"\s*(-?\d{1,6})([-+*])(-?\d{1,6})=\s*", re.ASCII)
_ANSWER = re.compile(r"\s*#(-?\d{1,9})\s*", re.ASCII)
_TOKEN = re.compile(r"\d+|[-+*]", re.ASCII)


@dataclass(frozen=True, slots=True)
class State:
    """The expression, the calls made so far, and the answer once it is given."""

    expression: str
    num_calls: int = 0
    answer: int | None = None
    is_over: bool = False


def operate(left: int, operator: str, right: int) -> int:
    """Return left + right, left - right or left * right."""
    return {"+": left + right, "-": left - right, "*": left * right}[operator]


def calls_of(expression: str) -> list[tuple[int, str, int, int]]:
    """Return the operations (left, operator, right, value) that work out an expression, in order.

    Products come first, from the left; then sums and differences, from the left.
    """
    parts: list[int | str] = [int(t) if t.isdigit() else t for t in _TOKEN.findall(expression)]
    calls: list[tuple[int, str, int, int]] = []
    while len(parts) > 1:
        k = parts.index("*") if "*" in parts else 1
        left, operator, right = int(parts[k - 1]), str(parts[k]), int(parts[k + 1])
        value = operate(left, operator, right)
        calls.append((left, operator, right, value))
        parts[k - 1 : k + 2] = [value]
    return calls


@dataclass(frozen=True, slots=True)
class Calc:
    """See `calc`."""

    min_operations: int
    max_operations: int
    largest: int
    limit: int
    num_train: int
    num_test: int
    name: str = field(default="calc", init=False)
    grader_version: str = field(default="1", init=False)
    max_tokens: int = field(default=12, init=False)
    stop_strings: tuple[str, ...] = field(default=("=",), init=False)
    recipe: Recipe = field(default=Recipe(noise=0.25, steps=1200, learning_rate=3e-3), init=False)

    def __post_init__(self) -> None:
        if not 1 <= self.min_operations <= self.max_operations <= 12 or self.largest < 2:
            raise ConfigError(
                f"operations {self.min_operations}..{self.max_operations} must lie in 1..12 and"
                f" largest={self.largest} be 2 or more"
            )

    @property
    def max_turns(self) -> int:
        return self.max_operations + 3

    @property
    def context(self) -> int:
        return 4 * self.max_operations + 8 + self.max_turns * (self.max_tokens + 8)

    def num_instances(self, split: str) -> int:
        return {"train": self.num_train, "test": self.num_test}.get(split, 0)

    def ids(self, split: str) -> Sequence[TaskId]:
        return Ids(self.name, split, self.num_instances(split))

    def draw_expression(self, rng: np.random.Generator) -> str:
        num = int(rng.integers(self.min_operations, self.max_operations + 1))
        while True:
            numbers = [str(n) for n in rng.integers(1, self.largest + 1, num + 1)]
            operators = [*rng.choice(list("++--*"), num), ""]
            expression = "".join(n + o for n, o in zip(numbers, operators, strict=True))
            if all(0 <= value <= self.limit for *_, value in calls_of(expression)):
                return expression

    def expression(self, task_id: TaskId) -> str:
        """Return the expression of an id; every value on the way lies in 0..limit."""
        return _instance(self, task_id)

    def prompt(self, task_id: TaskId) -> str:
        return self.expression(task_id) + "\n"

    def reset(self, task_id: TaskId) -> State:
        return State(self.expression(task_id))

    def step(self, state: State, text: str) -> tuple[State, Observation]:
        """Answer a call such as ``12*3=`` with its value; any other turn is the final answer.

        A turn that ends in ``=`` but is not one operation on two numbers is answered by ``error``.

        Raises:
            EnvironmentFault: the final answer was given before.
        """
        if state.is_over:
            raise EnvironmentFault(f"{state.expression} was answered; it takes no further step")
        if not text.rstrip().endswith("="):
            said = _ANSWER.fullmatch(text)
            answer = int(said.group(1)) if said else None
            return replace(state, answer=answer, is_over=True), Observation("", terminated=True)
        after = replace(state, num_calls=state.num_calls + 1)
        call = _CALL.fullmatch(text)
        if not call:
            return after, Observation("error\n")
        return after, Observation(f"{operate(int(call[1]), call[2], int(call[3]))}\n")

    def grade(self, task_id: TaskId, state: State, turns: Sequence[str], truncated: bool) -> Verdict:
        """Compare the answer after ``#`` with the expression's value."""
        right = calls_of(state.expression)[-1][-1]
        if state.answer is not None:
            status = "right" if state.answer == right else "wrong"
            detail = "" if status == "right" else f"the value is {right}"
            return Verdict(float(status == "right"), status, str(state.answer), detail)
        status = "no_answer" if state.is_over and not truncated else "truncated"
        return Verdict(0.0, status, None, "no answer of the form '#number'")

    def demonstrate(self, task_id: TaskId, rng: Any, noise: float) -> Sequence[str]:
        """Call the calculator in order; with probability ``noise`` a call slip, or stop early.

        A slip changes the operator or copies a wrong number; after an early stop the last value is
        given as the answer.
        """
        state, last = self.reset(task_id), 0
        episode: list[str] = []
        instead: dict[int, int] = {}  # the value that a slip gave in the place of the right one
        for left, operator, right, value in calls_of(state.expression):
            left, right = instead.pop(left, left), instead.pop(right, right)
            if rng.random() < noise:
                slip = int(rng.integers(3))
                if slip == 0:
                    break
                operator = str(rng.choice(list("+-*"))) if slip == 1 else operator
                right = int(rng.integers(1, self.largest + 1)) if slip == 2 else right
            turn = f"{left}{operator}{right}="
            state, seen = self.step(state, turn)
            episode += [turn, seen.text]
            last = int(seen.text) if seen.text != "error\n" else last
            instead[value] = last
        return [*episode, f"#{last}"]


@lru_cache(maxsize=4096)
def _instance(task: Calc, task_id: TaskId) -> str:
    split, _ = parse_id(task.name, task_id, task.num_instances)
    return draw(task_id, split, task.draw_expression, str)


def calc(
    *,
    min_operations: int = 1,
    max_operations: int = 6,
    largest: int = 20,
    limit: int = 999,
    num_train: int = 20000,
    num_test: int = 1000,
) -> Calc:
    """Work out an expression with a calculator that does one operation a call.

    Args:
        min_operations, max_operations: how many operations an expression has.
        largest: the largest number in an expression.
        limit: the largest value on the way.
        num_train, num_test: how many instances each split offers.
    """
    return Calc(
        min_operations=min_operations,
        max_operations=max_operations,
        largest=largest,
        limit=limit,
        num_train=num_train,
        num_test=num_test,
    )
