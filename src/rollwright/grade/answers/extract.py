"""The order of the marks: thoughts away, last balanced box, last cue, a short text as a whole."""

from __future__ import annotations

from rollwright.grade.answers.boxes import Box, find_boxes, last_boxes
from rollwright.grade.answers.cues import last_cue, strip_marks
from rollwright.grade.answers.found import Found, How
from rollwright.grade.answers.thinking import after_thoughts
from rollwright.grade.verdict import Status

LONGEST_WHOLE = 200  # characters; a longer text without a mark is prose, not an answer


def extract(text: str, guess: bool = False) -> Found:
    """Find the final answer of a response.

    The whole text is searched: there is no window at its end. After the last closing think tag, the last
    balanced box counts; without a box, what the last cue points at; without a cue, the text itself, if it
    is one line of at most 200 characters. Boxes that only a comma, "and" or "or" joins are one answer.

    Args:
        text: the response.
        guess: without any mark, take the last line. It is a guess, so a caller has to ask for it.

    Returns:
        A `Found`: the answer is ``text[first:end]``, but for joined boxes, whose contents are put together
        with commas.
    """
    start, is_cut = after_thoughts(text)
    if is_cut:
        return Found.nothing(start, Status.TRUNCATED, "a thought was opened and never closed")
    boxes, is_open = find_boxes(text, start)
    if boxes:
        return _boxed(text, last_boxes(text, boxes))
    if is_open:
        return Found.nothing(len(text), Status.TRUNCATED, "a box was opened and never closed")
    if span := last_cue(text, start):
        return Found(text[span[0] : span[1]], *span, How.CUE)
    return _unmarked(text, start, guess)


def _boxed(text: str, group: list[Box]) -> Found:
    first, end = group[0].first, group[-1].end
    if len(group) == 1:
        return Found(None, first, end, How.BOX).trimmed(text, first, end)
    answer = ", ".join(text[box.first : box.end].strip() for box in group)
    return Found(answer, first, end, How.BOX, detail=f"{len(group)} boxes joined")


def _unmarked(text: str, start: int, guess: bool) -> Found:
    span = strip_marks(text, start, len(text))
    has_box = "\\boxed" in text or "\\fbox" in text
    if span is None or has_box:
        return Found.nothing(start, Status.NO_ANSWER, "an empty box" if has_box else "an empty text")
    if "\n" not in text[span[0] : span[1]] and span[1] - span[0] <= LONGEST_WHOLE:
        return Found(text[span[0] : span[1]], *span, How.WHOLE)
    if guess:
        line = text.rfind("\n", span[0], span[1]) + 1
        last = strip_marks(text, max(line, span[0]), span[1])
        if last:
            return Found(text[last[0] : last[1]], *last, How.LAST_LINE, detail="a guess: the last line")
    return Found.nothing(start, Status.NO_ANSWER, "no box, no cue, and more than one short line")
