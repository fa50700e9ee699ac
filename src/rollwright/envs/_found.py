"""What a reader of tool calls hands back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Found:
    """A call at ``text[start:end]``; see `rollwright.envs.tool_calls.ToolCall`."""

    start: int
    end: int
    name: str = ""
    arguments: dict[str, Any] | None = None
    arguments_raw: str = ""
    error: str | None = None
