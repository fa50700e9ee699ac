"""Comparing expressions: numbers exactly or with many digits, symbols by values at fixed points."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from rollwright.grade.math.evaluate import Undefined, approximate, exact
from rollwright.grade.math.expression import Expr, number

NUM_POINTS = 12
NUM_NEEDED = 3  # points where both sides have a real value
DIGITS, MORE_DIGITS = 60, 150
AGREE = Fraction(1, 10**40)  # how near, relatively, two values of DIGITS digits lie if they are one
NOISE = Fraction(1, 10**12)  # a float that was printed
_NO_SYMBOLS: Mapping[str, Fraction] = {}


@dataclass(frozen=True, slots=True)
class Comparison:
    """How near two numbers must lie where one of them is a rounded decimal."""

    tolerance: Fraction


def same_number(a: Expr, b: Expr, rule: Comparison) -> bool:
    """Whether two expressions are equal, wherever both are defined.

    A decimal is compared with an exact value by the relative tolerance, two written-out numbers exactly but
    for a float's printing noise. A plain "log" may have the base e or 10, the same on both sides.

    Raises:
        TooLarge: a value beyond the bounds.
    """
    if a == b:
        return True
    for log_is_ten in (False, True) if a.has("log") or b.has("log") else (False,):
        if _same(a, b, rule, log_is_ten):
            return True
    return False


def _same(a: Expr, b: Expr, rule: Comparison, log_is_ten: bool) -> bool:
    if (infinite := _infinity(a)) is not None or _infinity(b) is not None:
        return infinite == _infinity(b)
    allowed = _allowed(a, b, rule)
    symbols = a.symbols() | b.symbols()
    if not symbols:
        try:
            return _agree(a, b, _NO_SYMBOLS, allowed, log_is_ten)
        except Undefined:
            return False
    num_agreed = 0
    is_complex = a.has("constant", "i") or b.has("constant", "i")
    for point in points(symbols):
        try:
            if not is_complex and not (_is_real(a, point, log_is_ten) and _is_real(b, point, log_is_ten)):
                continue
            if not _agree(a, b, point, allowed, log_is_ten):
                return False
        except Undefined:
            continue
        num_agreed += 1
        if num_agreed == 2 * NUM_NEEDED:
            break
    return num_agreed >= NUM_NEEDED


def _infinity(expr: Expr) -> int | None:
    """Return the sign of an infinity, None for anything else."""
    sign = 1
    while expr.op == "neg":
        sign, expr = -sign, expr.args[0]
    return sign if expr.op == "constant" and expr.name == "oo" else None


def _allowed(a: Expr, b: Expr, rule: Comparison) -> Fraction:
    has_decimal = any(node.is_decimal for side in (a, b) for node in side.walk())
    if not has_decimal:
        return Fraction(0)
    return NOISE if a.is_written_out and b.is_written_out else rule.tolerance


def _agree(a: Expr, b: Expr, point: Mapping[str, Fraction], allowed: Fraction, log_is_ten: bool) -> bool:
    left, right = exact(a, point), exact(b, point)
    if left is not None and right is not None:
        return abs(left - right) <= allowed * max(abs(left), abs(right))
    x, y = (approximate(side, point, DIGITS, log_is_ten) for side in (a, b))
    limit = max(allowed, AGREE)
    gap = abs(x - y)
    if gap <= max(abs(x), abs(y)) * limit.numerator / limit.denominator and (x != 0 or y != 0):
        return True
    if gap == 0:
        return True
    if abs(x) > 10**-30 and abs(y) > 10**-30 and gap > 10**-20 * max(abs(x), abs(y)):
        return False
    # Both may be one number that cancellation hides: then the gap shrinks as digits are added.
    x, y = (approximate(side, point, MORE_DIGITS, log_is_ten) for side in (a, b))
    finer = abs(x - y)
    return bool(finer == 0 or finer < gap * 10**-60)


def _is_real(expr: Expr, point: Mapping[str, Fraction], log_is_ten: bool) -> bool:
    if exact(expr, point) is not None:
        return True
    value: Any = approximate(expr, point, DIGITS, log_is_ten)
    imaginary = getattr(value, "imag", 0)
    return bool(abs(imaginary) <= abs(value) * 10**-40)


def points(symbols: frozenset[str]) -> Iterator[dict[str, Fraction]]:
    """Yield fixed points: each symbol's value depends on its name and the point's number only.

    Two different polynomials agree at such a point with a probability of about degree / 10**6.
    """
    for index in range(NUM_POINTS):
        yield {name: _coordinate(name, index) for name in symbols}


def _coordinate(name: str, index: int) -> Fraction:
    digest = hashlib.blake2b(f"{index}:{name}".encode(), digest_size=16).digest()
    top, bottom = int.from_bytes(digest[:8], "big"), int.from_bytes(digest[8:], "big")
    value = Fraction(1 + top % 1_000_003, 200_003 + bottom % 300_007)
    return -value if index % 3 == 2 else value


def are_proportional(a: Expr, b: Expr, must_be_positive: bool) -> bool:
    """Whether a = c·b with one constant c (≠ 0, or > 0): then a = 0 and b = 0 are one equation.

    Raises:
        TooLarge: a value beyond the bounds.
    """
    symbols = a.symbols() | b.symbols()
    if a.symbols() != b.symbols() or not symbols:
        return False
    ratio: Any = None
    num_agreed = 0
    for point in points(symbols):
        try:
            here = _ratio(a, b, point)
        except Undefined:
            continue
        if here is None or (must_be_positive and not _is_positive(here)):
            return False
        if ratio is not None and not _near(here, ratio):
            return False
        ratio, num_agreed = here, num_agreed + 1
        if num_agreed == 2 * NUM_NEEDED:
            break
    return num_agreed >= NUM_NEEDED


def _ratio(a: Expr, b: Expr, point: Mapping[str, Fraction]) -> Any:
    """Return a / b at a point, exactly if it can be; None where just one of them vanishes."""
    top, bottom = exact(a, point), exact(b, point)
    if top is None or bottom is None:
        top, bottom = approximate(a, point, DIGITS), approximate(b, point, DIGITS)
    if top == 0 and bottom == 0:
        raise Undefined("0/0")
    return None if top == 0 or bottom == 0 else top / bottom


def _is_positive(ratio: Any) -> bool:
    return not getattr(ratio, "imag", 0) and ratio > 0


def _near(a: Any, b: Any) -> bool:
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return a == b
    # One is exact at its point and the other is not: Fraction and mpmath do not mix.
    x, y = (approximate(number(v), _NO_SYMBOLS, DIGITS) if isinstance(v, Fraction) else v for v in (a, b))
    return bool(abs(x - y) <= abs(x) * 10**-35)
