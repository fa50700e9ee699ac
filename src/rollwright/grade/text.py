"""Text answers: exactly the same, or the same after normalising."""

from __future__ import annotations

import re
import unicodedata
from typing import Literal

from rollwright.errors import ConfigError
from rollwright.grade.answers import extract
from rollwright.grade.verdict import Status, Verdict

GRADER = "text/1"


def normalised(text: str) -> str:
    """Return the text in one form: Unicode NFKC, no case, no articles, no punctuation at its ends."""
    text = unicodedata.normalize("NFKC", text).casefold()
    text = re.sub(r"\b(?:a|an|the)\b", " ", text)
    return re.sub(r"\s+", " ", text).strip(" \t\n.,;:!?\"'“”‘’*_`")


def grade_text(response: str, gold: str, mode: Literal["exact", "normalised"] = "normalised") -> Verdict:
    """Grade a response's final answer as text.

    Raises:
        ConfigError: the mode is unknown.
    """
    if mode not in ("exact", "normalised"):
        raise ConfigError(f"text mode {mode!r}; expected 'exact' or 'normalised'")
    settings: dict[str, str] = {"mode": mode}
    if not gold.strip():
        return Verdict(
            None, Status.BAD_DATA, detail="the gold answer is empty", grader=GRADER, settings=settings
        )
    found = extract(response)
    if found.answer is None:
        status = found.status or Status.NO_ANSWER
        return Verdict(0.0, status, detail=found.detail, grader=GRADER, settings=settings)
    same = found.answer == gold if mode == "exact" else normalised(found.answer) == normalised(gold)
    return Verdict(
        float(same),
        Status.RIGHT if same else Status.WRONG,
        extracted=found.answer,
        detail=f"by {found.how}",
        where=(found.first, found.end),
        grader=GRADER,
        settings=settings,
    )
