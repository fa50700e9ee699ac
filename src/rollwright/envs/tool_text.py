"""What a model is told of tools, and what their answers look like, in each format of `tool_calls`.

A chat template writes these by itself when it is given ``tools``. This is for models without one, for
demonstrations and for tests: calls of a model are never written again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rollwright.envs.tool_calls import FORMATS, ToolCall
from rollwright.envs.tools import Tool
from rollwright.errors import UnknownName

Arguments = Mapping[str, Any]


def render_tools(tools: Sequence[Tool], format: str) -> str:
    """Return the part of a system prompt that lists the tools and shows how one is called.

    Raises:
        UnknownName: no such format.
    """
    example = render_call("NAME", {"ARGUMENT": "VALUE"}, format)
    listed = "\n".join(_dumps(tool.as_openai()["function"]) for tool in tools)
    return f"You may call tools. They are, one a line:\n{listed}\nA call looks like this:\n{example}\n"


def render_call(name: str, arguments: Arguments, format: str) -> str:
    """Return a call as a model writes it; `parse_tool_calls` reads the same name and arguments back.

    Raises:
        UnknownName: no such format.
    """
    if format not in _CALLS:
        raise UnknownName("format of tool calls", format, FORMATS)
    return _CALLS[format](name, arguments)


def render_result(call: ToolCall, text: str, format: str) -> str:
    """Return a tool's answer, or the complaint about a call, as the model reads it.

    Raises:
        UnknownName: no such format.
    """
    if format not in _CALLS:
        raise UnknownName("format of tool calls", format, FORMATS)
    if format in ("hermes", "qwen"):
        return f"<tool_response>\n{text}\n</tool_response>\n"
    if format == "mistral":
        return f"[TOOL_RESULTS]{_dumps({'name': call.name, 'content': text})}[/TOOL_RESULTS]"
    return f"{text}\n"


def _dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _openai(name: str, arguments: Arguments) -> str:
    return _dumps({"tool_calls": [{"function": {"name": name, "arguments": _dumps(arguments)}}]})


def _hermes(name: str, arguments: Arguments) -> str:
    return f"<tool_call>\n{_dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def _llama(name: str, arguments: Arguments) -> str:
    return _dumps({"name": name, "parameters": arguments})


def _mistral(name: str, arguments: Arguments) -> str:
    return f"[TOOL_CALLS]{_dumps([{'name': name, 'arguments': arguments}])}"


def _xml(name: str, arguments: Arguments) -> str:
    texts = {key: value if isinstance(value, str) else _dumps(value) for key, value in arguments.items()}
    lines = [f"<parameter={key}>\n{text}\n</parameter>\n" for key, text in texts.items()]
    return f"<function={name}>\n{''.join(lines)}</function>"


def _pythonic(name: str, arguments: Arguments) -> str:
    return f"[{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})]"


_CALLS: dict[str, Callable[[str, Arguments], str]] = {
    "openai": _openai,
    "hermes": _hermes,
    "qwen": _hermes,
    "llama": _llama,
    "mistral": _mistral,
    "xml": _xml,
    "pythonic": _pythonic,
}
