"""`rollwright replay`."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from rollwright.cli.text import number


def replay(run: Path, /) -> int:
    """Fold a run's journal again and prove that every decision comes out the same.

    The journal holds every event with the decisions that answered it. Replaying gives the events to a
    fresh runner and compares its decisions byte by byte; no model is needed. If one differs, its record
    is named and the exit code is 1.

    Example: `rollwright replay runs/first`

    Args:
        run: The run folder, of a run that goes on, ended or crashed.
    """
    from rollwright.lab.replay import replay as fold
    from rollwright.runner.state import Phase
    from rollwright.store.run import RunFolder

    console = Console()
    with console.status("folding the journal") as status:
        found = fold(RunFolder.view(run), lambda num: status.update(f"folding the journal: {num:,} records"))
    runner = found.runner
    where = f"is in step {runner.step_number + 1} ({runner.phase.value})"
    if runner.phase is Phase.DONE:
        where = f"is done after {runner.step_number} steps"
    console.print(
        f"{number(found.num_records)} events gave the same {number(found.num_commands)} decisions, byte for "
        f"byte. The run {where}, at version {runner.version}, with "
        f"{number(runner.ledger.spent['sampled_tokens'])} tokens sampled.",
        soft_wrap=True,
        highlight=False,
    )
    return 0
