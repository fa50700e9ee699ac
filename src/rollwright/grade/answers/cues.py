"""Cues: "the answer is ...", "Final Answer: ...", "#### ..."; the last one in the text wins."""

from __future__ import annotations

import re

_EMPHASIS = r"[*_`]*"
_CUE = re.compile(
    rf"""
      (?:^|(?<=\n))[ \t]*\#\#\#\#(?!\#)[ \t]*            # GSM8K
    | \bfinal[ \t]+answer\b{_EMPHASIS}[ \t]*(?=\n)     # a heading
    | {_EMPHASIS}\b(?:final|correct|my)?[ \t]*(?:answer|result|solution|value)\b{_EMPHASIS}
      [ \t]*(?:\([^()\n]{{1,40}}\)[ \t]*)?
      (?::{_EMPHASIS}|=|\bis\b(?:[ \t]*(?:therefore|thus|then|simply))?{_EMPHASIS}(?:[ \t]*:)?)
    """,
    re.IGNORECASE | re.VERBOSE,
)
# Prose after an answer on the same line.
_PROSE = re.compile(
    r"(?<=[^\s.])[.!?](?=\s|\Z)|;\s|[,\s]\s*(?:because|since|which|where|so that|as shown|as we)\b",
    re.IGNORECASE,
)
_MATHS = re.compile(r"\$\$(.+?)\$\$|\$(?!\s)([^$\n]+?)(?<!\s)\$(?!\d)|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL)
_MARKS = "*_`\"'“”‘’ \t"


def last_cue(text: str, start: int = 0) -> tuple[int, int] | None:
    """Return (first, end) of what the last cue points at, or None. A cue that points at nothing is no cue."""
    found = None
    for cue in _CUE.finditer(text, start):
        span = _pointed_at(text, cue.end())
        if span:
            found = span
    return found


def _pointed_at(text: str, first: int) -> tuple[int, int] | None:
    """Return the answer from ``first`` on: the rest of the line, or the next line with anything on it."""
    displayed = re.compile(r"\s*(?:\*\*)?\s*(?=\$\$|\\\[)").match(text, first)
    if displayed and (maths := _MATHS.match(text, displayed.end())):
        return strip_marks(text, *maths.span())
    while first < len(text):
        end = text.find("\n", first)
        end = len(text) if end < 0 else end
        if text[first:end].strip(_MARKS + ":#"):
            break
        first = end + 1
    if first >= len(text):
        return None
    lead = re.compile(r"[\s*_`:]*").match(text, first)
    maths = _MATHS.match(text, lead.end() if lead else first, end)
    if maths and not re.match(r"\s*(?:,|and\b|or\b|[A-Za-z/%])", text[maths.end() : end]):
        return strip_marks(text, *maths.span())
    prose = _PROSE.search(text, first, end)
    return strip_marks(text, first, prose.start() if prose else end)


def strip_marks(text: str, first: int, end: int) -> tuple[int, int] | None:
    """Return the span without emphasis, quotes and white space around it; None if nothing is left."""
    while first < end and text[first] in _MARKS + ":":
        first += 1
    while first < end and (text[end - 1] in _MARKS or _is_full_stop(text, first, end)):
        end -= 1
    return (first, end) if first < end else None


def _is_full_stop(text: str, first: int, end: int) -> bool:
    return text[end - 1] in ".," and end - first > 1
