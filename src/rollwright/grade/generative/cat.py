"""CaT: a frozen copy of the policy makes one reference of a group's answers, and that grades the group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from rollwright.grade.hierarchy import RANK, Signal
from rollwright.grade.judge import Judge, words
from rollwright.grade.judge.asking import Found, ask_until_read
from rollwright.grade.judge.chat import Chat
from rollwright.grade.rubric import Criterion, Rubric, flat
from rollwright.grade.verdict import Status, Verdict

GRADER = "compute_as_teacher/1"
_JOIN = (
    "{rules}\n\nSeveral answers to one question follow; the question itself is not shown. Where they differ,"
    " work out what is right, put together what each has and the others lack, and write the one answer that"
    ' the evidence supports, even if none of them gives it.\n\n{answers}\n\nReply with {{"answer": "..."}}.'
)
_ITEMS = (
    "{rules}\n\nWrite from {least} to {most} criteria by which an answer can be checked against this"
    " reference: each can be answered by yes or no, on its own, without seeing the reference."
    "\n\n{reference}\n\n"
    'Reply with {{"criteria": ["...", "..."]}}.'
)


@dataclass(frozen=True, slots=True)
class Teacher:
    """Grades a group by a reference that is made of its own answers.

    Args:
        anchor: the frozen first policy. It sees the answers only.
        judge: ticks the criteria where no check of final answers is given; another model than the anchor.
        least, most: criteria of a rubric, 1 ≤ least ≤ most.
        attempts: replies until one can be read, ≥ 1.

    Source: CaT (2509.14234), abstract.
    """

    anchor: Chat
    judge: Judge | None = None
    least: int = 2
    most: int = 10
    attempts: int = 2

    def reference(self, answers: Sequence[str]) -> Found:
        """Return the reference: its ``value`` is the text; empty answers are left out."""
        there = [answer for answer in answers if answer.strip()]
        shown = "\n\n".join(words.fenced(f"answer {number}", a) for number, a in enumerate(there, 1))
        ask = _JOIN.format(rules=words.RULES, answers=shown)
        return ask_until_read(self.anchor, self.attempts, [ask], _read_answer)[0]

    def rubric(self, reference: str) -> tuple[Rubric | None, Found]:
        """Return the criteria that the anchor makes of a reference, all of weight 1, or None."""
        parts = {"least": self.least, "most": self.most, "reference": words.fenced("reference", reference)}
        ask = _ITEMS.format(rules=words.RULES, **parts)
        [found] = ask_until_read(self.anchor, self.attempts, [ask], self._read_items)
        if found.status:
            return None, found
        return flat(*(Criterion(f"c{k}", 1.0, text, 0.0, 1.0) for k, text in enumerate(found.value))), found

    def grade(
        self, question: str, answers: Sequence[str], is_same: Callable[[str, str], Verdict] | None = None
    ) -> list[Verdict]:
        """Return a verdict for each answer of a group.

        Args:
            question: for the judge; the anchor does not see it.
            answers: of the group.
            is_same: checks an answer against the reference, (answer, reference) to a verdict; None makes
                criteria of the reference instead, and r is the share of them that the answer meets.

        Where the anchor gives nothing that can be read, the whole group is unscored. What a score rests on
        stands in the verdict: agreement of the policy's own samples, or a judge.
        """
        joined = self.reference(answers)
        if joined.status:
            return [_unscored(joined, "the anchor")] * len(answers)
        if is_same is not None:
            return [_signed(is_same(a, joined.value), Signal.SELF_CONSISTENCY, joined.value) for a in answers]
        if self.judge is None:
            why = "neither a check of final answers nor a judge was given"
            return [Verdict(None, Status.NOT_SCORED, detail=why, grader=GRADER)] * len(answers)
        rubric, made = self.rubric(joined.value)
        if rubric is None:
            return [_unscored(made, "the anchor's criteria")] * len(answers)
        judged = [self.judge.grade_rubric(question, answer, rubric) for answer in answers]
        return [_signed(verdict, Signal.JUDGE, joined.value) for verdict in judged]

    def _read_items(self, text: str) -> list[str]:
        items = words.read_object(text, "criteria")
        is_right = isinstance(items, list) and all(isinstance(item, str) and item.strip() for item in items)
        if not is_right or not self.least <= len(items) <= self.most or len(set(items)) < len(items):
            raise words.Unreadable(f"criteria are not {self.least} to {self.most} different texts")
        return [item.strip() for item in items]


def _read_answer(text: str) -> str:
    answer = words.read_object(text, "answer")
    if not isinstance(answer, str) or not answer.strip():
        raise words.Unreadable("answer is no text")
    return answer.strip()


def _unscored(found: Found, who: str) -> Verdict:
    return Verdict(None, found.status, detail=f"{who}: {found.detail}", grader=GRADER)


def _signed(verdict: Verdict, signal: Signal, reference: str) -> Verdict:
    settings = {**verdict.settings, "signal": signal.name.lower(), "reference": reference}
    rewards = {**verdict.rewards, RANK: float(signal)} if verdict.score is not None else verdict.rewards
    return replace(verdict, settings=settings, rewards=rewards, grader=f"{GRADER}>{verdict.grader}")
