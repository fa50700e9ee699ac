"""Find tool calls in what a model wrote, in the formats that models are trained on.

| format | looks like |
|---|---|
| ``openai`` | ``{"tool_calls": [{"function": {"name": "f", "arguments": "{\\"x\\": 1}"}}]}`` |
| ``hermes`` | ``<tool_call>{"name": "f", "arguments": {"x": 1}}</tool_call>`` |
| ``qwen`` | as hermes, or with ``xml`` between the tags (Qwen3-Coder) |
| ``llama`` | ``{"name": "f", "parameters": {"x": 1}}``, also behind ``<|python_tag|>``; ``f.call(x=1)`` |
| ``mistral`` | ``[TOOL_CALLS][{"name": "f", "arguments": {"x": 1}}]`` or ``[TOOL_CALLS]f[ARGS]{"x": 1}`` |
| ``xml`` | ``<function=f><parameter=x>1</parameter></function>`` or ``<invoke name="f">...`` |
| ``pythonic`` | ``[f(x=1), g()]`` |

A call is never written back: ``raw`` is the text as it was sampled, and only it belongs in a history.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rollwright.envs import _call_readers as readers
from rollwright.envs._call_python import read_pythonic
from rollwright.envs._call_xml import read_xml, typed
from rollwright.envs._found import Found
from rollwright.envs.tools import Tool
from rollwright.errors import UnknownName

_OPEN, _CLOSE = "<think>", "</think>"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call that a model made, or tried to make.

    Args:
        name: of the tool; empty where none could be read.
        arguments: parsed, for the tool; None where they could not be read.
        raw: the whole call as it stands in the text.
        error: what is wrong with it, in words for the model; None for a call in order.
        arguments_raw: the arguments as they stand in the text (for ``openai``, the text that they are).
        start: where ``raw`` begins in the text.
    """

    name: str
    arguments: dict[str, Any] | None
    raw: str
    error: str | None = None
    arguments_raw: str = ""
    start: int = 0


_READERS: dict[str, Callable[[str], list[Found]]] = {
    "openai": readers.read_openai,
    "hermes": readers.read_hermes,
    "qwen": readers.read_qwen,
    "llama": readers.read_llama,
    "mistral": readers.read_mistral,
    "xml": read_xml,
    "pythonic": read_pythonic,
}
FORMATS = tuple(_READERS)


def parse_tool_calls(text: str, format: str, tools: Sequence[Tool] = ()) -> tuple[ToolCall, ...]:
    """Return the calls of one answer, in order; nothing for an answer without any.

    A call that cannot be read comes back too, with ``error``. What the model only thought of, between
    think tags, is no call.

    Args:
        text: the answer, without its end token.
        format: one of `FORMATS`.
        tools: those there are. With them, a call of another tool or with wrong arguments has an error, and
            the values of ``xml``, which are all text, get the types of the schema.

    Raises:
        UnknownName: no such format. The text itself never raises.

    Example:
        >>> [call] = parse_tool_calls('<tool_call>{"name": "f", "arguments": {"x":1}}</tool_call>', "hermes")
        >>> call.name, call.arguments, call.arguments_raw
        ('f', {'x': 1}, '{"x":1}')
    """
    if format not in _READERS:
        raise UnknownName("format of tool calls", format, FORMATS)
    start, found = _behind_thought(text, _READERS[format])
    calls = [
        ToolCall(
            item.name,
            item.arguments,
            text[start + item.start : start + item.end],
            item.error,
            item.arguments_raw,
            start + item.start,
        )
        for item in found
    ]
    return tuple(_checked(call, tools, format) for call in calls) if tools else tuple(calls)


def _behind_thought(text: str, read: Callable[[str], list[Found]]) -> tuple[int, list[Found]]:
    """Read what follows the thought; an answer may begin inside one that its prompt has opened."""
    if text.lstrip().startswith(_OPEN):
        end = text.find(_CLOSE)
        if end < 0:
            return len(text), []
        return end + len(_CLOSE), read(text[end + len(_CLOSE) :])
    found, end = read(text), text.find(_CLOSE)
    if end < 0 or any(item.error is None and item.start < end < item.end for item in found):
        return 0, found  # a close tag inside a whole call is an argument's text
    return end + len(_CLOSE), read(text[end + len(_CLOSE) :])


def _checked(call: ToolCall, tools: Sequence[Tool], format: str) -> ToolCall:
    """Hold a call against the tools that there are."""
    if call.error is not None or call.arguments is None:
        return call
    tool = next((tool for tool in tools if tool.name == call.name), None)
    if tool is None:
        known = ", ".join(tool.name for tool in tools)
        return replace(call, error=f"there is no tool {call.name!r}; the tools are {known}")
    if format in ("xml", "qwen"):
        arguments = typed(call.arguments, call.raw, tool.parameters)
        call = replace(call, arguments=arguments)
    complaint = tool.complaint(call.arguments or {})
    return call if complaint is None else replace(call, error=f"the arguments do not fit: {complaint}")
