"""Dialogues with tools: a turn calls some of them, and a turn without a call is the final answer."""

from __future__ import annotations

from typing import Any

from rollwright.envs.api import Observation
from rollwright.envs.tool_calls import ToolCall, parse_tool_calls
from rollwright.envs.tool_text import render_result, render_tools
from rollwright.envs.tools import Tool

_MOST_CALLS = 16  # in one turn; a model that repeats itself writes hundreds


class ToolError(Exception):
    """A tool cannot do what it was asked to. The message goes to the model; the episode goes on."""


class ToolEnvironment:
    """Base of environments with tools: give it ``tools``, `start`, `call` and `finish`.

    The calls of a turn are carried out in order. A call that cannot be read, names no tool or has wrong
    arguments is answered with what is wrong, and changes nothing. What `call` raises, `ToolError` apart,
    is a failure of the environment.

    Attributes:
        tools: what may be called.
        tool_format: how, one of `rollwright.envs.FORMATS`.
    """

    tools: tuple[Tool, ...] = ()
    tool_format = "hermes"
    forking = "copy"

    def start(self, seed: int) -> str:
        """Begin the episode and return its question; the list of tools goes before it."""
        raise NotImplementedError

    def call(self, tool: Tool, arguments: dict[str, Any]) -> str:
        """Carry out one call, with arguments that fit the tool's schema, and return its answer.

        Raises:
            ToolError: in words for the model.
        """
        raise NotImplementedError

    def finish(self, answer: str) -> float | None:
        """Return the reward for the final answer, None for not scored."""
        return None

    def reset(self, seed: int) -> str:
        question = self.start(seed)
        return f"{render_tools(self.tools, self.tool_format)}\n{question}\n"

    def step(self, turn: str) -> Observation:
        calls = parse_tool_calls(turn, self.tool_format, self.tools)
        if not calls:
            return Observation("", terminated=True, reward=self.finish(turn))
        texts = [self._answer(call, number) for number, call in enumerate(calls)]
        return Observation("".join(texts))

    def _answer(self, call: ToolCall, number: int) -> str:
        if number >= _MOST_CALLS:
            said = f"error: not carried out; a turn may have {_MOST_CALLS} calls"
        elif call.error is not None or call.arguments is None:
            said = f"error: {call.error}"
        else:
            try:
                said = self.call(next(tool for tool in self.tools if tool.name == call.name), call.arguments)
            except ToolError as error:
                said = f"error: {error}"
        return render_result(call, said, self.tool_format)
