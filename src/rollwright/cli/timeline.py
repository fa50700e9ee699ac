"""`rollwright timeline`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from rich.console import Console
from rich.text import Text

from rollwright.cli.text import duration, number, percent
from rollwright.store.strict import dumps

if TYPE_CHECKING:
    from rollwright.lab.timeline import Idle


def timeline(
    run: Path,
    /,
    *,
    out: Path | None = None,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Say how idle learner and engine were, and draw who worked when.

    A trace (`.json`, `.json.gz`) opens in Perfetto (https://ui.perfetto.dev, which reads it in the browser)
    and has a track for each request of the engine's batch, for graders, environments, the learner and every
    wait, with versions and counters. Any other name (`.png`, `.svg`, `.pdf`) becomes a picture.

    For example:

    `rollwright timeline runs/first`

    `rollwright timeline runs/first --out trace.json`

    `rollwright timeline runs/first --out timeline.png`

    Args:
        run: The run folder.
        out: Where to put the trace or the picture.
        as_json: Print the idle shares as one JSON object instead, for programs.
    """
    import dataclasses

    from rollwright.lab.activity import read_activity
    from rollwright.lab.timeline import idle
    from rollwright.store.run import RunFolder

    folder = RunFolder.view(run)
    activity = read_activity(folder.journal_path)
    found = idle(activity)
    if out is not None:
        config = folder.config()
        title = f"{config.task} with {config.method}, seed {config.seed}"
        if {".json", ".gz"} & set(out.suffixes):
            from rollwright.lab.trace import write_trace as write
        else:
            from rollwright.lab.timeline_plot import draw_timeline as write
        write(activity, out, title)
    if as_json:
        text, _ = dumps(dataclasses.asdict(found))
        sys.stdout.write(text + "\n")
        return 0
    console = Console()
    for line in lines(found):
        console.print(Text(line), soft_wrap=True)
    if out is not None:
        console.print(f"written: {out}", soft_wrap=True, highlight=False, markup=False)
    return 0


def lines(found: Idle) -> list[str]:
    """Return the idle shares in sentences."""
    waits = {name: seconds for name, seconds in found.waits.items() if seconds > 0}
    what = ", ".join(f"{name} {number(round(seconds, 2))} s" for name, seconds in waits.items())
    by_policy = ", ".join(f"{name} {percent(share)}" for name, share in found.engine_idle_by_policy.items())
    policies = f" (by policy: {by_policy})" if len(found.engine_idle_by_policy) > 1 else ""
    return [
        f"{duration(found.seconds)} of the run: learner idle {percent(found.learner_idle)}, engine idle "
        f"{percent(found.engine_idle)}{policies}, both at work {percent(found.overlap)}, neither "
        f"{percent(found.both_idle)}",
        f"what was under way while neither worked: {what or 'that never happened'}",
        f"{number(round(found.in_flight_mean, 1))} requests in flight while the engine was busy; "
        f"{number(round(found.tokens_per_second, 1))} sampled tokens per second of the run, "
        f"{number(round(found.tokens_per_busy_second, 1))} while the engine was busy",
    ]
