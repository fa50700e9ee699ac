"""The code in a model's response."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rollwright.grade.answers.thinking import after_thoughts
from rollwright.grade.verdict import Status

_FENCE = re.compile(r"^[ \t]*(?P<marks>`{3,}|~{3,})[ \t]*(?P<word>[^\s`]*)[^\n`]*$", re.MULTILINE)
_PYTHON = frozenset(("python", "py", "python3", "py3"))


@dataclass(frozen=True, slots=True)
class Code:
    """Code found in a text, and where: (first, end) in characters; ``status`` says why there is none."""

    text: str | None
    where: tuple[int, int] | None = None
    status: Status | None = None
    detail: str = ""


def extract_code(response: str) -> Code:
    """Return the last fenced Python block after the thoughts.

    Blocks without a language count only where no block says Python. A fence that is never closed was cut:
    ``truncated``. No block at all is ``no_answer``.
    """
    start, is_cut = after_thoughts(response)
    if is_cut:
        return Code(None, None, Status.TRUNCATED, "the thought never ended")
    text = response[start:]  # a fence may stand right behind the thought's end
    blocks, opened = [], None
    for fence in _FENCE.finditer(text):
        if opened is None:
            opened = fence
        elif not fence["word"] and fence["marks"].startswith(opened["marks"]):
            blocks.append((opened["word"].lower(), opened.end() + 1, fence.start()))
            opened = None
    if opened is not None and opened["word"].lower() in _PYTHON | {""}:
        return Code(None, None, Status.TRUNCATED, "the last code block is not closed")
    for words in (_PYTHON, {""}):
        for word, first, end in reversed(blocks):
            if word in words:
                end = max(first, end)
                return Code(text[first:end], (start + first, start + end))
    return Code(None, None, Status.NO_ANSWER, "no Python code block")
