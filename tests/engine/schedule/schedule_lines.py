"""Counts the lines of Python that the scheduler runs: what loops per token or per row shows in it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import rollwright.engine.schedule

SOURCE = str(Path(rollwright.engine.schedule.__file__).parent)


def num_lines(call: Callable[[], Any]) -> int:
    """Return how many lines of the scheduler's own code a call runs."""
    num = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal num
        if not frame.f_code.co_filename.startswith(SOURCE):
            return None
        num += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return num
