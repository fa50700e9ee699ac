"""How a program ended, from what was seen of it."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass, field
from typing import Any

from rollwright.grade.sandbox import values
from rollwright.grade.sandbox.program import Ending, Limits, Outcome, Program


@dataclass(slots=True)
class Run:
    """What is known of a program while it runs."""

    program: Program
    limits: Limits
    output: bytearray = field(default_factory=bytearray)
    errors: bytearray = field(default_factory=bytearray)
    number: str = ""  # what the value must carry; empty until the code has been loaded
    began: float | None = None
    result: dict[str, Any] | None = None  # the first word that decides
    is_killed: bool = False


def outcome_of(run: Run, report: dict[str, Any]) -> Outcome:
    """Put together how a program ended.

    Args:
        run: what was seen of it.
        report: the last word of its first process.
    """
    ending, detail, value, code = _judged(run, report)
    wall = time.monotonic() - run.began if run.began else 0.0
    texts = [bytes(part).decode("utf-8", "replace") for part in (run.output, run.errors)]
    return Outcome(ending, detail, texts[0], texts[1], value, code, wall)


def _judged(run: Run, report: dict[str, Any]) -> tuple[Ending, str, Any, int | None]:
    if "failed" in report:
        return Ending.INFRASTRUCTURE, str(report["failed"]), None, None
    if "hit" in report:
        return Ending(report["hit"]), str(report["detail"]), None, None
    word = run.result or {}
    kind, detail = word.get("kind"), str(word.get("detail", ""))
    if kind == "failed" and run.began is None:
        return Ending.INFRASTRUCTURE, detail, None, None
    if kind == "timeout":
        return Ending.TIMEOUT, f"still running after {run.limits.timeout_s:g} s", None, None
    if kind == "output":
        return Ending.OUTPUT, detail, None, None
    if kind == "value":
        return _value(word)
    if kind == "done" and run.program.call is None:
        return Ending.DONE, "", None, 0
    if kind == "exited":
        return _exited(run, word.get("code"))
    if kind == "raised":
        return _raised(word)
    if kind is not None:
        return (
            Ending.EXITED,
            f"wrote something else on the result's channel: {detail or kind!r}"[:300],
            None,
            -1,
        )
    return _left(report, run)


def _value(word: dict[str, Any]) -> tuple[Ending, str, Any, int | None]:
    try:
        return Ending.DONE, "", values.decode(word.get("value")), 0
    except (ValueError, RecursionError) as error:
        return Ending.RAISED, f"the result cannot be read: {error}", None, None


def _exited(run: Run, code: Any) -> tuple[Ending, str, Any, int | None]:
    if code == 0 and run.program.call is None:
        return Ending.DONE, "", None, 0
    code = code if isinstance(code, int) else -1
    return Ending.EXITED, f"left with exit code {code}", None, code


def _raised(word: dict[str, Any]) -> tuple[Ending, str, Any, int | None]:
    line = word.get("line")
    text = str(word.get("text", ""))[:500] + (f" (line {line})" if isinstance(line, int) else "")
    limit = word.get("limit")
    ending = Ending(limit) if limit in ("memory", "files", "processes") else Ending.RAISED
    return ending, text, None, None


def _left(report: dict[str, Any], run: Run) -> tuple[Ending, str, Any, int | None]:
    """Judge by the wait status alone: the program's process said nothing."""
    if run.began is None or "status" not in report:
        return Ending.INFRASTRUCTURE, "the program's first process ended without a word", None, None
    code = os.waitstatus_to_exitcode(report["status"])
    if code >= 0:
        return Ending.EXITED, f"left with exit code {code} before its end", None, code
    if -code == signal.SIGXCPU:
        return Ending.TIMEOUT, "over its processor time", None, None
    if -code == signal.SIGXFSZ:
        return Ending.FILES, "a file over the limit", None, None
    return Ending.CRASHED, f"ended by {signal.Signals(-code).name}", None, None
