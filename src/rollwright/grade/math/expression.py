"""The tree of an expression, and why one may not be read or evaluated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction


class Unreadable(Exception):
    """Our own reader has no single reading of a text."""


class Refused(Unreadable):
    """A text says more than its number, so nobody may read only a part of it: "5 or six" is not 5."""


class TooLarge(Exception):
    """Evaluating would take more work than the bounds allow."""


@dataclass(frozen=True, slots=True)
class Expr:
    """A node of an expression.

    Args:
        op: ``number``, ``symbol``, ``constant``, ``add``, ``mul``, ``div``, ``pow``, ``neg``,
            ``plusminus`` or a function's name.
        args: the operands.
        value: of a number.
        name: of a symbol or a constant.
        is_decimal: a number that was written with a decimal point.
    """

    op: str
    args: tuple[Expr, ...] = ()
    value: Fraction | None = None
    name: str = ""
    is_decimal: bool = False

    def walk(self) -> Iterator[Expr]:
        """Yield this node and all below it."""
        stack = [self]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.args)

    def symbols(self) -> frozenset[str]:
        """Return the names of the free symbols."""
        return frozenset(node.name for node in self.walk() if node.op == "symbol")

    def has(self, op: str, name: str = "") -> bool:
        """Whether a node with this op (and name) occurs."""
        return any(node.op == op and (not name or node.name == name) for node in self.walk())

    @property
    def is_written_out(self) -> bool:
        """Whether it is digits only: 12, -0.5, but not 1/2."""
        return self.op == "number" or (self.op == "neg" and self.args[0].op == "number")


def number(value: Fraction | int, is_decimal: bool = False) -> Expr:
    """Return a number's node."""
    return Expr("number", value=Fraction(value), is_decimal=is_decimal)


def choose_sign(expr: Expr, sign: int) -> Expr:
    """Replace each plus-minus by its upper (1) or lower (-1) sign; minus-plus by the other."""
    if not expr.args:
        return expr
    args = tuple(choose_sign(arg, sign) for arg in expr.args)
    if expr.op in ("plusminus", "minusplus"):
        keep = (sign == 1) == (expr.op == "plusminus")
        right = args[-1] if keep else Expr("neg", (args[-1],))
        return right if len(args) == 1 else Expr("add", (args[0], right))
    return Expr(expr.op, args, expr.value, expr.name, expr.is_decimal)
