"""What a worker process does for reward functions: load one, once, and call it."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from rollwright.grade.reward.answers import Answer
from rollwright.grade.reward.conventions import Call, Convention, run
from rollwright.grade.reward.load import load_function

Source = tuple[str, str | bytes]  # ("file", "path.py:function") or ("pickle", the pickled function)


def ready() -> None:
    """Nothing to do: what this module imports is loaded before the first call's time begins."""


def call(
    source: Source,
    paths: Sequence[str],
    convention: Convention,
    calls: Sequence[Call],
    limit_s: float,
    conversational: bool | None,
) -> list[Answer]:
    """Call the function and return its answers, plain values only; see `run`.

    Args:
        source: where the function is.
        paths: places to import from that this process may lack.
    """
    sys.path.extend(path for path in paths if path not in sys.path)
    return run(_loaded(source, _stamp(source)), convention, calls, limit_s, conversational)


@cache
def _loaded(source: Source, stamp: int) -> Callable[..., Any]:
    kind, value = source
    return load_function(str(value)) if kind == "file" else pickle.loads(value)  # type: ignore[arg-type]


def _stamp(source: Source) -> int:
    """Return when the function's file was changed: an edited file is loaded again."""
    kind, value = source
    return Path(str(value).rpartition(":")[0]).stat().st_mtime_ns if kind == "file" else 0
