"""Equality of values. It is symmetric: each rule treats its two sides alike."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from rollwright.grade.math.compare import Comparison, are_proportional, same_number
from rollwright.grade.math.expression import Expr, number
from rollwright.grade.math.settings import MathSettings
from rollwright.grade.math.units import Unit
from rollwright.grade.math.values import (
    Based,
    Bracketed,
    Collection,
    Colons,
    Matrix,
    Quantity,
    Relation,
    Union,
    Value,
    Words,
)


def same_value(a: Value, b: Value, settings: MathSettings) -> bool:
    """Whether two values are equal.

    Raises:
        TooLarge: one of them cannot be evaluated within the bounds.
    """
    if isinstance(a, Collection) and isinstance(b, Collection):
        return _same_items(a, b, settings)
    if isinstance(a, Collection) or isinstance(b, Collection):
        items, other = (a.items, b) if isinstance(a, Collection) else (b.items, a)  # type: ignore[union-attr]
        return len(items) == 1 and same_value(items[0], other, settings)
    if isinstance(a, Relation) or isinstance(b, Relation):
        return _same_relation(a, b, settings)
    if isinstance(a, Based) or isinstance(b, Based):
        return _same_digits(a, b)
    if isinstance(a, Words) != isinstance(b, Words):
        word, other = (a, b) if isinstance(a, Words) else (b, a)
        assert isinstance(word, Words)
        is_letter = isinstance(other, Quantity) and other.expr.op == "symbol" and other.unit is None
        return is_letter and other.expr.name.casefold() == word.text  # type: ignore[union-attr]
    if type(a) is not type(b):
        return False
    return _of_one_kind(a, b, settings)


def _of_one_kind(a: Any, b: Any, settings: MathSettings) -> bool:
    if isinstance(a, Quantity):
        return _same_quantity(a, b, settings)
    if isinstance(a, Bracketed):
        return (a.left, a.right) == (b.left, b.right) and _pairwise(a.items, b.items, settings)
    if isinstance(a, Union):
        return _matched(list(a.items), list(b.items), settings)
    if isinstance(a, Matrix):
        return len(a.rows) == len(b.rows) and all(map(_pairwise, a.rows, b.rows, [settings] * len(a.rows)))
    if isinstance(a, Colons):
        return _same_colons(a, b, settings)
    assert isinstance(a, Words)
    return bool(a == b)


def _pairwise(a: tuple[Value, ...], b: tuple[Value, ...], settings: MathSettings) -> bool:
    return len(a) == len(b) and all(same_value(x, y, settings) for x, y in zip(a, b, strict=True))


def _same_items(a: Collection, b: Collection, settings: MathSettings) -> bool:
    left, right = list(a.items), list(b.items)
    if a.is_set or b.is_set:
        left, right = _distinct(left, settings), _distinct(right, settings)
    return _matched(left, right, settings)


def _distinct(items: list[Value], settings: MathSettings) -> list[Value]:
    kept: list[Value] = []
    for item in items:
        if not any(same_value(item, other, settings) for other in kept):
            kept.append(item)
    return kept


def _matched(left: list[Value], right: list[Value], settings: MathSettings) -> bool:
    """Whether the two can be paired one to one (augmenting paths: equality need not be transitive)."""
    if len(left) != len(right):
        return False
    edges = [[j for j, y in enumerate(right) if same_value(x, y, settings)] for x in left]
    partner: dict[int, int] = {}

    def place(i: int, seen: set[int]) -> bool:
        for j in edges[i]:
            if j not in seen:
                seen.add(j)
                if j not in partner or place(partner[j], seen):
                    partner[j] = i
                    return True
        return False

    return all(place(i, set()) for i in range(len(left)))


def _same_relation(a: Value, b: Value, settings: MathSettings) -> bool:
    if not isinstance(a, Relation) or not isinstance(b, Relation):
        relation, other = (a, b) if isinstance(a, Relation) else (b, a)
        assert isinstance(relation, Relation)
        # x = 5 and 2 + 3 = 5 give the value 5; y = x + 1 gives the expression. Others give none.
        if isinstance(other, Quantity) and relation.sign == "=" and _gives(relation, settings):
            return _same_quantity(Quantity(relation.right, relation.unit), other, settings)
        return False
    if a.sign != b.sign:
        return False
    if a.left == b.left and a.left.op == "symbol":
        return _same_quantity(Quantity(a.right, a.unit), Quantity(b.right, b.unit), settings)
    if a.sign != "=":
        return are_proportional(_difference(a), _difference(b), must_be_positive=a.sign in "<≤")
    return are_proportional(_difference(a), _difference(b), must_be_positive=False)


def _gives(relation: Relation, settings: MathSettings) -> bool:
    if not relation.left.symbols() and not relation.right.symbols():
        return same_number(relation.left, relation.right, Comparison(settings.tolerance))
    return _defines(relation)


def _defines(relation: Relation) -> bool:
    return relation.left.op == "symbol" and relation.left.name not in relation.right.symbols()


def _difference(relation: Relation) -> Expr:
    return Expr("add", (relation.left, Expr("neg", (relation.right,))))


def _same_digits(a: Value, b: Value) -> bool:
    if isinstance(a, Based) and isinstance(b, Based):
        if a.base == b.base:
            return a.digits.lstrip("0") == b.digits.lstrip("0")
        try:
            return int(a.digits, a.base) == int(b.digits, b.base)
        except ValueError:
            return False
    based, other = (a, b) if isinstance(a, Based) else (b, a)
    assert isinstance(based, Based)
    if not isinstance(other, Quantity) or other.unit or other.is_percent or other.expr.op != "number":
        return False
    return based.digits.isdigit() and other.expr.value == int(based.digits)


def _same_colons(a: Colons, b: Colons, settings: MathSettings) -> bool:
    if len(a.parts) != len(b.parts):
        return False
    if a.is_time or b.is_time:
        return a.parts == b.parts
    rule = Comparison(settings.tolerance)
    return all(
        same_number(Expr("mul", (a.parts[0], y)), Expr("mul", (b.parts[0], x)), rule)
        for x, y in zip(a.parts, b.parts, strict=True)
    )


def _same_quantity(a: Quantity, b: Quantity, settings: MathSettings) -> bool:
    rule = Comparison(settings.tolerance)
    if a.unit is not None and b.unit is not None:
        if a.unit == b.unit and a.is_percent == b.is_percent:
            return same_number(a.expr, b.expr, rule)
        return a.unit.dimensions == b.unit.dimensions and same_number(
            _scaled(a, a.unit), _scaled(b, b.unit), rule
        )
    if (a.unit or b.unit) is not None and not _unit_may_be_left_out(a.unit or b.unit, settings):
        return False
    if a.is_percent == b.is_percent:
        return same_number(a.expr, b.expr, rule)
    sign, plain = (a.expr, b.expr) if a.is_percent else (b.expr, a.expr)
    if settings.percent in ("value", "either") and same_number(Expr("div", (sign, number(100))), plain, rule):
        return True
    return settings.percent in ("number", "either") and same_number(sign, plain, rule)


def _unit_may_be_left_out(unit: Unit | None, settings: MathSettings) -> bool:
    return settings.units == "optional" or (unit is not None and not unit.dimensions)


def _scaled(quantity: Quantity, unit: Unit) -> Expr:
    factor = unit.factor / (100 if quantity.is_percent else 1)
    return quantity.expr if factor == 1 else Expr("mul", (number(Fraction(factor)), quantity.expr))
