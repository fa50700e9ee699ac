"""A clean text to a value: from the outside in, sets, lists, brackets, relations, expressions, words."""

from __future__ import annotations

import re

from rollwright.grade.math.expression import Expr, Unreadable, choose_sign
from rollwright.grade.math.parse import parse
from rollwright.grade.math.quantity import read_quantity
from rollwright.grade.math.split import is_wrapped, split_at, split_list
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

MAX_ITEMS = 200
_RELATIONS = "=≈≠<>≤≥∈⇒"
_NAME = re.compile(r"[A-Za-zα-ω](?:_\{?\w+\}?)?'?|\\[a-z]+(?:_\{?\w+\}?)?")
_FUNCTION = re.compile(r"[A-Za-z](?:_\{?\w+\}?)?'*\s*\(\s*[A-Za-z](?:\s*,\s*[A-Za-z])*\s*\)")
_WORDLIKE = re.compile(r"[A-Za-z]+(?:[ \-'][A-Za-z0-9]+)*")
_INFINITY = Expr("constant", name="oo")


def read(text: str) -> Value:
    """Return what a clean text means.

    Raises:
        Unreadable: it has no single reading that we know.
        TooLarge: it is beyond the reader's bounds.
    """
    return _read(text, is_inside=False)


def read_as_list(text: str) -> Value | None:
    """Return the other reading of commas that may mark thousands: 1,234 as 1 and 234; None if none."""
    inner = text[1:-1] if is_wrapped(text, "⦃{", "⦄}") else text
    if not re.search(r"\d,\d{3}(?!\d)", inner):
        return None
    parts = split_list(inner, is_inside=True)
    if len(parts) < 2:
        return None
    return Collection(_items(parts), is_set=inner is not text)


def _read(text: str, is_inside: bool) -> Value:
    if not text:
        raise Unreadable("nothing to read")
    if text in ("∅", "⦃⦄", "⦃ ⦄"):
        return Collection((), is_set=True)
    parts, signs = split_at(text, "∪")
    if signs:
        return Union(tuple(_read(part, True) for part in parts))
    if is_wrapped(text, "⦃", "⦄"):
        return _set(text[1:-1])
    if is_wrapped(text, "{", "}"):
        return _read(text[1:-1].strip(), is_inside)
    parts = split_list(text, is_inside)
    if len(parts) > 1:
        return _listed(parts)
    if len(parts) == 1 and parts[0] != text:
        return _read(parts[0], is_inside)
    return _single(text)


def _set(inner: str) -> Value:
    if re.search(r"\||:", inner) and not re.fullmatch(r"[^|]*", inner):
        raise Unreadable("a set given by a condition")
    return Collection(_items(split_list(inner, is_inside=True)), is_set=True)


def _items(parts: list[str]) -> tuple[Value, ...]:
    if len(parts) > MAX_ITEMS:
        raise Unreadable(f"more than {MAX_ITEMS} items")
    items: list[Value] = []
    for part in parts:
        value = _read(part, True)
        # ±3 stands for two items of the list around it.
        items += value.items if isinstance(value, Collection) and not value.is_set else (value,)
    return tuple(items)


def _listed(parts: list[str]) -> Value:
    """Return a bare list: ``x = 1, 2`` and ``x = 1 or x = 2`` are the values 1 and 2 of one symbol."""
    items = _items(parts)
    if isinstance(items[0], Relation) and items[0].sign == "=" and _is_name(items[0].left):
        name = items[0].left
        values: list[Value] = []
        for item in items:
            if isinstance(item, Relation) and item.left == name and item.sign == "=":
                values.append(Quantity(item.right, item.unit))
            elif isinstance(item, Quantity):
                values.append(item)
            else:
                return Collection(items)
        return Collection(tuple(values))
    return Collection(items)


def _is_name(expr: Expr) -> bool:
    return expr.op == "symbol"


def _single(text: str) -> Value:
    if match := re.fullmatch(r"\\begin\{([bpvBV]?matrix|array)\}(?:\{[lcr|]*\})?(.*)\\end\{\1\}", text):
        return _matrix(match[2])
    if match := re.fullmatch(r"\\text\{\s*\(?([^{}]*?)\)?\s*\}", text):
        return _text(match[1])
    match = re.fullmatch(r"\(?([0-9A-Za-z]{1,60})\)?_\{?(\d{1,2})\}?", text)
    if match and (match[1].isdigit() or (re.search(r"\d", match[1]) and int(match[2]) > 10)):
        return Based(match[1].upper(), int(match[2]))
    parts, signs = split_at(text, _RELATIONS)
    if signs:
        return _relation(parts, signs)
    if is_wrapped(text, "([⟨", ")]⟩"):
        inner = split_list(text[1:-1], is_inside=True)
        if len(inner) > 1:
            return Bracketed(text[0], text[-1], _items(inner))
        if inner and inner[0].startswith("\\begin"):
            return _read(inner[0], True)
    if re.fullmatch(
        r"\d+(?:\s*:\s*\d+(?:\.\d+)?)+(?:\s*(?:\\text\{)?\s*[ap]\.?m\.?\}?)?", text, re.IGNORECASE
    ):
        return _colons(text)
    return _quantity(text)


def _quantity(text: str) -> Value:
    try:
        quantity = read_quantity(text)
    except Unreadable:
        if _WORDLIKE.fullmatch(text.strip(".")):
            return _words(text)
        raise
    if not (quantity.expr.has("plusminus") or quantity.expr.has("minusplus")):
        return quantity
    both = tuple(Quantity(choose_sign(quantity.expr, s), quantity.unit, quantity.is_percent) for s in (1, -1))
    return Collection(both)


def _text(inner: str) -> Value:
    r"""Return what \text{...} holds: with a digit in it, it may be a number; otherwise it is words."""
    if re.search(r"\d", inner):
        try:
            return _read(inner.strip(), True)
        except Unreadable:
            pass
    return _words(inner)


def _words(text: str) -> Words:
    return Words(re.sub(r"[\s\-]+", " ", text).strip(" .,!").casefold())


def _matrix(body: str) -> Matrix:
    rows = [row.strip() for row in body.split("\\\\") if row.strip()]
    return Matrix(tuple(tuple(_read(cell.strip(), True) for cell in row.split("&")) for row in rows))


def _colons(text: str) -> Colons:
    half = re.search(r"([ap])\.?m", text, re.IGNORECASE)
    parts = re.findall(r"\d+(?:\.\d+)?", text)
    is_time = bool(half) or (all(re.fullmatch(r"[0-5]\d", part) for part in parts[1:]))
    values = [parse(part) for part in parts]
    if half:
        values.append(Expr("symbol", name=half[1].lower() + "m"))
    return Colons(tuple(values), is_time)


def _relation(parts: list[str], signs: list[str]) -> Value:
    if (len(signs) == 2 and set(signs) <= set("<≤")) or (len(signs) == 2 and set(signs) <= set(">≥")):
        return _between(parts, signs)
    if len(signs) > 1 and set(signs) <= set("=≈"):
        # a = b = c: what was worked out stands last.
        parts, signs = [parts[0], parts[-1]], ["="]
    if len(signs) != 1 or not all(parts):
        raise Unreadable("more than one relation")
    left, right, sign = parts[0], parts[1], signs[0]
    if sign in "∈⇒":
        return _read(right, True)
    if sign in "=≈" and _FUNCTION.fullmatch(left):
        left = left.partition("(")[0].strip()
    if sign in "=≈" and _NAME.fullmatch(left):
        value = _read(right, True)
        if not isinstance(value, Quantity):
            return value
        if not value.is_percent and left not in ("e", "i"):
            return Relation("=", parse(left), value.expr, value.unit)
        return value
    if sign in ">≥":
        left, right, sign = right, left, {">": "<", "≥": "≤"}[sign]
    return as_interval(Relation("=" if sign == "≈" else sign, parse(left), parse(right)))


def _between(parts: list[str], signs: list[str]) -> Value:
    if signs[0] in ">≥":
        parts, signs = parts[::-1], [{">": "<", "≥": "≤"}[sign] for sign in reversed(signs)]
    low, middle, high = (parse(part) for part in parts)
    if middle.op != "symbol":
        raise Unreadable("a double inequality about more than one symbol")
    left, right = "(" if signs[0] == "<" else "[", ")" if signs[1] == "<" else "]"
    return Bracketed(left, right, (Quantity(low), Quantity(high)))


def as_interval(relation: Relation) -> Value:
    """Return x < 3 as (-∞, 3): an inequality about one symbol is an interval."""
    if relation.sign not in "<≤":
        return relation
    left, right = relation.left, relation.right
    minus = Quantity(Expr("neg", (_INFINITY,)))
    if left.op == "symbol" and not right.symbols():
        return Bracketed("(", ")" if relation.sign == "<" else "]", (minus, Quantity(right)))
    if right.op == "symbol" and not left.symbols():
        return Bracketed("(" if relation.sign == "<" else "[", ")", (Quantity(left), Quantity(_INFINITY)))
    return relation
