"""An expression with what may stand around it: currency, a unit, a percent sign."""

from __future__ import annotations

import re

from rollwright.grade.math.expression import Expr, Unreadable, number
from rollwright.grade.math.parse import parse
from rollwright.grade.math.units import Unit, is_known, read_unit, split_scale
from rollwright.grade.math.values import Quantity

_CURRENCY = {"$": "dollar", "€": "euro", "¢": "cent", "£": "gbp", "¥": "yen"}
_PERCENT = re.compile(
    r"\s*(?:%|\\text\{\s*(?:%|percent(?:age)?|per cent|pct\.?)\s*\}|percent(?:age)?|per cent|pct\.?)\s*$",
    re.IGNORECASE,
)
_DEGREE = re.compile(r"\s*°\s*([CF])?\s*$")
# The degrees at the end are a function's argument: sin 30° is a number.
_OPEN_FUNCTION = re.compile(r"(?<![A-Za-z])(?:sin|cos|tan|cot|sec|csc)(?![A-Za-z])[^()]*$")
_IN_TEXT = re.compile(r"\\text\{([^{}]*)\}(\^\{?-?\d\}?)?")
# Units at the end: in \text, with / between and powers behind.
_TEXT_UNIT = re.compile(r"((?:\s*[/*]?\s*\\text\{[^{}]*\}\s*(?:\^\s*\{?\s*-?\d\s*\}?)?)+)\s*$")
_PLAIN_UNIT = re.compile(
    r"(?P<space>\s*)(?P<unit>[A-Za-zµΩ€¢]+\.?(?:\s*\^\s*\{?\s*-?\d\s*\}?)?"
    r"(?:\s*(?:/|\bper\b|\s)\s*[A-Za-zµΩ]+\.?(?:\s*\^\s*\{?\s*-?\d\s*\}?)?)*)\s*$"
)
_NUMERIC_END = re.compile(r"[\d)}.%!π]$")


def read_quantity(text: str) -> Quantity:
    """Return a clean text as an expression with its unit.

    Raises:
        Unreadable: the text without its unit is no expression.
        TooLarge: it is beyond the reader's bounds.
    """
    body, unit = _currency(text)
    if percent := _PERCENT.search(body):
        return Quantity(parse(body[: percent.start()]), unit, is_percent=True)
    degree = _DEGREE.search(body)
    if degree and not _OPEN_FUNCTION.search(body[: degree.start()]):
        name = "degree" + (degree[1] or "")
        return Quantity(parse(body[: degree.start()]), read_unit(name))
    if match := _TEXT_UNIT.search(body):
        words = _IN_TEXT.sub(lambda m: f" {m[1]}{m[2] or ''} ", match[1])
        if body[: match.start()].strip():
            return _with_words(body[: match.start()], unit, words)
        return _after(body, words)
    if plain := _plain_unit(body):
        return _with_words(plain[0], unit, plain[1])
    return Quantity(parse(body), unit)


def _currency(text: str) -> tuple[str, Unit | None]:
    match = re.match(r"\s*(-?)\s*([$€£¥])\s*(?=[\d.\\(-])", text)
    if match:
        return match[1] + text[match.end() :], read_unit(_CURRENCY[match[2]])
    if match := re.search(r"(?<=\d)\s*([$€£¥¢])\s*$", text):
        return text[: match.start()], read_unit(_CURRENCY[match[1]])
    return text, None


def _with_words(body: str, unit: Unit | None, words: str) -> Quantity:
    """Return an expression with the words behind it: a scale such as "million", and a unit."""
    factor, words = split_scale(words)
    expr = parse(body)
    if factor != 1:
        is_plain = expr.op == "number" and expr.value is not None
        expr = (
            number(expr.value * factor, expr.is_decimal) if is_plain else Expr("mul", (number(factor), expr))
        )
    return Quantity(expr, _joined(unit, words))


def _joined(unit: Unit | None, words: str) -> Unit | None:
    """Return the unit; with a currency sign before the number, words such as "per apple" only explain."""
    if unit is not None:
        return unit
    stripped = words.strip(" .,")
    return read_unit(stripped) if stripped else None


def _plain_unit(body: str) -> tuple[str, str] | None:
    """Return (expression, unit) where words after a number are a unit we know, or a long word."""
    match = _PLAIN_UNIT.search(body)
    if not match or not _NUMERIC_END.search(body[: match.start()]):
        return None
    if re.search(r"\\[A-Za-z]*$", body[: match.start()]):
        return None
    first = re.match(r"[A-Za-zµΩ€¢]+", match["unit"])
    assert first is not None
    words = first[0]
    is_unit = is_known(words) and (len(words) > 1 or bool(match["space"]))
    is_word = bool(match["space"]) and len(words) > 3
    has_symbols = bool(re.search(r"(?<![\\A-Za-z])[A-Za-z](?![A-Za-z])", body[: match.start()]))
    if (is_unit and not (has_symbols and len(words) == 1)) or is_word or words in ("square", "sq", "cubic"):
        return body[: match.start()], match["unit"]
    return None


def _after(body: str, words: str) -> Quantity:
    raise Unreadable(f"only words: {words.strip()!r} in {body[:80]!r}")
