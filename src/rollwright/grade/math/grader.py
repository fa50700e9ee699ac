"""Verdicts on math answers: one at a time in this thread, or many in worker processes with hard limits."""

from __future__ import annotations

from collections.abc import Sequence

from rollwright.grade.answers import extract
from rollwright.grade.math.front import Sameness, compare
from rollwright.grade.math.settings import MathSettings
from rollwright.grade.pool import Outcome, Pool, shared_pool
from rollwright.grade.verdict import Status, Verdict

GRADER = "math/1"


def grade(response: str, gold: str, settings: MathSettings | None = None) -> Verdict:
    """Extract the final answer of a response and compare it with the gold answer.

    An answer that is missing, cut, or too large to evaluate comes from the model and scores 0. A gold
    answer that is empty or too large is our side's fault: the score is None.

    This runs in the calling thread, whose work is bounded for all that our own reader reads. For hard
    limits on everything, `grade_many` uses worker processes.
    """
    settings = settings or MathSettings()
    found = extract(response, settings.guess)
    if found.answer is None:
        assert found.status is not None
        return Verdict(0.0, found.status, detail=found.detail, grader=GRADER, settings=settings.as_text())
    verdict = grade_answer(found.answer, gold, settings)
    return Verdict(
        verdict.score,
        verdict.status,
        extracted=found.answer,
        detail=f"by {found.how}; {verdict.detail}",
        where=(found.first, found.end),
        grader=GRADER,
        settings=verdict.settings,
    )


def grade_answer(answer: str, gold: str, settings: MathSettings | None = None) -> Verdict:
    """Compare an answer that is already extracted with the gold answer."""
    settings = settings or MathSettings()
    if not gold.strip():
        return _verdict(None, Status.BAD_DATA, answer, "the gold answer is empty", settings)
    sameness, detail = compare(gold_answer(gold), answer, settings)
    if sameness is Sameness.FIRST_TOO_LARGE:
        return _verdict(None, Status.BAD_DATA, answer, f"the gold answer: {detail}", settings)
    if sameness is Sameness.SECOND_TOO_LARGE:
        return _verdict(0.0, Status.TOO_LARGE, answer, detail, settings)
    if not answer.strip():
        return _verdict(0.0, Status.NO_ANSWER, answer, "an empty answer", settings)
    is_right = sameness is Sameness.EQUAL
    return _verdict(float(is_right), Status.RIGHT if is_right else Status.WRONG, answer, detail, settings)


def gold_answer(gold: str) -> str:
    """Return a gold answer without a box or GSM8K's mark around it; any other text stays as it is."""
    if "\\boxed" in gold or "\\fbox" in gold or "####" in gold:
        return extract(gold).answer or gold
    return gold


def grade_many(
    pairs: Sequence[tuple[str, str]],
    timeout_s: float = 5.0,
    settings: MathSettings | None = None,
    pool: Pool | None = None,
) -> list[Verdict]:
    """Grade (response, gold) pairs in worker processes; verdicts come in the order of the pairs.

    A pair that takes longer than ``timeout_s`` seconds, or more memory than the pool's limit, costs its
    worker its life, and another takes its place: the verdict is `Status.TIMEOUT` or `Status.LIMIT_HIT`.

    Args:
        pairs: responses and gold answers.
        timeout_s: for each pair, seconds.
        settings: of equality.
        pool: the workers; None takes the process's own, which stay warm.
    """
    settings = settings or MathSettings()
    pool = pool or shared_pool()
    jobs = [(response, gold, settings) for response, gold in pairs]
    outcomes = pool.map("rollwright.grade.math.grader:grade", jobs, timeout_s)
    return [verdict_of(outcome, GRADER, settings.as_text()) for outcome in outcomes]


def verdict_of(outcome: Outcome, grader: str, settings: dict[str, str]) -> Verdict:
    """Return a worker's verdict, or the one that its failure stands for."""
    if outcome.kind == "done":
        assert isinstance(outcome.value, Verdict)
        return outcome.value
    status = {
        "timeout": Status.TIMEOUT,
        "memory": Status.LIMIT_HIT,
        "raised": Status.GRADER_ERROR,
        "died": Status.INFRASTRUCTURE_ERROR,
    }[outcome.kind]
    score = None if status.is_ours else 0.0
    return Verdict(score, status, detail=outcome.detail, grader=grader, settings=settings)


def _verdict(
    score: float | None, status: Status, answer: str, detail: str, settings: MathSettings
) -> Verdict:
    return Verdict(score, status, extracted=answer, detail=detail, grader=GRADER, settings=settings.as_text())
