"""`rollwright show`."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from cyclopts import Parameter
from rich.console import Console

from rollwright.store.strict import dumps


def show(
    run: Path,
    /,
    *,
    png: Path | None = None,
    rollouts: int = 3,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Show a run: success, where the tokens went, lengths, single rollouts, bias and idle time.

    It reads the run folder only, so it works while the run goes on, after it ended, and after it
    crashed. What the Parquet shards do not hold yet comes from the journal.

    For example:

    `rollwright show runs/first`

    `rollwright show runs/first --png first.png`

    `rollwright show runs/first --json`

    Args:
        run: The run folder.
        png: Draw success, tokens by fate and lengths into this picture too.
        rollouts: How many of the longest and of the slowest rollouts to print.
        as_json: Print everything as one JSON object instead, for programs.
    """
    from rollwright.cli.report import print_summary
    from rollwright.cli.selection import print_bias, print_idle
    from rollwright.lab.summary import summarise

    summary = summarise(run, rollouts)
    if png is not None:
        from rollwright.lab.plots import draw

        draw(summary, png)
    if as_json:
        text, _ = dumps(_plain(dataclasses.asdict(summary)))
        sys.stdout.write(text + "\n")
        return 0
    console = Console()
    print_summary(console, summary)
    if summary.bias is not None and summary.idle is not None:
        print_bias(console, summary.bias)
        print_idle(console, summary.idle)
    if png is not None:
        console.print(f"\npicture: {png}", soft_wrap=True, highlight=False, markup=False)
    return 0


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return (
        str(value) if isinstance(value, Path) else value.tolist() if isinstance(value, np.ndarray) else value
    )
