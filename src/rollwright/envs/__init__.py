"""Environments: what one is, how it becomes a task, tools, and adapters for other packages'."""

from rollwright.envs.api import Environment, Observation
from rollwright.envs.signature import signature
from rollwright.envs.task import EnvTask, env_task
from rollwright.envs.tool_calls import FORMATS, ToolCall, parse_tool_calls
from rollwright.envs.tools import Effect, Tool

__all__ = [
    "FORMATS",
    "Effect",
    "EnvTask",
    "Environment",
    "Observation",
    "Tool",
    "ToolCall",
    "env_task",
    "parse_tool_calls",
    "signature",
]
