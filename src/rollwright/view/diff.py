"""Where two rollouts differ, token by token."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Any

from rollwright.view.rollout import Row, flat

MAX_BETWEEN = 6000  # tokens between the shared ends; beyond, only the ends are told


def diff(one: Row, other: Row) -> dict[str, Any]:
    """Compare two rollouts of `rollwright.view.rollout.rollout` by their token ids, prompts included.

    Returns:
        ``runs``: a list of ``{"op", "a", "b"}``, op being ``"same"`` or ``"changed"``, with the steps of
        either side (``[token, piece, origin]``); ``first_difference``: steps before it, None where there is
        none; ``num_same``; ``is_exact``: False where the middle was too long to be compared.
    """
    left, right = list(flat(one)), list(flat(other))
    a, b = [step[0] for step in left], [step[0] for step in right]
    head = _shared(a, b)
    tail = _shared(a[head:][::-1], b[head:][::-1])
    middle = (a[head : len(a) - tail], b[head : len(b) - tail])
    is_exact = max(map(len, middle)) <= MAX_BETWEEN
    pairs = [("same", 0, head, 0, head)]
    if is_exact:
        for op, i, j, k, m in SequenceMatcher(None, *middle, autojunk=False).get_opcodes():
            pairs.append(("same" if op == "equal" else "changed", head + i, head + j, head + k, head + m))
    else:
        pairs.append(("changed", head, len(a) - tail, head, len(b) - tail))
    pairs.append(("same", len(a) - tail, len(a), len(b) - tail, len(b)))
    runs = [
        {"op": op, "a": [list(s) for s in left[i:j]], "b": [list(s) for s in right[k:m]]}
        for op, i, j, k, m in pairs
        if i < j or k < m
    ]
    return {
        "runs": runs,
        "first_difference": None if a == b else head,
        "num_same": sum(len(run["a"]) for run in runs if run["op"] == "same"),
        "num_a": len(a),
        "num_b": len(b),
        "is_exact": is_exact,
    }


def _shared(a: Sequence[int], b: Sequence[int]) -> int:
    """Return how many steps two sequences have in common at their beginnings."""
    return next((k for k, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
