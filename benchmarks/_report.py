"""What every benchmark prints: its figures as lines, then one JSON object as the last line."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

Figure = float | int | str | bool | None
_OWN = {"name", "versions", "machine"}


def print_report(name: str, figures: Mapping[str, Figure], packages: tuple[str, ...] = ()) -> None:
    """Print the figures of a benchmark.

    The last line is ``{"name": ..., <figures>, "machine": {...}, "versions": {...}}``.

    Args:
        name: the file's name without ``.py``.
        figures: by name; times end in ``_s``, rates in ``_per_s``, ratios begin with ``ratio_``.
        packages: packages whose versions matter, beside Python, rollwright and numpy.

    Raises:
        ValueError: a figure has the name of one of the report's own keys.
    """
    if _OWN & figures.keys():
        raise ValueError(f"figures may not be named {sorted(_OWN & figures.keys())}")
    width = max(map(len, figures), default=0)
    for key, value in figures.items():
        print(f"{key:{width}}  {_plain(value)}")
    versions = {package: version(package) for package in ("rollwright", "numpy", *packages)}
    report = {
        "name": name,
        **{key: _rounded(value) for key, value in figures.items()},
        "machine": {"cpu": _cpu(), "cores": len(os.sched_getaffinity(0)), "system": platform.system()},
        "versions": {"python": platform.python_version(), **versions},
    }
    sys.stdout.flush()
    print(json.dumps(report))


def _rounded(value: Figure) -> Figure:
    return float(f"{value:.5g}") if isinstance(value, float) else value


def _plain(value: Figure) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{_rounded(value):,}"


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown"
    )
