"""Tool calls as Python: ``[f(x=1), g()]``."""

from __future__ import annotations

import ast
import json
import re
from typing import Any

from rollwright.envs._found import Found
from rollwright.envs._json import skip_space


def read_pythonic(text: str) -> list[Found]:
    """Read a list of Python calls with keyword arguments that are plain values."""
    start, end = skip_space(text, 0), len(text.rstrip())
    body = text[start:end]
    if not re.match(r"\[\s*[A-Za-z_][\w.]*\(", body):
        return []
    calls = python_calls(body)
    if not calls:
        return [Found(start, end, error="the tool call is not a list of Python calls with plain values")]
    places = _places(body)
    return [
        Found(start + first, start + last, name, arguments, body[first:last], error)
        for (name, arguments, error), (first, last) in zip(calls, places, strict=True)
    ]


def python_calls(body: str) -> list[tuple[str, dict[str, Any] | None, str | None]]:
    """Return name, arguments and error of each call in Python text; nothing where it is not calls."""
    calls = _nodes(body)
    found: list[tuple[str, dict[str, Any] | None, str | None]] = []
    for call in calls:
        name = ast.unparse(call.func)
        try:
            if call.args or any(keyword.arg is None for keyword in call.keywords):
                raise ValueError("arguments need names")
            names = [keyword.arg for keyword in call.keywords]
            if len(set(names)) < len(names):
                raise ValueError("an argument is given twice")
            arguments = {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
            json.dumps(arguments, allow_nan=False)  # sets, bytes and the like are no values of a call
        except (ValueError, TypeError, RecursionError, MemoryError) as error:
            found.append((name, None, f"the arguments of {name!r} are not plain values: {error}"))
        else:
            found.append((name, arguments, None))
    return found


def _nodes(body: str) -> list[ast.Call]:
    try:
        tree = ast.parse(body, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    nodes = tree.elts if isinstance(tree, ast.List) else [tree]
    return nodes if all(isinstance(node, ast.Call) for node in nodes) else []  # type: ignore[return-value]


def _places(body: str) -> list[tuple[int, int]]:
    """Return where each call stands; Python counts bytes within lines."""
    lines = re.findall(r"[^\r\n]*(?:\r\n|\r|\n|$)", body)
    starts = [sum(len(line) for line in lines[:k]) for k in range(len(lines))]

    def place(line: int, column: int) -> int:
        return starts[line - 1] + len(lines[line - 1].encode()[:column].decode(errors="ignore"))

    return [
        (place(node.lineno, node.col_offset), place(node.end_lineno or 1, node.end_col_offset or 0))
        for node in _nodes(body)
    ]
