"""Splitting a clean text where no bracket is open."""

from __future__ import annotations

import re
from collections.abc import Sequence

OPENING, CLOSING = "([{⦃⟨", ")]}⦄⟩"
_WORD_SEPARATOR = re.compile(r"\s(?:and|or)(?=\s)|^(?:and|or)\s")


def depths(text: str) -> list[int]:
    """Return how many brackets are open before each character; any closing one closes any opening one."""
    found, depth = [], 0
    for character in text:
        depth -= character in CLOSING
        found.append(depth)
        depth += character in OPENING
    return found


def split_at(text: str, marks: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the parts between marks of one character outside brackets, and the marks."""
    parts, found, start = [], [], 0
    for at, (character, depth) in enumerate(zip(text, depths(text), strict=True)):
        if character in marks and depth == 0:
            parts.append(text[start:at].strip())
            found.append(character)
            start = at + 1
    return [*parts, text[start:].strip()], found


def split_list(text: str, is_inside: bool) -> list[str]:
    """Return the parts of a list: commas, semicolons, "and", "or" outside brackets.

    A semicolon binds less than a comma, so "1,5; 2,5" are two. Inside brackets each comma separates; in a
    bare list, one that marks thousands does not.
    """
    level = depths(text)
    cuts: list[tuple[int, int]] = []
    semicolons = [at for at, character in enumerate(text) if character == ";" and level[at] == 0]
    for at, character in enumerate(text):
        if level[at] or character != ("," if not semicolons else ";"):
            continue
        if character == "," and not is_inside and _is_thousands(text, at):
            continue
        cuts.append((at, at + 1))
    cuts += [word.span() for word in _WORD_SEPARATOR.finditer(text) if level[word.start()] == 0]
    cuts.sort()
    parts, start = [], 0
    for first, end in cuts:
        parts.append(text[start:first].strip())
        start = end
    parts.append(text[start:].strip())
    return [part for part in parts if part]


def _is_thousands(text: str, at: int) -> bool:
    """Whether the comma at ``at`` stands in a number such as 12,345,678."""
    before = re.search(r"(?<![\d.,])\d{1,3}(?:,\d{3})*$", text[:at])
    after = re.match(r",(?:\d{3},)*\d{3}(?![\d])", text[at:])
    return bool(before and after and not before[0].startswith("0"))


def is_wrapped(text: str, left: str, right: str) -> bool:
    """Whether the first bracket of the text closes at its end, and the two are of these kinds."""
    if len(text) < 2 or text[0] not in left or text[-1] not in right:
        return False
    level = depths(text)
    return all(depth > 0 for depth in level[1:-1]) and level[-1] == 0
