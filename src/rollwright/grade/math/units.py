"""Units: a factor and dimensions for those we know, a word of its own for all others."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from rollwright.grade.math.expression import Refused, Unreadable


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit as a factor to the base units and its dimensions, by name: km/h is 5/18, (m, 1), (s, -1)."""

    factor: Fraction
    dimensions: tuple[tuple[str, int], ...]


def _table() -> dict[str, tuple[Fraction, str]]:
    found: dict[str, tuple[Fraction, str]] = {}
    listed = {
        "m": "m meter metre 1;km kilometer kilometre 1000;cm centimeter centimetre 1/100;mm millimeter"
        " 1/1000;dm decimeter 1/10;um micrometer 1/1000000;nm nanometer 1/1000000000;inch in inches 127/5000;"
        "ft foot feet 381/1250;yd yard 1143/1250;mi mile 201168/125",
        "s": "s sec second 1;ms millisecond 1/1000;min minute 60;h hr hour 3600;day 86400;week 604800",
        "g": "g gram 1;kg kilogram 1000;mg milligram 1/1000;lb pound lbs 45359237/100000;"
        "oz ounce 45359237/1600000;ton tonne 1000000",
        "l": "l L liter litre 1;ml mL milliliter millilitre 1/1000;cl 1/100;dl 1/10",
        "dollar": "dollar usd USD 1;cent cents ¢ 1/100",
        "euro": "euro eur EUR € 1",
        "degree": "degree deg ° degrees 1",
        "radian": "radian rad 1",
        "A": "A ampere amp 1", "V": "V volt 1", "W": "W watt 1;kW kilowatt 1000", "J": "J joule 1;kJ 1000",
        "N": "N newton 1;kN 1000", "Pa": "Pa pascal 1;kPa 1000", "Hz": "Hz hertz 1;kHz 1000",
        "K": "K kelvin 1",
        "mol": "mol mole 1", "C": "C coulomb 1", "ohm": "Ω ohm 1", "byte": "byte 1", "bit": "bit 1",
    }  # fmt: skip
    for base, text in listed.items():
        for entry in text.split(";"):
            *names, factor = entry.split()
            found.update({name: (Fraction(factor), base) for name in names})
    return found


_KNOWN = _table()
_WORD = re.compile(
    r"\s*(/|per\b|\*|)\s*((?:square|sq|cubic|cu)\.?\s+)?([A-Za-zµΩ°€¢]+)\.?\s*(?:\^?\s*\{?\s*(-?\d)\s*\}?)?"
)
_FILLERS = {
    "of",
    "the",
    "a",
    "an",
    "total",
    "in",
    "units",
    "unit",
    "about",
    "approximately",
    "exactly",
    "each",
    "away",
}


_SCALES = {
    "dozen": 12, "hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12,
}  # fmt: skip
# Words behind a number that make it another one, or leave it open. They are no units.
_NEVER_UNITS = {
    "or", "not", "minus", "plus", "half", "pi", "infinity", "zero", "one", "two", "three", "four",
    "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "hundred", "thousand", "million",
    "billion", "trillion", "dozen",
}  # fmt: skip
_NEVER_FIRST = {
    "squared", "cubed", "halves", "thirds", "fourths", "fifths", "sixths", "sevenths", "eighths",
    "ninths", "tenths", "hundredths", "thousandths", "negative", "choose", "factorial", "sqrt", "mod",
    "modulo",
}  # fmt: skip


def split_scale(words: str) -> tuple[int, str]:
    """Return the factor that the first words say, and the rest: ``million dollars`` is 10**6 and dollars.

    Raises:
        Refused: a word says something else about the number.
    """
    factor, rest = 1, words.strip()
    while match := re.match(r"([A-Za-z]+)\b\s*(?:of\b\s*)?", rest):
        scale = _SCALES.get(match[1].lower(), _SCALES.get(match[1].lower().removesuffix("s")))
        if scale is None:
            break
        factor, rest = factor * scale, rest[match.end() :]
    found = re.findall(r"[a-z]+", rest.lower())
    if found and (found[0] in _NEVER_FIRST or not _NEVER_UNITS.isdisjoint(found)):
        raise Refused(f"{words.strip()[:80]!r} behind a number is no unit")
    return factor, rest


def is_known(word: str) -> bool:
    """Whether a word is a unit of measure that we know."""
    return _known(word) is not None


def _known(word: str) -> tuple[Fraction, str] | None:
    for name in (word, word.lower(), word.lower().removesuffix("s"), word.lower().removesuffix("es")):
        if name in _KNOWN and (len(word) > 1 or name == word):
            return _KNOWN[name]
    return None


def read_unit(text: str) -> Unit:
    """Return the unit that a text names: ``km/h``, ``square meters``, ``cm^2``, ``apples``.

    Raises:
        Unreadable: it is no unit.
    """
    factor, dimensions = Fraction(1), dict[str, int]()
    at, text = 0, text.strip()
    while at < len(text):
        match = _WORD.match(text, at)
        if not match or match.end() == at:
            raise Unreadable(f"{text!r} is no unit")
        at = match.end()
        word = match[3]
        if word.lower() in _FILLERS and not match[1]:
            continue
        power = int(match[4] or 1)
        if match[2]:
            power *= 2 if match[2].strip().lower().startswith("sq") else 3
        power *= -1 if match[1] in ("/", "per") else 1
        known = _known(word) or (Fraction(1), "word:" + word.lower().removesuffix("s"))
        factor *= known[0] ** power
        dimensions[known[1]] = dimensions.get(known[1], 0) + power
    return Unit(factor, tuple(sorted((name, power) for name, power in dimensions.items() if power)))
