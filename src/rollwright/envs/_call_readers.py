"""How the calls of each format in JSON are read. Nothing here raises, whatever the text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from rollwright.envs._call_python import python_calls
from rollwright.envs._call_xml import OPENING, element, read_xml
from rollwright.envs._found import Found
from rollwright.envs._json import Item, Malformed, places_of, read_object, read_value, skip_space

_PYTHON_TAG = "<|python_tag|>"
_ENDS = re.compile(r"(?:<\|eom_id\|>|<\|eot_id\|>|\s)*$")
_MISTRAL = "[TOOL_CALLS]"
_MISTRAL_NAME = re.compile(r"\s*([\w.:/-]+)\s*(?:\[CALL_ID\][^\[{]*)?(?:\[ARGS\])?\s*(?=\{)")
_BUILT_IN = re.compile(r"\s*([A-Za-z_]\w*)\.call(?=\()")


def read_openai(text: str) -> list[Found]:
    """Read a message with ``tool_calls``, a list of calls, or one call."""
    start = skip_space(text, 0)
    if text[start : start + 1] not in ("{", "["):
        return []
    try:
        whole = read_value(text, start)
        if isinstance(whole.value, list):
            items = places_of(text, whole)
        elif isinstance(whole.value.get("tool_calls"), list):
            items = places_of(text, read_object(text, start)[0]["tool_calls"])
        else:
            items = [whole]
    except Malformed as error:
        is_call = '"name"' in text or '"tool_calls"' in text
        return [_bad(start, len(text.rstrip()), error)] if is_call else []
    if not any(isinstance(i.value, dict) and ("name" in i.value or "function" in i.value) for i in items):
        return []  # an answer that happens to be JSON
    return [_json_call(text, item.start, item.end) for item in items]


def read_hermes(text: str) -> list[Found]:
    """Read JSON between ``<tool_call>`` tags."""
    return list(_between(text, "<tool_call>", "</tool_call>", _json_body))


def read_qwen(text: str) -> list[Found]:
    """Read JSON or ``<function=...>`` between ``<tool_call>`` tags."""
    return list(_between(text, "<tool_call>", "</tool_call>", _qwen_body))


def read_llama(text: str) -> list[Found]:
    """Read JSON calls, with ``;`` or nothing between them, and what follows a python tag.

    Behind the tag may also stand ``tool.call(x=1)``, or a program: a call of ``python`` with ``code``.
    """
    head, tag, _ = text.partition(_PYTHON_TAG)
    if not tag and '"name"' not in text and "<function=" not in text:
        return []
    if not tag and "<function=" in text and not text.lstrip().startswith("{"):
        return read_xml(text)
    start = skip_space(text, len(head) + len(tag) if tag else 0)
    end = _ENDS.search(text, start).start()  # type: ignore[union-attr]
    if text[start : start + 1] == "{":
        return _json_row(text, start, end)
    if not tag:
        return []
    built_in = _BUILT_IN.match(text, start)
    if built_in:
        body = f"{built_in[1]}{text[built_in.end() : end]}"
        [call] = python_calls(body) or [(built_in[1], None, "not a Python call with plain values")]
        return [Found(start, end, call[0], call[1], text[built_in.end() + 1 : end - 1], call[2])]
    code = text[start:end]
    return [Found(start, end, "python", {"code": code}, code)] if code else []


def read_mistral(text: str) -> list[Found]:
    """Read the calls behind each ``[TOOL_CALLS]``."""
    found: list[Found] = []
    at = text.find(_MISTRAL)
    while at >= 0:
        start = skip_space(text, at + len(_MISTRAL))
        new = _mistral_calls(text, start)
        found += new
        at = text.find(_MISTRAL, max([start, *(item.end for item in new)]))
    return found


def _json_call(text: str, start: int, end: int) -> Found:
    """Read one object with ``name`` and ``arguments`` (or ``parameters``), maybe inside ``function``."""
    try:
        fields, end = read_object(text, start)
        if isinstance(fields["function"].value if "function" in fields else None, dict):
            fields, _ = read_object(text, fields["function"].start)
        name = fields["name"].value if "name" in fields else None
        if not isinstance(name, str) or not name:
            raise Malformed('the tool call has no "name" with text')
    except Malformed as error:
        return _bad(start, end, error)
    given = next((fields[key] for key in ("arguments", "parameters") if key in fields), None)
    try:
        arguments, raw = _arguments(text, given)
    except Malformed as error:
        return Found(start, end, name, error=f"the arguments of {name!r} are {error}")
    return Found(start, end, name, arguments, raw)


def _arguments(text: str, given: Item | None) -> tuple[dict[str, Any], str]:
    """Return the arguments and their text. They may be an object, or the text of one; none is ``{}``."""
    if given is None or given.value is None:
        return {}, ""
    value, raw = given.value, text[given.start : given.end]
    if isinstance(value, str):
        raw = value
        inner = read_value(value, 0) if value.strip() else Item({}, 0, len(value))
        if value[inner.end :].strip():
            raise Malformed(f"followed by {value[inner.end :][:20]!r}; expected one object")
        value = inner.value
    if not isinstance(value, dict):
        raise Malformed(f"of the type {_kind(value)}; expected an object")
    return value, raw


def _kind(value: Any) -> str:
    return {list: "array", str: "text", bool: "boolean"}.get(type(value), "number")


def _bad(start: int, end: int, error: Malformed) -> Found:
    text = str(error)
    return Found(start, end, error=text if text.startswith("the ") else f"the tool call is {text}")


def _json_body(text: str, start: int) -> Found:
    if text[start : start + 1] != "{":
        return Found(start, start, error="the tool call is not a JSON object with name and arguments")
    return _json_call(text, start, start)


def _qwen_body(text: str, start: int) -> Found:
    match = OPENING.match(text, start)
    return element(text, match) if match else _json_body(text, start)


def _between(text: str, opening: str, closing: str, body: Callable[[str, int], Found]) -> Iterator[Found]:
    """Read one call between each pair of tags. The last close tag may be missing, as a stop string is."""
    at, closed = text.find(opening), 0
    while at >= 0:
        inner = body(text, skip_space(text, at + len(opening)))
        after = skip_space(text, inner.end)
        is_whole = inner.end > at + len(opening)
        if is_whole and text.startswith(closing, after):
            end = after + len(closing)
        elif is_whole and after == len(text):
            end = inner.end
        else:  # what is behind the call belongs to it up to the next tag
            if 0 <= closed < after:  # found once, not again for each of thousands of opening tags
                closed = text.find(closing, after)
            ends = [place for place in (closed, text.find(opening, after)) if place >= 0]
            end = min(ends, default=len(text))
            error = inner.error or f"the tool call does not end with {closing} behind its JSON"
            inner = Found(at, end, inner.name, None, "", error)
            end += len(closing) if text.startswith(closing, end) else 0
        yield Found(at, end, inner.name, inner.arguments, inner.arguments_raw, inner.error)
        at = text.find(opening, end)


def _json_row(text: str, start: int, end: int) -> list[Found]:
    found = []
    while start < end:
        call = _json_call(text, start, end)
        found.append(call)
        start = skip_space(text, call.end)
        if text[start : start + 1] == ";":
            start = skip_space(text, start + 1)
        if start < end and text[start] != "{":
            left = text[start:end][:20]
            found[-1] = Found(call.start, end, call.name, error=f"behind the tool call stands {left!r}")
            break
    return found


def _mistral_calls(text: str, start: int) -> list[Found]:
    if text[start : start + 1] == "{":
        return [_json_call(text, start, len(text))]
    if text[start : start + 1] == "[":
        try:
            whole = read_value(text, start)
        except Malformed as error:
            return [_bad(start, len(text), error)]
        return [_json_call(text, item.start, item.end) for item in places_of(text, whole)]
    named = _MISTRAL_NAME.match(text, start)
    if not named:
        return [Found(start, len(text), error="the tool call is neither a JSON list nor name[ARGS]{...}")]
    try:
        item = read_value(text, named.end())
    except Malformed as error:
        return [Found(start, len(text), named[1], error=f"the arguments of {named[1]!r} are {error}")]
    return [Found(start, item.end, named[1], item.value, text[item.start : item.end])]
