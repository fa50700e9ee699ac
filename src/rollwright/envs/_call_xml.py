"""Tool calls as elements: ``<function=name>`` and ``<invoke name="name">``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rollwright.envs._found import Found
from rollwright.envs._json import Malformed, read_value, skip_space

OPENING = re.compile(r"<function=(?P<name>[^>\n]*)>|<invoke\s+name=\"(?P<quoted>[^\"\n]*)\"\s*>")
_PARAMETER = re.compile(
    r"<parameter(?:=(?P<name>[^>\n]*)|\s+name=\"(?P<quoted>[^\"\n]*)\"[^>]*)>(?P<value>.*?)</parameter>"
    r"\s*(?=<parameter[=\s]|</function>|</invoke>|\Z)",
    re.DOTALL,
)
_ANY_CLOSING = re.compile(r"</function>|</invoke>|</tool_call>")
_CLOSING = re.compile(r"\s*(?:</function>|</invoke>)")


def read_xml(text: str) -> list[Found]:
    """Read ``<function=name>`` and ``<invoke name="name">`` elements."""
    found, at = [], 0
    while match := OPENING.search(text, at):
        found.append(element(text, match))
        at = max(found[-1].end, match.end())
    return found


def typed(arguments: Mapping[str, Any], raw: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Give the text values of an ``xml`` call the types that the schema names."""
    if not OPENING.search(raw):
        return dict(arguments)
    properties = schema.get("properties", {})
    found = {key: _convert(value, properties.get(key, {})) for key, value in arguments.items()}
    return {key: value for key, value in found.items() if value is not _NOT_GIVEN}


_NOT_GIVEN = object()
_PYTHON = {"True": "true", "False": "false", "None": "null"}


def _convert(value: Any, schema: Any) -> Any:
    kinds = schema.get("type", "string") if isinstance(schema, Mapping) else "string"
    if not isinstance(value, str) or kinds == "string" or "string" in kinds:
        return value
    if not value.strip():
        return _NOT_GIVEN  # an empty element is no value of any other type
    try:
        item = read_value(_PYTHON.get(value.strip(), value), 0)
    except Malformed:
        return value  # the schema's check then says what was expected
    return item.value if not value[item.end :].strip() or value.strip() in _PYTHON else value


def _name(match: re.Match[str]) -> str:
    """Return a name; models that were told of attributes put it in quotes."""
    return str(match["quoted"] if match["name"] is None else match["name"]).strip().strip("\"'")


def element(text: str, opening: re.Match[str]) -> Found:
    """Read one element: parameters up to its close tag, or one JSON object (Llama's custom form)."""
    name = _name(opening)
    start, at = opening.start(), skip_space(text, opening.end())
    arguments: dict[str, Any] = {}
    if text[at : at + 1] == "{":
        try:
            arguments, at = read_value(text, at).value, read_value(text, at).end
        except Malformed as error:
            return Found(start, _end(text, at), name, error=f"the arguments of {name!r} are {error}")
    while match := _PARAMETER.match(text, at):
        key = _name(match)
        if key in arguments:
            return Found(start, _end(text, at), name, error=f"the parameter {key!r} is given twice")
        value = match["value"].removeprefix("\n")
        arguments[key] = value.removesuffix("\n")
        at = match.end()
    closing = _CLOSING.match(text, at)
    if not closing or not name:
        wrong = "has no name" if not name else "is not closed behind its last parameter"
        return Found(start, _end(text, at), name, error=f"the tool call {wrong}")
    return Found(start, closing.end(), name, arguments, text[opening.end() : closing.start()])


def _end(text: str, at: int) -> int:
    """Return where an element that cannot be read ends."""
    closing = _ANY_CLOSING.search(text, at)
    if closing is None:
        return len(text)
    return closing.start() if closing[0] == "</tool_call>" else closing.end()
