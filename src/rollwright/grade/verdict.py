"""A grader's word: a score or None, why, and what it rests on."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Status(StrEnum):
    """Why a verdict is what it is.

    The first eight come from the model's output and carry a score. The rest come from our side: their
    score is None, because a failure of ours says nothing about the answer.
    """

    RIGHT = "right"
    WRONG = "wrong"
    NO_ANSWER = "no_answer"  # nothing to grade was found
    TRUNCATED = "truncated"  # the text ended before its answer
    TOO_LARGE = "too_large"  # an answer that cannot be evaluated within bounds, such as a tower of powers
    TIMEOUT = "timeout"  # the model's program, or its answer's evaluation, took too long
    RUNTIME_ERROR = "runtime_error"  # the model's program failed
    LIMIT_HIT = "limit_hit"  # the model's program went over memory, output, files or processes

    NOT_SCORED = "not_scored"  # the grader has no opinion
    BAD_DATA = "bad_data"  # the task's own answer cannot be read
    INFRASTRUCTURE_ERROR = "infrastructure_error"  # a worker, sandbox or server of ours failed
    GRADER_ERROR = "grader_error"  # the grader raised or gave no number
    UNREADABLE = "unreadable"  # a judge's reply is not what was asked for
    INCONSISTENT = "inconsistent"  # a judge's word changes with the order of the answers

    @property
    def is_ours(self) -> bool:
        """Whether the cause lies on our side, so that there is no score."""
        return self in _OURS


_OURS = frozenset(
    (
        Status.NOT_SCORED,
        Status.BAD_DATA,
        Status.INFRASTRUCTURE_ERROR,
        Status.GRADER_ERROR,
        Status.UNREADABLE,
        Status.INCONSISTENT,
    )
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """A grader's word. ``score`` None is not scored: it is never a zero.

    Args:
        score: the reward, finite, or None.
        status: a `Status`, or a word of the task's own for what came from the model's output.
        extracted: the answer that was graded, as it stood in the text.
        detail: for people: what happened.
        rewards: several rewards by name, kept apart for later stages.
        where: where the answer was found: (first, end) in the text, in characters.
        grader: the grader's name and version, ``"math/2"``.
        settings: the grader's settings that can change a verdict, as text.
    """

    score: float | None
    status: str
    extracted: str | None = None
    detail: str = ""
    rewards: dict[str, float] = field(default_factory=dict)
    where: tuple[int, int] | None = None
    grader: str = ""
    settings: dict[str, str] = field(default_factory=dict)
