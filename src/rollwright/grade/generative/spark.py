"""SPARK-CoEvolve: the verdicts on a group become questions that teach the policy to judge."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from rollwright.grade.judge import words
from rollwright.grade.verdict import Status, Verdict

GRADER = "self_judge/1"
Kind = Literal["pointwise", "pairwise", "reflection"]
_POINT = (
    "{rules}\n\nIs the answer to the question right?\n\n{question}\n\n{answer}\n\n"
    'Reply with {{"right": true}} or {{"right": false}}.'
)
_PAIR = (
    "{rules}\n\nOne of two answers to the question is right.\n\n{question}\n\n{first}\n\n{second}\n\n"
    'Reply with {{"better": "first"}} or {{"better": "second"}}.'
)
_REFLECT = (
    "{rules}\n\nAn answer to the question and a later reflection on it follow. Is the answer right?\n\n"
    "{question}\n\n{answer}\n\n{reflection}\n\n"
    'Reply with {{"right": true}} or {{"right": false}}.'
)


@dataclass(frozen=True, slots=True)
class JudgeTask:
    """A question about rollouts that are judged already.

    Args:
        kind: what is asked.
        prompt: the whole question.
        label: what the verifier says: a bool, or ``"first"`` or ``"second"``.
        sources: indices in the group of the rollouts that it is about.
    """

    kind: Kind
    prompt: str
    label: bool | str
    sources: tuple[int, ...]

    @property
    def answer(self) -> str:
        """The reply that is right, as text."""
        return json.dumps({self.key: self.label})

    @property
    def key(self) -> str:
        return "better" if self.kind == "pairwise" else "right"


def judge_tasks(
    question: str,
    answers: Sequence[str],
    verdicts: Sequence[Verdict],
    rng: np.random.Generator,
    kinds: Sequence[Kind] = ("pointwise", "pairwise"),
    reflections: Mapping[int, str] | None = None,
    max_pairs: int | None = None,
) -> list[JudgeTask]:
    """Return judge questions made of one group, without a further rollout.

    Labels are the verifier's: a rollout is right by its status. One without a score is in no question. Pairs
    have one right and one wrong answer; of two pairs in a row one has the right answer first, so that
    neither place pays.

    Args:
        question, answers, verdicts: of the group.
        rng: chooses the pairs and which order begins.
        kinds: what to ask.
        reflections: further thoughts on a rollout, by its index, for the kind ``reflection``.
        max_pairs: at most so many pairs, ≥ 0; None is all.

    Source: SPARK (2509.22624), abstract: pointwise, pairwise and reflection-conditioned judging of the
    policy's own rollouts.
    """
    scored = [i for i, verdict in enumerate(verdicts) if verdict.score is not None]
    is_right = {i: verdicts[i].status == Status.RIGHT for i in scored}
    tasks: list[JudgeTask] = []
    if "pointwise" in kinds:
        tasks += [_single("pointwise", _POINT, question, answers, i, is_right[i]) for i in scored]
    if "pairwise" in kinds:
        tasks += _pairs(question, answers, is_right, rng, max_pairs)
    for i, thought in (reflections or {}).items() if "reflection" in kinds else ():
        if i in is_right:
            reflection = words.fenced("reflection", thought)
            tasks.append(
                _single("reflection", _REFLECT, question, answers, i, is_right[i], reflection=reflection)
            )
    return tasks


def agreement(task: JudgeTask, reply: str) -> Verdict:
    """Return the policy's verdict as a judge: 1 if it says what the verifier said, else 0.

    The reply is the policy's own output, so one that cannot be read scores 0 (``no_answer``).
    """
    options = ("first", "second") if task.kind == "pairwise" else (True, False)
    settings: dict[str, str] = {"kind": task.kind}
    try:
        said = words.read_word(reply, task.key, options)
    except words.Unreadable as error:
        return Verdict(0.0, Status.NO_ANSWER, detail=str(error), grader=GRADER, settings=settings)
    score = float(said == task.label)
    status = Status.RIGHT if score else Status.WRONG
    return Verdict(score, status, json.dumps(said), grader=GRADER, settings=settings)


def swapped(task: JudgeTask, question: str, answers: Sequence[str]) -> JudgeTask:
    """Return a pairwise task in its other order, to see whether a judge's word depends on it."""
    first, second = task.sources
    label = "second" if task.label == "first" else "first"
    return JudgeTask(
        "pairwise", _pair_words(question, answers[second], answers[first]), label, (second, first)
    )


def rows(tasks: Sequence[JudgeTask], prefix: str) -> Iterator[dict[str, Any]]:
    """Yield rows for a ``jsonl:`` task, with ids that begin with ``prefix``."""
    for number, task in enumerate(tasks):
        yield {"id": f"{prefix}/{number}", "prompt": task.prompt, "answer": task.answer, "kind": task.kind}


def _single(
    kind: Kind,
    template: str,
    question: str,
    answers: Sequence[str],
    place: int,
    label: bool,
    **more: str,
) -> JudgeTask:
    parts = {"question": words.fenced("question", question), "answer": words.fenced("answer", answers[place])}
    return JudgeTask(kind, template.format(rules=words.RULES, **parts, **more), label, (place,))


def _pairs(
    question: str,
    answers: Sequence[str],
    is_right: Mapping[int, bool],
    rng: np.random.Generator,
    max_pairs: int | None,
) -> Iterator[JudgeTask]:
    right, wrong = ([i for i in is_right if is_right[i] is side] for side in (True, False))
    pairs = list(itertools.product(right, wrong))
    order = rng.permutation(len(pairs))[: len(pairs) if max_pairs is None else max_pairs]
    begins = int(rng.integers(2))
    for number, place in enumerate(order):
        good, bad = pairs[place]
        two = (good, bad) if (number + begins) % 2 == 0 else (bad, good)
        label = "first" if two[0] == good else "second"
        yield JudgeTask("pairwise", _pair_words(question, answers[two[0]], answers[two[1]]), label, two)


def _pair_words(question: str, first: str, second: str) -> str:
    return _PAIR.format(
        rules=words.RULES,
        question=words.fenced("question", question),
        first=words.fenced("first", first),
        second=words.fenced("second", second),
    )
