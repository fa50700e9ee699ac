"""One number, within a tolerance that the task names."""

from __future__ import annotations

from fractions import Fraction

from rollwright.errors import ConfigError
from rollwright.grade.answers import extract
from rollwright.grade.math.clean import clean
from rollwright.grade.math.evaluate import Undefined, approximate, exact
from rollwright.grade.math.expression import TooLarge, Unreadable
from rollwright.grade.math.quantity import read_quantity
from rollwright.grade.verdict import Status, Verdict

GRADER = "numeric/1"


def read_number(text: str) -> Fraction:
    """Return a text's number as a rational; a root or π is taken to 60 digits. A unit is read and left out.

    Raises:
        Unreadable: it is no single real number.
        TooLarge: it is beyond the bounds.
    """
    expr = read_quantity(clean(text)).expr
    if expr.symbols() or expr.has("plusminus") or expr.has("minusplus"):
        raise Unreadable(f"{text[:80]!r} is not one number")
    try:
        value = exact(expr, {})
        if value is not None:
            return value
        number = approximate(expr, {}, 60)
    except Undefined as error:
        raise Unreadable(f"{text[:80]!r} has no value: {error}") from error
    if getattr(number, "imag", 0) != 0:
        raise Unreadable(f"{text[:80]!r} is not real")
    return Fraction(str(getattr(number, "real", number)))


def grade_numeric(response: str, gold: str | float, rel_tol: float = 1e-6, abs_tol: float = 0.0) -> Verdict:
    """Grade a response by |answer - gold| ≤ max(rel_tol·|gold|, abs_tol).

    The relative tolerance is of the gold value, so this is not symmetric. The absolute one is 0 unless the
    task asks for it, because it makes small numbers equal.

    Raises:
        ConfigError: a negative tolerance.
    """
    if rel_tol < 0 or abs_tol < 0:
        raise ConfigError(f"rel_tol {rel_tol}, abs_tol {abs_tol}: expected at least 0")
    settings = {"rel_tol": str(rel_tol), "abs_tol": str(abs_tol)}
    try:
        right = read_number(str(gold))
    except (Unreadable, TooLarge) as error:
        return Verdict(
            None, Status.BAD_DATA, detail=f"the gold answer: {error}", grader=GRADER, settings=settings
        )
    found = extract(response)
    if found.answer is None:
        return Verdict(
            0.0, found.status or Status.NO_ANSWER, detail=found.detail, grader=GRADER, settings=settings
        )
    where = (found.first, found.end)

    def verdict(status: Status, detail: str) -> Verdict:
        score = float(status is Status.RIGHT)
        return Verdict(score, status, found.answer, detail, where=where, grader=GRADER, settings=settings)

    try:
        gap = abs(read_number(found.answer) - right)
    except Unreadable as error:
        return verdict(Status.WRONG, str(error))
    except TooLarge as error:
        return verdict(Status.TOO_LARGE, str(error))
    is_near = gap <= max(Fraction(repr(float(rel_tol))) * abs(right), Fraction(repr(float(abs_tol))))
    return verdict(Status.RIGHT if is_near else Status.WRONG, f"by {found.how}")
