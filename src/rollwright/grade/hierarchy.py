"""What a score rests on: of several signals the strongest that has an answer decides, and is recorded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Literal

from rollwright.errors import ConfigError
from rollwright.grade.verdict import Status, Verdict

GRADER = "hierarchy/1"
RANK = "signal_rank"  # the name among a verdict's rewards, so that records keep it


class Signal(IntEnum):
    """Kinds of evidence for a score, the weakest first.

    Source: the survey of recursive self-improvement (catalogue row 38) orders formal verifier, execution,
    reward or process model, judge or rubric, self-assessment. The places of exact checks against a known
    answer and of agreement among samples are ours.
    """

    SELF_ASSESSMENT = 1  # the policy's own word on its answer
    SELF_CONSISTENCY = 2  # agreement among its samples
    JUDGE = 3  # another model's judgement, or a rubric that it ticks
    REWARD_MODEL = 4  # a model trained to score, whole answers or steps
    EXACT_CHECK = 5  # comparison with a known answer
    EXECUTION = 6  # the answer was run, against tests or an environment
    FORMAL = 7  # a proof checker accepted it


Source = Callable[[], Verdict]


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """Ask the strongest signal first; the first with a score decides.

    Args:
        sources: (signal, name) pairs; asked by falling rank, those of one rank in the order given.
        least: a weaker signal than this may not decide: then the answer is unscored.
        audit: ask the weaker ones too, and record what each says and whether it disagrees.

    A signal that has no opinion (``not_scored``) or that fails on our side gives way to the next; which did,
    and why, stands in the verdict. A score of the model's own failing (a wrong answer, a timeout of its
    program) decides like any other.
    """

    sources: tuple[tuple[Signal, str], ...]
    least: Signal = Signal.SELF_ASSESSMENT
    audit: bool = False

    def __post_init__(self) -> None:
        names = [name for _, name in self.sources]
        if not names or len(set(names)) < len(names):
            raise ConfigError(f"a hierarchy of {names}; expected one or more signals, each with its own name")

    def grade(self, graders: Mapping[str, Source]) -> Verdict:
        """Return the deciding verdict, with ``settings["signal"]`` and ``rewards["signal_rank"]``.

        Args:
            graders: by the names of the sources; one that is not there has no opinion.
        """
        decided: tuple[Signal, str, Verdict] | None = None
        passed: list[str] = []
        others: dict[str, float] = {}
        for signal, name in sorted(self.sources, key=lambda source: -source[0]):
            if decided is not None and not self.audit:
                break
            if signal < self.least and decided is None and not self.audit:
                break
            verdict = _ask(graders.get(name))
            if verdict.score is not None:
                others[f"signal:{name}"] = verdict.score
            if decided is None and verdict.score is not None and signal >= self.least:
                decided = (signal, name, verdict)
            elif decided is None:
                passed.append(f"{name} {verdict.status}" + (f" ({verdict.detail})" if verdict.detail else ""))
        return self._verdict(decided, passed, others if self.audit else {})

    def _verdict(
        self, decided: tuple[Signal, str, Verdict] | None, passed: Sequence[str], others: Mapping[str, float]
    ) -> Verdict:
        why = "; ".join(passed)
        if decided is None:
            return Verdict(None, Status.NOT_SCORED, detail=why, rewards=dict(others), grader=GRADER)
        signal, name, verdict = decided
        settings = {**verdict.settings, "signal": signal.name.lower(), "source": name, "passed_over": why}
        rewards = {**verdict.rewards, **others, RANK: float(signal)}
        against = [other for other, score in others.items() if (score >= 1) != ((verdict.score or 0) >= 1)]
        if others:
            settings["disagree"] = ", ".join(other.removeprefix("signal:") for other in against)
        grader = f"{GRADER}>{verdict.grader or name}"
        detail = "; ".join(filter(None, [verdict.detail, why and f"passed over: {why}"]))
        return replace(verdict, settings=settings, rewards=rewards, grader=grader, detail=detail)


def _ask(grader: Source | None) -> Verdict:
    if grader is None:
        return Verdict(None, Status.NOT_SCORED, detail="was not given")
    try:
        return grader()
    except Exception as error:  # a grader's failure is never a score, and the next signal may still have one
        return Verdict(None, Status.GRADER_ERROR, detail=f"{type(error).__name__}: {error}")


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop in which a system improves something of itself, as the survey classifies them.

    Args:
        name: of the loop.
        changes: what it changes: ``behaviour`` (prompts, tools), ``policy`` (weights), ``evaluator``,
            ``research`` (the method itself).
        signal: what decides whether a change is kept.
        judged_by: the parts that give that signal.
        optimises: the parts that the loop changes.

    Raises:
        ConfigError: a part that it optimises also judges it, nothing judges it, or ``changes`` is no kind of
            change.
    """

    name: str
    changes: Literal["behaviour", "policy", "evaluator", "research"]
    signal: Signal
    judged_by: frozenset[str]
    optimises: frozenset[str]

    def __post_init__(self) -> None:
        if self.changes not in ("behaviour", "policy", "evaluator", "research"):
            raise ConfigError(
                f"loop {self.name}: changes = {self.changes!r};"
                " expected behaviour, policy, evaluator or research"
            )
        if not self.judged_by:
            raise ConfigError(
                f"loop {self.name}: judged_by is empty; expected the parts that give its signal"
            )
        both = sorted(self.judged_by & self.optimises)
        if both:
            raise ConfigError(
                f"loop {self.name} is judged by what it optimises ({', '.join(both)});"
                " expected a judge that it does not change: freeze a copy, or use a stronger signal"
            )
