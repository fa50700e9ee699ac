"""FAPO: right answers with a wrong step get less, so that luck helps early and stops paying later."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from rollwright.errors import ConfigError
from rollwright.grade.judge import words
from rollwright.grade.judge.asking import ask_until_read
from rollwright.grade.judge.chat import Chat
from rollwright.grade.verdict import Status, Verdict

GRADER = "flaw_aware/1"
FLAWED = "flawed"  # right, by a wrong way: a status of the model's own output
_ASK = (
    "{rules}\n\nThe solution below reaches the right answer. Find its first step that is wrong or does not"
    " follow: a guess, a jump, a false statement.\n\n{question}\n\n{steps}\n\n"
    'Reply with {{"first_error": n}}, the number of that step, or 0 if every step holds.'
)


@dataclass(frozen=True, slots=True)
class Critique:
    """What a critic says of one solution.

    Args:
        first_error: index from 0 of the first wrong step; None where every step holds or nothing was read.
        status: empty, or why nothing was read.
        detail: for people, with the cost in tokens.
    """

    first_error: int | None
    status: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Critic:
    """A generative reward model that finds the first wrong step.

    Args:
        chat: the model.
        attempts: replies to one solution until one can be read, ≥ 1.
    """

    chat: Chat
    attempts: int = 2

    def locate(self, solutions: Sequence[tuple[str, Sequence[str]]]) -> list[Critique]:
        """Return a critique for each (question, steps), all asked at once."""
        critiques: list[Critique] = []
        asks = [_words(question, steps) for question, steps in solutions]
        most = max((len(steps) for _, steps in solutions), default=0)
        read = partial(words.read_word, key="first_error", options=tuple(range(most + 1)))
        found = ask_until_read(self.chat, self.attempts, asks, read)
        for (_, steps), one in zip(solutions, found, strict=True):
            if not one.status and one.value > len(steps):
                why = f"it names step {one.value} of {len(steps)}; {one.detail}"
                critiques.append(Critique(None, Status.UNREADABLE, why))
            else:
                critiques.append(Critique(one.value - 1 if one.value else None, one.status, one.detail))
        return critiques


@dataclass(frozen=True, slots=True)
class FlawAware:
    """Shape outcomes by a critic.

    R = −1 wrong, +1 right, +1 − λ right with a wrong step

    Only right answers are shown to the critic. With λ = 1 a flawed answer scores 0: its advantage is positive
    while most of its group is wrong, and negative once most is right, without a schedule.

    Args:
        critic: finds the step.
        penalty: λ ≥ 0.

    Where the critic fails, the answer is unscored. Source: FAPO (2510.22543).

    Raises:
        ConfigError: a penalty below 0.
    """

    critic: Critic
    penalty: float = 1.0

    def __post_init__(self) -> None:
        if not self.penalty >= 0:
            raise ConfigError(f"FlawAware: penalty = {self.penalty}; expected a number ≥ 0")

    def shape(self, question: str, answers: Sequence[str], verdicts: Sequence[Verdict]) -> list[Verdict]:
        """Return the shaped verdicts of a group's answers; one without a score stays as it is."""
        steps = [split_steps(answer) for answer in answers]
        right = [i for i, verdict in enumerate(verdicts) if verdict.status == Status.RIGHT]
        critiques = dict(zip(right, self.critic.locate([(question, steps[i]) for i in right]), strict=True))
        return [self._shaped(verdict, critiques.get(i)) for i, verdict in enumerate(verdicts)]

    def _shaped(self, verdict: Verdict, critique: Critique | None) -> Verdict:
        if verdict.score is None:
            return verdict
        settings = {**verdict.settings, "penalty": f"{self.penalty:g}"}
        kept = {**verdict.rewards, "outcome": 1.0 if critique else -1.0}
        about: dict[str, Any] = {"settings": settings, "grader": f"{GRADER}>{verdict.grader}"}
        if critique is None:
            return replace(verdict, score=-1.0, rewards=kept, **about)
        if critique.status:
            detail = f"the critic: {critique.detail}"
            return replace(verdict, score=None, status=critique.status, rewards=kept, detail=detail, **about)
        if critique.first_error is None:
            return replace(verdict, score=1.0, rewards={**kept, "is_flawed": 0.0}, **about)
        detail = f"step {critique.first_error + 1} is wrong; {critique.detail}"
        kept |= {"is_flawed": 1.0, "first_error": float(critique.first_error)}
        score = 1.0 - self.penalty
        return replace(verdict, score=score, status=FLAWED, rewards=kept, detail=detail, **about)


def locating_reward(said: int | None, truth: int | None, num_steps: int) -> float:
    """Return the reward that trains a critic: whether it flags rightly, and how far from the step.

    R = (+1 if flagged rightly, else −1) − |t̂ − t*| / n where it flags what is flawed

    Args:
        said, truth: index of the first wrong step, None for none.
        num_steps: n ≥ 1.

    Source: FAPO (2510.22543), the reward of its generative reward model.
    """
    outcome = 1.0 if (said is None) == (truth is None) else -1.0
    return outcome if said is None or truth is None else outcome - abs(said - truth) / num_steps


def split_steps(text: str) -> list[str]:
    """Return the steps of a solution: its paragraphs, or its lines where it has but one paragraph."""
    for pattern in (r"\n\s*\n", r"\n"):
        steps = [step.strip() for step in re.split(pattern, text) if step.strip()]
        if len(steps) > 1:
            return steps
    return steps


def _words(question: str, steps: Sequence[str]) -> str:
    numbered = "\n".join(f"Step {number}: {step}" for number, step in enumerate(steps, 1))
    return _ASK.format(
        rules=words.RULES,
        question=words.fenced("question", question),
        steps=words.fenced("solution", numbered),
    )
