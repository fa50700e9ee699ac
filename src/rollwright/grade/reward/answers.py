"""What the values that a reward function returns mean: plain answers, with an error where there is none."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_MOST_SHOWN = 200  # characters of a value in a message


@dataclass(frozen=True, slots=True)
class Answer:
    """What a function said of one completion; plain values only.

    Args:
        score: finite, or None.
        error: what went wrong, or empty.
        detail: what else it said, for people.
        rewards: further numbers by name.
        extracted: the answer that it says it graded.
    """

    score: float | None
    error: str = ""
    detail: str = ""
    rewards: dict[str, float] = field(default_factory=dict)
    extracted: str | None = None


class Log:
    """Takes what a function logs by TRL's ``log_metric`` and ``log_extra``."""

    def __init__(self) -> None:
        self.metrics: dict[str, float] = {}
        self.columns: dict[str, list[Any]] = {}

    def metric(self, name: str, value: Any) -> None:
        number = as_float(value)
        if number is None:
            raise ValueError(f"log_metric({name!r}, {shown(value)}): expected a finite number")
        self.metrics[name] = number

    def extra(self, column: str, values: Any) -> None:
        self.columns[column] = list(values)


def read(value: Any) -> Answer:
    """Return what one returned value means: a number, None, or a dict with "score" (verl)."""
    if isinstance(value, Mapping):
        if "score" not in value:
            return Answer(None, f"returned {shown(value)}, expected a finite number, or a dict with 'score'")
        answer, pred = read(value["score"]), value.get("pred")
        rest = {str(k): v for k, v in value.items() if k not in ("score", "pred")}
        numbers = {k: number for k, v in rest.items() if (number := as_float(v)) is not None}
        others = [f"{k}={shown(v)}" for k, v in rest.items() if k not in numbers]
        extracted = None if pred is None else str(pred)
        return Answer(answer.score, answer.error, ", ".join(others), numbers, extracted)
    if value is None:
        return Answer(None)
    score = as_float(value)
    if score is None:
        return Answer(None, f"returned {shown(value)}, expected a finite number or None")
    return Answer(score)


def as_float(value: Any) -> float | None:
    """Return a finite float, or None where ``value`` is not one. Text is not a number."""
    if isinstance(value, str | bytes):
        return None
    try:
        score = float(value)
    except Exception:  # a foreign object's __float__ may raise anything
        return None
    return score if math.isfinite(score) else None


def read_list(value: Any, num: int, log: Log) -> list[Answer]:
    """Return one answer for each completion, or the same error for all of them."""
    if isinstance(value, Answer):
        return [value] * num
    try:
        values = None if isinstance(value, str | bytes | Mapping) else list(value)
    except TypeError:
        values = None
    if values is None or len(values) != num:
        what = "one completion" if num == 1 else f"{num} completions"
        error = f"returned {shown(value)} for {what}, expected a list of {num}"
        return [Answer(None, error)] * num
    return [_with_log(read(one), log, place, num) for place, one in enumerate(values)]


def _with_log(answer: Answer, log: Log, place: int, num: int) -> Answer:
    """Add what the function logged: metrics of the whole call, and this completion's extra columns."""
    if not log.metrics and not log.columns:
        return answer
    extras = [
        f"{column}={shown(values[place])}" for column, values in log.columns.items() if len(values) == num
    ]
    detail = ", ".join(filter(None, [answer.detail, *extras]))
    return Answer(answer.score, answer.error, detail, {**log.metrics, **answer.rewards}, answer.extracted)


def raised(error: BaseException) -> str:
    """Return an exception in words, also one whose own text raises."""
    try:
        text = str(error)
    except Exception:  # a foreign exception's __str__ may raise anything
        text = "it cannot be shown"
    return f"raised {type(error).__name__}: {text}"


def shown(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:  # a foreign object's __repr__ may raise anything
        text = f"a {type(value).__name__}"
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."
