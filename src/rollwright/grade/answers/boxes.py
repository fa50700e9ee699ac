r"""Boxes: \boxed{...}, \fbox{...}, and \boxed 7 where nothing else can be meant."""

from __future__ import annotations

import re
from dataclasses import dataclass

_OPEN = re.compile(r"\\(?:boxed|fbox|framebox)(?![A-Za-z])\s*")
_BARE = re.compile(r"([-+]?[A-Za-z0-9][A-Za-z0-9./]*?)(?=\s*(?:\$|\\\)|\\\]|\.?\s*(?:\n|\Z)))")
# Boxes with only this between them are one answer: "\boxed{1} and \boxed{2}".
_JOINT = re.compile(
    r"(?:\s|\$|\\\(|\\\)|\\[ ,;]|,|;|&|\\q?quad|(?:\\text\{\s*)?\b(?:and|or)\b(?:\s*\})?)*", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Box:
    """A box's content: text[first:end]; the whole box is text[start:stop]."""

    start: int
    first: int
    end: int
    stop: int


def find_boxes(text: str, start: int = 0) -> tuple[list[Box], bool]:
    """Return the balanced boxes that hold something, in order, and whether one was left open at the end.

    A box inside another box is part of the outer one. ``\\{`` and ``\\}`` are characters, not braces.
    """
    found: list[Box] = []
    is_open = False
    match = _OPEN.search(text, start)
    while match:
        here = match.end()
        if text[here : here + 1] == "{":
            stop = _closing(text, here)
            is_open = stop is None
            if stop is None:
                match = _OPEN.search(text, here)
                continue
            if text[here + 1 : stop - 1].strip():
                found.append(Box(match.start(), here + 1, stop - 1, stop))
            here = stop
        elif bare := _BARE.match(text, here):
            found.append(Box(match.start(), bare.start(1), bare.end(1), bare.end()))
            here = bare.end()
        match = _OPEN.search(text, here)
    return found, is_open


def last_boxes(text: str, boxes: list[Box]) -> list[Box]:
    """Return the last box, with those before it that only a comma, "and" or "or" joins to it."""
    group = boxes[-1:]
    for box in reversed(boxes[:-1]):
        if not _JOINT.fullmatch(text, box.stop, group[0].start):
            break
        if not re.search(r",|;|&|and|or", text[box.stop : group[0].start], re.IGNORECASE):
            break
        group.insert(0, box)
    return group


def _closing(text: str, opening: int) -> int | None:
    """Return the index after the brace that closes text[opening], or None."""
    depth, at = 0, opening
    while at < len(text):
        character = text[at]
        if character == "\\":
            at += 2
            continue
        if character == "{":
            depth += 1
        elif character == "}":
            depth -= 1
            if depth == 0:
                return at + 1
        at += 1
    return None
