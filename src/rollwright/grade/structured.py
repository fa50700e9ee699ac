"""JSON answers, with the path of the first difference; regular expressions, with a hard limit."""

from __future__ import annotations

import json
import math
import re
from typing import Any

from rollwright.grade.answers.thinking import after_thoughts
from rollwright.grade.pool import Pool, shared_pool
from rollwright.grade.verdict import Status, Verdict

JSON_GRADER, REGEX_GRADER = "json/1", "regex/1"
_FENCE = re.compile(r"```(?:json)?[ \t]*\n(.*?)\n?```", re.DOTALL | re.IGNORECASE)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        raise ValueError("a key is repeated")
    return dict(pairs)


def read_json(text: str) -> Any:
    """Return the value of a strict JSON text: no NaN, no repeated keys.

    Raises:
        ValueError: it is not JSON, or nested too deeply.
    """
    try:
        return json.loads(text, parse_constant=_no_constant, object_pairs_hook=_no_repeats)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def find_json(response: str) -> tuple[str, int] | None:
    """Return a response's JSON text and where it begins: the last fenced block, or all of it."""
    start, is_cut = after_thoughts(response)
    if is_cut or not response[start:].strip():
        return None
    blocks = list(_FENCE.finditer(response, start))
    if blocks:
        return blocks[-1][1], blocks[-1].start(1)
    return response[start:], start


def first_difference(answer: Any, gold: Any, rel_tol: float = 0.0, path: str = "$") -> str | None:
    """Return the path of the first difference with what differs, or None. 1 is not true."""
    if isinstance(answer, bool) or isinstance(gold, bool) or answer is None or gold is None:
        return None if answer is gold else f"{path}: {answer!r} instead of {gold!r}"
    if isinstance(answer, int | float) and isinstance(gold, int | float):
        same = answer == gold or (rel_tol > 0 and math.isclose(answer, gold, rel_tol=rel_tol))
        return None if same else f"{path}: {answer!r} instead of {gold!r}"
    if type(answer) is not type(gold):
        return f"{path}: {type(answer).__name__} instead of {type(gold).__name__}"
    if isinstance(gold, dict):
        for key in sorted(gold.keys() | answer.keys()):
            here = f"{path}.{key}"
            if key not in answer or key not in gold:
                return f"{here}: {'missing' if key in gold else 'not expected'}"
            if difference := first_difference(answer[key], gold[key], rel_tol, here):
                return difference
        return None
    if isinstance(gold, list):
        for index, (x, y) in enumerate(zip(answer, gold, strict=False)):
            if difference := first_difference(x, y, rel_tol, f"{path}[{index}]"):
                return difference
        return None if len(answer) == len(gold) else f"{path}: {len(answer)} items instead of {len(gold)}"
    return None if answer == gold else f"{path}: {answer!r} instead of {gold!r}"


def grade_json(response: str, gold: str, rel_tol: float = 0.0) -> Verdict:
    """Grade a JSON answer: the order of keys is free, that of lists is not."""
    settings = {"rel_tol": str(rel_tol)}
    try:
        right = read_json(gold)
    except ValueError as error:
        return Verdict(None, Status.BAD_DATA, detail=f"the gold answer: {error}", grader=JSON_GRADER)
    found = find_json(response)
    if found is None:
        _, is_cut = after_thoughts(response)
        status = Status.TRUNCATED if is_cut else Status.NO_ANSWER
        return Verdict(0.0, status, detail="no JSON", grader=JSON_GRADER, settings=settings)
    text, first = found
    where = (first, first + len(text))
    try:
        difference = first_difference(read_json(text), right, rel_tol)
    except (ValueError, RecursionError) as error:
        return Verdict(0.0, Status.NO_ANSWER, text, f"not JSON: {error}", {}, where, JSON_GRADER, settings)
    status = Status.WRONG if difference else Status.RIGHT
    return Verdict(float(not difference), status, text, difference or "", {}, where, JSON_GRADER, settings)


def search(pattern: str, text: str) -> tuple[int, int] | None:
    """Return where a pattern matches all of a text's answer; runs in a worker."""
    match = re.compile(pattern, re.DOTALL).fullmatch(text)
    return match.span() if match else None


def grade_regex(response: str, pattern: str, timeout_s: float = 2.0, pool: Pool | None = None) -> Verdict:
    """Grade whether the pattern matches the whole text after the thoughts, stripped of white space.

    The search runs in a worker that is killed after ``timeout_s`` seconds: a pattern that backtracks without
    end cannot be stopped otherwise. A timeout is the pattern's fault, which is ours, so it has no score.
    """
    settings = {"pattern": pattern, "timeout_s": str(timeout_s)}
    try:
        re.compile(pattern)
    except re.error as error:
        detail = f"the pattern is not a regular expression: {error}"
        return Verdict(None, Status.BAD_DATA, detail=detail, grader=REGEX_GRADER, settings=settings)
    start, is_cut = after_thoughts(response)
    if is_cut:
        return Verdict(
            0.0, Status.TRUNCATED, detail="a thought never closed", grader=REGEX_GRADER, settings=settings
        )
    text = response[start:].strip()
    jobs = [(pattern, text)]
    [outcome] = (pool or shared_pool()).map("rollwright.grade.structured:search", jobs, timeout_s)
    if outcome.kind != "done":
        detail = f"the pattern: {outcome.detail}"
        return Verdict(None, Status.GRADER_ERROR, text, detail, grader=REGEX_GRADER, settings=settings)
    is_match = outcome.value is not None
    status = Status.RIGHT if is_match else Status.WRONG
    return Verdict(float(is_match), status, text, grader=REGEX_GRADER, settings=settings)
