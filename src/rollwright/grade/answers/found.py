"""What extraction returns."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from rollwright.grade.verdict import Status


class How(StrEnum):
    """By which mark an answer was found."""

    BOX = "box"
    CUE = "cue"
    WHOLE = "whole"  # no mark, but one short line: it is the answer
    LAST_LINE = "last_line"  # no mark: the last line, only where the caller allows a guess
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Found:
    """An answer in a text.

    Args:
        answer: the answer as it stood, without its mark and without emphasis; None if there is none.
        first: its first character's index in the text.
        end: the index after its last character.
        how: by which mark.
        status: why there is no answer (`Status.NO_ANSWER` or `Status.TRUNCATED`); RIGHT is never used here.
        detail: for people.
    """

    answer: str | None
    first: int
    end: int
    how: How
    status: Status | None = None
    detail: str = ""

    @classmethod
    def nothing(cls, at: int, status: Status, detail: str) -> Found:
        """Return the absence of an answer, with its reason."""
        return cls(None, at, at, How.NOTHING, status, detail)

    def trimmed(self, text: str, first: int, end: int) -> Found:
        """Return the same find over text[first:end] without white space around."""
        while first < end and text[first].isspace():
            first += 1
        while first < end and text[end - 1].isspace():
            end -= 1
        return Found(text[first:end], first, end, self.how, self.status, self.detail)
