"""Values of expressions: exact rationals where they stay rational, many digits elsewhere, bounded work."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import mpmath

from rollwright.grade.math.expression import Expr, TooLarge

MAX_EXACT_BITS = 50_000  # of a numerator or denominator
MAX_LOG2 = 4_000_000  # of a number that is not held exactly: beyond, 2**this, it is too large
MAX_FACTORIAL = 10_000

_local = threading.local()


class Undefined(Exception):
    """The expression has no finite value here, such as 1/0."""


def exact(expr: Expr, point: Mapping[str, Fraction]) -> Fraction | None:
    """Return the value as an exact rational, or None where it is not one or would be too long.

    Raises:
        Undefined: a division by zero.
        TooLarge: a factorial above 10,000.
    """
    op = expr.op
    if op == "number":
        return expr.value
    if op == "symbol":
        return point[expr.name]
    if op == "constant":
        return None
    args = [exact(arg, point) for arg in expr.args]
    known = [arg for arg in args if arg is not None]
    if len(known) < len(args):
        return None
    value = _EXACT[op](*known) if op in _EXACT else None
    if (
        value is not None
        and max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_EXACT_BITS
    ):
        return None
    return value


def _divide(top: Fraction, bottom: Fraction) -> Fraction:
    if bottom == 0:
        raise Undefined("a division by zero")
    return top / bottom


def _power(base: Fraction, power: Fraction) -> Fraction | None:
    if power.denominator != 1:
        root = _exact_root(base, power.denominator) if power.denominator < 64 else None
        return None if root is None else _power(root, Fraction(power.numerator))
    if base == 0 and power < 0:
        raise Undefined("a division by zero")
    bits = max(base.numerator.bit_length(), base.denominator.bit_length())
    if abs(base) not in (0, 1) and bits * abs(power) > MAX_EXACT_BITS:
        return None
    return base ** (int(power) % 2 if abs(base) == 1 else int(power)) if power else Fraction(1)


def _exact_root(base: Fraction, index: int) -> Fraction | None:
    """Return the real root where it is rational: of negative numbers none, because roots are principal."""
    if base < 0 or index < 1:
        return None
    parts = []
    for whole in (base.numerator, base.denominator):
        root = math.isqrt(whole) if index == 2 else round(_approximate_root(whole, index))
        if root**index != whole:
            return None
        parts.append(root)
    return Fraction(*parts)


def _approximate_root(whole: int, index: int) -> Any:
    ctx = _context(whole.bit_length() // 3 // index + 30)
    return ctx.root(whole, index)


def _root(base: Fraction, index: Fraction) -> Fraction | None:
    if index.denominator != 1 or not 0 < index < 64:
        return None
    if base < 0 and index % 2 == 1:
        root = _exact_root(-base, int(index))
        return None if root is None else -root
    return _exact_root(base, int(index))


def _factorial(n: Fraction) -> Fraction | None:
    if n.denominator != 1 or n < 0:
        raise Undefined("a factorial of what is not a whole number from 0 on")
    if n > MAX_FACTORIAL:
        raise TooLarge("a factorial above 10,000")
    return Fraction(math.factorial(int(n)))


def _binomial(n: Fraction, k: Fraction) -> Fraction | None:
    if n.denominator != 1 or k.denominator != 1 or n < 0 or k < 0:
        raise Undefined("a binomial of what are not whole numbers from 0 on")
    if n > MAX_FACTORIAL:
        raise TooLarge("a binomial above 10,000")
    return Fraction(math.comb(int(n), int(k)))


def _whole_numbers(function: Callable[..., int]) -> Callable[..., Fraction | None]:
    def apply(*args: Fraction) -> Fraction | None:
        if any(arg.denominator != 1 for arg in args):
            raise Undefined("a divisor of what is not whole")
        return Fraction(function(*map(int, args)))

    return apply


def _product(*args: Fraction) -> Fraction:
    value = Fraction(1)
    for arg in args:
        value *= arg
        if max(value.numerator.bit_length(), value.denominator.bit_length()) > 2 * MAX_EXACT_BITS:
            raise TooLarge("a product of too many long numbers")
    return value


_EXACT: dict[str, Callable[..., Fraction | None]] = {
    "add": lambda *args: sum(args, Fraction(0)),
    "mul": _product,
    "div": _divide,
    "neg": lambda a: -a,
    "pow": _power,
    "abs": abs,
    "floor": lambda a: Fraction(math.floor(a)),
    "ceil": lambda a: Fraction(math.ceil(a)),
    "sqrt": lambda a: _exact_root(a, 2),
    "root": _root,
    "factorial": _factorial,
    "binomial": _binomial,
    "max": lambda *args: max(args),
    "min": lambda *args: min(args),
    "gcd": _whole_numbers(math.gcd),
    "lcm": _whole_numbers(math.lcm),
}


def _context(digits: int) -> Any:
    """Return this thread's own context with so many digits: mpmath's shared one is not safe in threads."""
    contexts = _local.__dict__.setdefault("contexts", {})
    if digits not in contexts:
        contexts[digits] = mpmath.ctx_mp.MPContext()
        contexts[digits].dps = digits
    return contexts[digits]


def approximate(expr: Expr, point: Mapping[str, Fraction], digits: int, log_is_ten: bool = False) -> Any:
    """Return the value with so many digits, real or complex (an mpmath number).

    Raises:
        Undefined: there is no finite value.
        TooLarge: a power or factorial beyond the bounds.
    """
    return _approximate(expr, point, _context(digits), log_is_ten)


def _approximate(expr: Expr, point: Mapping[str, Fraction], ctx: Any, log_is_ten: bool) -> Any:
    op = expr.op
    if op in ("number", "symbol"):
        value = expr.value if op == "number" else point[expr.name]
        assert value is not None
        return ctx.mpf(value.numerator) / value.denominator
    if op == "constant":
        if expr.name == "oo":
            raise Undefined("an infinity")
        return {"pi": +ctx.pi, "e": +ctx.e, "i": ctx.mpc(0, 1)}[expr.name]
    args = [_approximate(arg, point, ctx, log_is_ten) for arg in expr.args]
    if op == "log" and log_is_ten:
        return _checked(ctx, "ln", args) / ctx.ln(10)
    return _checked(ctx, "ln" if op == "log" else op, args)


def _checked(ctx: Any, op: str, args: list[Any]) -> Any:
    if op in ("add", "mul", "max", "min", "gcd", "lcm"):
        value = _folded(ctx, op, args)
    elif op in ("factorial", "binomial", "pow"):
        value = _bounded(ctx, op, args)
    else:
        try:
            value = _function(ctx, op)(*args)
        except (ZeroDivisionError, ValueError, OverflowError, TypeError, NotImplementedError) as error:
            raise Undefined(f"{op}: {error}") from error
    if not ctx.isfinite(value):
        raise Undefined(f"{op} has no finite value")
    if value != 0 and abs(ctx.mag(value)) > MAX_LOG2:
        raise TooLarge("a number of millions of digits")
    return value


def _folded(ctx: Any, op: str, args: list[Any]) -> Any:
    if op == "add":
        return ctx.fsum(args)
    if op == "mul":
        return ctx.fprod(args)
    if op in ("max", "min"):
        if any(ctx.im(arg) for arg in args):
            raise Undefined(f"{op} of complex numbers")
        return (max if op == "max" else min)(args)
    raise Undefined(f"{op} of what is not rational")


def _bounded(ctx: Any, op: str, args: list[Any]) -> Any:
    """Apply what can grow without bound: the size is known before the work is done."""
    try:
        if op == "pow":
            base, power = args
            if (
                base != 0
                and power != 0
                and abs(power) * (abs(ctx.log(abs(base))) + abs(ctx.arg(base))) > MAX_LOG2
            ):
                raise TooLarge("a power of millions of digits")
            return base**power
        if any(abs(arg) > MAX_FACTORIAL for arg in args):
            raise TooLarge(f"a {op} above 10,000")
        return ctx.factorial(args[0]) if op == "factorial" else ctx.binomial(*args)
    except (ZeroDivisionError, ValueError, OverflowError) as error:
        raise Undefined(f"{op}: {error}") from error


def _function(ctx: Any, op: str) -> Callable[..., Any]:
    table: dict[str, Callable[..., Any]] = {
        "div": lambda a, b: a / b,
        "neg": lambda a: -a,
        "abs": abs,
        "sqrt": ctx.sqrt,
        "root": lambda a, n: _real_root(ctx, a, n),
        "arcsin": ctx.asin,
        "arccos": ctx.acos,
        "arctan": ctx.atan,
    }
    return table[op] if op in table else getattr(ctx, op)


def _real_root(ctx: Any, a: Any, n: Any) -> Any:
    """Return the n-th root: of a negative number with odd n the real one, as school writes it."""
    if n == 0:
        raise Undefined("a zeroth root")
    if not ctx.im(a) and a < 0 and n == int(n) and int(n) % 2 == 1:
        return -((-a) ** (1 / n))
    return a ** (1 / n)
