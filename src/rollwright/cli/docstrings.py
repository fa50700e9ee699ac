"""Take help texts out of docstrings, so that they are written once."""

from __future__ import annotations

import inspect
import re
import textwrap
from typing import Any

_ENTRY = re.compile(r"^(?P<names>\w+(?:, \w+)*): (?P<text>.*)$")
_HEADING = re.compile(r"^(Args|Attributes|Returns|Raises|Source|Example|Use)\b.*:$")


def first_line(value: Any) -> str:
    """Return the first line of a docstring, ``""`` without one."""
    return (inspect.getdoc(value) or "").partition("\n")[0]


def arguments(value: Any) -> dict[str, str]:
    """Return the texts of the ``Args:`` section by name, each as one line.

    An entry may name several (``low, high: the interval``); each gets the text.
    """
    found: dict[str, str] = {}
    names: list[str] = []
    for line in _section(value, "Args:"):
        entry = _ENTRY.match(line)
        if entry:
            names = entry["names"].split(", ")
            found.update(dict.fromkeys(names, entry["text"]))
        else:
            found.update({name: f"{found[name]} {line.strip()}" for name in names})
    return found


def source(value: Any) -> str:
    """Return the text behind ``Source:`` in a docstring, as one line; ``""`` without one."""
    match = re.search(r"^Source: *(.+(?:\n(?!\n).+)*)", inspect.getdoc(value) or "", re.MULTILINE)
    return " ".join(match[1].split()) if match else ""


def _section(value: Any, heading: str) -> list[str]:
    lines = (inspect.getdoc(value) or "").splitlines()
    if heading not in lines:
        return []
    inside: list[str] = []
    for line in lines[lines.index(heading) + 1 :]:
        if line and not line.startswith(" "):
            break
        inside.append(line)
    return [line for line in textwrap.dedent("\n".join(inside)).splitlines() if line.strip()]
