"""What a text can mean, beyond one expression."""

from __future__ import annotations

from dataclasses import dataclass

from rollwright.grade.math.expression import Expr
from rollwright.grade.math.units import Unit


@dataclass(frozen=True, slots=True)
class Quantity:
    """An expression, with a unit if one was written; ``is_percent`` if a percent sign was."""

    expr: Expr
    unit: Unit | None = None
    is_percent: bool = False


@dataclass(frozen=True, slots=True)
class Collection:
    """Several values in no order. In braces it is a set, so repeats do not count; in a bare list they do."""

    items: tuple[Value, ...]
    is_set: bool = False


@dataclass(frozen=True, slots=True)
class Bracketed:
    """Values in order between brackets: a point, a vector or an interval. The brackets count."""

    left: str
    right: str
    items: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Union:
    """Intervals or sets joined by ∪, in no order."""

    items: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Matrix:
    """Rows of values."""

    rows: tuple[tuple[Value, ...], ...]


@dataclass(frozen=True, slots=True)
class Relation:
    """left <sign> right; the sign is one of = ≠ < ≤ (greater is turned round) or ≈ (read as =)."""

    sign: str
    left: Expr
    right: Expr
    unit: Unit | None = None


@dataclass(frozen=True, slots=True)
class Colons:
    """Numbers with colons between: a ratio 3:4 or a time 12:00."""

    parts: tuple[Expr, ...]
    is_time: bool


@dataclass(frozen=True, slots=True)
class Based:
    """Digits in a number base: 1011_2. The digits stay text, the value is whole."""

    digits: str
    base: int


@dataclass(frozen=True, slots=True)
class Words:
    """Text, normalised."""

    text: str


Value = Quantity | Collection | Bracketed | Union | Matrix | Relation | Colons | Based | Words
