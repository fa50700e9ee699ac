"""Multiple choice: the letter of one option."""

from __future__ import annotations

import re

from rollwright.errors import ConfigError
from rollwright.grade.answers import extract
from rollwright.grade.answers.cues import last_cue
from rollwright.grade.answers.thinking import after_thoughts
from rollwright.grade.verdict import Status, Verdict

GRADER = "choice/1"
_WRAPPER = re.compile(r"\\(?:text|mathrm|textbf|mathbf|textit|mbox|boxed)\s*\{([^{}]*)\}")
_LABEL = re.compile(r"\(?([A-Za-z])\)?\s*(?:$|[:).\-–—])(?!\s*[A-Za-z]?\s*[,/&]\s*[A-Z]\b)")
_OPTION = re.compile(r"(?:option|choice|answer)\s+", re.IGNORECASE)


def read_letter(text: str, num_options: int = 26) -> str | None:
    """Return the option's letter, upper case, or None.

    A letter counts only alone or before a label mark (``:``, ``)``, ``.`` or ``-``): "Earth" is not E, and
    "A or E", "A, E" are no answer. A small letter counts only alone or in brackets.
    """
    text = _WRAPPER.sub(r"\1", _WRAPPER.sub(r"\1", text)).replace("$", "").strip(" *_`\n\t.,")
    text = _OPTION.sub("", text, count=1).strip() if _OPTION.match(text) else text
    match = _LABEL.match(text)
    if not match:
        return None
    letter, rest = match[1], text[match.end() :]
    is_alone = not rest.strip(" ).")
    if letter.islower() and not is_alone and not text.startswith("("):
        return None
    if re.match(r"\s*(?:or|and)\s+\(?[A-Za-z]\)?(?:$|[\s:).])", rest):
        return None
    return letter.upper() if ord(letter.upper()) - ord("A") < num_options else None


def grade_choice(response: str, gold: str, num_options: int = 26) -> Verdict:
    """Grade a response by its option's letter.

    Raises:
        ConfigError: the gold answer is no letter of an option.
    """
    right = read_letter(gold, num_options)
    if right is None:
        raise ConfigError(f"the gold answer {gold!r} is not one of the first {num_options} letters")
    found = extract(response)
    if found.answer is None:
        return Verdict(0.0, found.status or Status.NO_ANSWER, detail=found.detail, grader=GRADER)
    letter, where = read_letter(found.answer, num_options), (found.first, found.end)
    if letter is None and (span := last_cue(response, after_thoughts(response)[0])):
        # A box may hold a formula of the working; then an explicit "Answer: D" counts.
        letter, where = read_letter(response[span[0] : span[1]], num_options), span
    if letter is None:
        return Verdict(
            0.0, Status.NO_ANSWER, found.answer, "names no single option", where=where, grader=GRADER
        )
    status = Status.RIGHT if letter == right else Status.WRONG
    return Verdict(float(letter == right), status, letter, f"by {found.how}", where=where, grader=GRADER)
