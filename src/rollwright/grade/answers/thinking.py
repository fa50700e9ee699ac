"""Thoughts: the answer stands after the last closing tag; a thought that never closes was cut."""

from __future__ import annotations

import re

_TAG = re.compile(r"<(/?)(think|thinking|thought|reasoning)>", re.IGNORECASE)


def after_thoughts(text: str) -> tuple[int, bool]:
    """Return (first, is_cut): where the answer's part of the text begins, and whether a thought never closed.

    Without tags the whole text is the answer's part. A closing tag needs no opening one, because chat
    templates often write the opening tag into the prompt. An opening tag after the last closing one
    means that the text ended inside a thought.
    """
    first, is_cut = 0, False
    for tag in _TAG.finditer(text):
        is_cut = not tag[1]
        if tag[1]:
            first = tag.end()
    return (len(text) if is_cut else first), is_cut
