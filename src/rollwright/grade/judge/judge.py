"""A model as the grader: scores, ticks of criteria, and comparisons that must not depend on the order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from rollwright.errors import ConfigError
from rollwright.grade.judge import words
from rollwright.grade.judge.asking import Found, ask_until_read
from rollwright.grade.judge.chat import Chat
from rollwright.grade.rubric import Rubric
from rollwright.grade.verdict import Status, Verdict

GRADER = f"judge/{words.VERSION}"


@dataclass(frozen=True, slots=True)
class Question:
    """What is judged: a question, an answer to it and, where it is known, a reference answer."""

    question: str
    answer: str
    gold: str | None = None


@dataclass(frozen=True, slots=True)
class Preference:
    """Which of two answers is better.

    Args:
        winner: ``"tie"`` where the judge says so, or where its word changes with the order; None where there
            is no word.
        is_consistent: it says the same in both orders; None where it was not read in both.
        detail: for people, with the cost in tokens.
        status: why there is no word.
    """

    winner: Literal["first", "second", "tie"] | None
    is_consistent: bool | None
    detail: str = ""
    status: str = ""

    def verdict(self, flip_score: float | None = None) -> Verdict:
        """Return the first answer's verdict against the second: 1, 0.5 for a tie, 0.

        Args:
            flip_score: the score where the judge's word changes with the order; None leaves it unscored.
        """
        settings = {"flip_score": str(flip_score)}
        about: dict[str, Any] = {"detail": self.detail, "grader": GRADER, "settings": settings}
        if self.winner is None:
            return Verdict(None, self.status or Status.GRADER_ERROR, **about)
        if not self.is_consistent and flip_score is None:
            return Verdict(None, Status.INCONSISTENT, **about)
        score = {"first": 1.0, "tie": 0.5, "second": 0.0}[self.winner]
        if not self.is_consistent and flip_score is not None:
            score = flip_score
        return Verdict(score, Status.RIGHT if score == 1 else Status.WRONG, **about)


@dataclass(frozen=True, slots=True)
class Judge:
    """Grades by asking a model. A reply that cannot be read is asked for again, and is never a score.

    Args:
        chat: the model.
        criteria: what to judge by.
        low, high: the scale that the model is asked for; verdicts are brought to [0, 1].
        passes: the least verdict that counts as right.
        attempts: replies to one question until one can be read, ≥ 1.

    Raises:
        ConfigError: a number out of range.
    """

    chat: Chat
    criteria: str = "the answer is right, complete, and does what the question asks"
    low: float = 0.0
    high: float = 10.0
    passes: float = 1.0
    attempts: int = 2

    def __post_init__(self) -> None:
        if not self.low < self.high or self.attempts < 1:
            raise ConfigError(
                f"judge: low={self.low}, high={self.high}, attempts={self.attempts}; expected low < high and"
                " at least one attempt"
            )

    def grade(self, question: str, answer: str, gold: str | None = None) -> Verdict:
        """Return the verdict on one answer; see `grade_many`."""
        return self.grade_many([Question(question, answer, gold)])[0]

    def grade_many(self, questions: Sequence[Question]) -> list[Verdict]:
        """Return a verdict for each, in order, all at once.

        An empty answer is ``no_answer`` and costs nothing. A model that cannot be reached is an
        ``infrastructure_error``; replies that cannot be read are ``unreadable``. Neither has a score.
        """
        asked = [question for question in questions if question.answer.strip()]
        read = partial(words.read_number, key="score", low=self.low, high=self.high)
        found = iter(ask_until_read(self.chat, self.attempts, [self._score_words(q) for q in asked], read))
        return [self._verdict(next(found)) if q.answer.strip() else _empty() for q in questions]

    def tick(self, question: str, answer: str, criteria: Sequence[str]) -> list[Verdict]:
        """Return for each criterion whether the answer meets it: 1 or 0, each judged on its own."""
        if not answer.strip():
            return [_empty() for _ in criteria]
        parts = {"question": words.fenced("question", question), "answer": words.fenced("answer", answer)}
        asks = [words.TICK.format(rules=words.RULES, criteria=text, **parts) for text in criteria]
        found = ask_until_read(
            self.chat, self.attempts, asks, partial(words.read_word, key="met", options=(True, False))
        )
        return [self._verdict(one, scale=False) for one in found]

    def grade_rubric(self, question: str, answer: str, rubric: Rubric) -> Verdict:
        """Return the rubric's verdict, its criteria's texts ticked by the model, level by level.

        All criteria of a level are asked at once; those behind a closed gate are not asked.
        """
        kept: dict[str, Verdict] = {}

        def part(level: int, name: str) -> Verdict:
            if name not in kept:
                criteria = rubric.levels[level].criteria
                ticks = self.tick(question, answer, [c.text or c.name for c in criteria])
                kept.update(zip([c.name for c in criteria], ticks, strict=True))
            return kept[name]

        graders = {c.name: partial(part, k, c.name) for k, v in enumerate(rubric.levels) for c in v.criteria}
        return rubric.grade(graders)

    def compare(self, question: str, first: str, second: str, gold: str | None = None) -> Preference:
        """Return which answer is better, asked in both orders."""
        return self.compare_many([(question, first, second, gold)])[0]

    def compare_many(self, pairs: Sequence[tuple[str, str, str, str | None]]) -> list[Preference]:
        """Return a preference for each (question, first, second, gold), each asked in both orders.

        Two equal answers are a tie, and cost nothing.
        """
        asks = []
        for question, first, second, gold in pairs:
            if first != second:
                asks += [self._pair_words(question, *two, gold) for two in ((first, second), (second, first))]
        options = ("first", "second", "tie")
        found = iter(
            ask_until_read(
                self.chat, self.attempts, asks, partial(words.read_word, key="better", options=options)
            )
        )
        same = Preference("tie", True, "the answers are equal")
        return [same if a == b else _preference(next(found), next(found)) for _, a, b, _ in pairs]

    # ------------------------------------------------------------ words and verdicts

    def _verdict(self, found: Found, scale: bool = True) -> Verdict:
        settings = {
            "model": self.chat.name,
            "criteria": self.criteria,
            "scale": f"{self.low:g}..{self.high:g}",
        }
        about: dict[str, Any] = {"detail": found.detail, "grader": GRADER, "settings": settings}
        if found.status:
            return Verdict(None, found.status, **about)
        score = (found.value - self.low) / (self.high - self.low) if scale else float(found.value)
        return Verdict(
            score, Status.RIGHT if score >= (self.passes if scale else 1) else Status.WRONG, **about
        )

    def _score_words(self, q: Question) -> str:
        return words.SCORE.format(
            rules=words.RULES,
            criteria=self.criteria,
            question=words.fenced("question", q.question),
            gold=_gold(q.gold),
            answer=words.fenced("answer", q.answer),
            low=self.low,
            high=self.high,
        )

    def _pair_words(self, question: str, first: str, second: str, gold: str | None) -> str:
        return words.COMPARE.format(
            rules=words.RULES,
            criteria=self.criteria,
            question=words.fenced("question", question),
            gold=_gold(gold),
            first=words.fenced("first", first),
            second=words.fenced("second", second),
        )


def _preference(one: Found, other: Found) -> Preference:
    """Put together what was said in the two orders."""
    tokens = (one.tokens[0] + other.tokens[0], one.tokens[1] + other.tokens[1])
    cost = f"{tokens[0]}+{tokens[1]} tokens"
    if one.status or other.status:
        why = "; ".join(found.why for found in (one, other) if found.status)
        return Preference(None, None, f"{why}; {cost}", one.status or other.status)
    swapped = {"first": "second", "second": "first", "tie": "tie"}[other.value]
    if one.value == swapped:
        return Preference(one.value, True, cost)
    return Preference("tie", False, f"{one.value} in one order, {swapped} in the other; {cost}")


def _gold(gold: str | None) -> str:
    return "" if gold is None else words.fenced("reference", gold) + "\n\n"


def _empty() -> Verdict:
    return Verdict(0.0, Status.NO_ANSWER, detail="the answer is empty", grader=GRADER)
