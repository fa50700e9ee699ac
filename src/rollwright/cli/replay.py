"""`rollwright replay`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from rich.console import Console
from rich.text import Text

from rollwright.cli.report import heading, table_of
from rollwright.cli.text import duration, number
from rollwright.store.strict import dumps

if TYPE_CHECKING:
    from rollwright.lab.state import State
    from rollwright.store.replay import ReplayReport

_GROUP = ("group", "granted", "scored", "failed", "asks", "tokens", "verdict")
_ASK = ("ask", "kind", "state", "tokens", "versions", "submits")


def replay(
    run: Path,
    /,
    *,
    until: int | None = None,
    num: int = 12,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Fold a run's journal again and prove that every decision comes out the same.

    The journal holds every event with the decisions that answered it. Replaying gives the events to a
    fresh runner and compares its decisions byte by byte; no model is needed. If one differs, its record
    and the first difference are shown and the exit code is 1.

    For example:

    `rollwright replay runs/first`

    `rollwright replay runs/first --until 10`

    Args:
        run: The run folder, of a run that goes on, ended or crashed.
        until: Stop once so many steps are done (0: at the first decision) and print the state: phase,
            groups, asks, ledger, and what is known of the tasks.
        num: How many groups, asks and tasks to print.
        as_json: Print the outcome, and with --until the state, as one JSON object instead, for programs.
    """
    from rollwright.lab.replay import replay as fold
    from rollwright.store.run import RunFolder

    console = Console(stderr=as_json)
    with console.status("folding the journal") as status:
        folder = RunFolder.view(run)
        found = fold(folder, lambda done: status.update(f"folding the journal: {done:,} records"), until)
    if as_json:
        _print_json(found)
    else:
        _print(console, found, num)
    return 0 if found.is_same else 1


def _print_json(found: ReplayReport) -> None:
    import dataclasses

    import msgspec

    from rollwright.lab.state import state_of

    facts = {
        "is_same": found.is_same,
        "num_records": found.num_records,
        "num_commands": found.num_commands,
        "difference": None if found.difference is None else dataclasses.asdict(found.difference),
        "has_reached": found.has_reached,
        "state": None if found.until is None else msgspec.to_builtins(state_of(found.runner)),
    }
    text, _ = dumps(facts)
    sys.stdout.write(text + "\n")


def _print(console: Console, found: ReplayReport, num: int) -> None:
    from rollwright.lab.state import state_of
    from rollwright.runner.state import Phase

    runner = found.runner
    same = f"{number(found.num_records)} events gave the same {number(found.num_commands)} decisions"
    if found.difference is not None:
        console.print(Text(f"{same}; then they differ.\n{found.difference}"), soft_wrap=True)
        return
    where = f"is in step {runner.step_number + 1} ({runner.phase.value})"
    if runner.phase is Phase.DONE:
        where = f"is done after {runner.step_number} steps"
    console.print(
        f"{same}, byte for byte. The run {where}, at version {runner.version}, with "
        f"{number(runner.ledger.spent['sampled_tokens'])} tokens sampled.",
        soft_wrap=True,
        highlight=False,
    )
    if found.until is not None:
        if not found.has_reached:
            console.print(f"The journal ends before {found.until} steps are done.", highlight=False)
        print_state(console, state_of(runner), num)


def print_state(console: Console, state: State, num: int) -> None:
    """Print a runner's state."""
    heading(console, f"Phase {state.phase}, {duration(state.seconds)} into the run")
    for wait in state.waits:
        console.print(Text(f"  waits for {wait.what}: {len(wait.asks) or 1}, since {duration(wait.since)}"))
    _rows(console, "open steps (from 0)", state.steps, num, ("step", "phase", "round", "groups"))
    _rows(console, "groups", state.groups, num, _GROUP)
    _rows(console, "open asks", state.asks, num, _ASK)
    heading(console, "Ledger")
    table = table_of("what", ">amount")
    for amounts in (state.ledger.spent, state.ledger.fates, state.ledger.reasons):
        for name, amount in amounts.items():
            if amount:
                table.add_row(Text(name.replace("_", " ")), number(amount))
    console.print(table)
    heading(console, f"{number(len(state.tasks))} tasks visited")
    names = list(next(iter(state.tasks.values()), {}))
    table = table_of("task", *(f">{name.replace('_', ' ')}" for name in names))
    for task, history in list(state.tasks.items())[:num]:
        table.add_row(Text(task), *(_cell(history[name]) for name in names))
    console.print(table)


def _rows(console: Console, title: str, rows: list, num: int, names: tuple[str, ...]) -> None:  # type: ignore[type-arg]
    heading(console, f"{number(len(rows))} {title}")
    if rows:
        table = table_of(*(name.replace("_", " ") for name in names))
        for row in rows[:num]:
            table.add_row(*(_cell(getattr(row, name)) for name in names))
        console.print(table)


def _cell(value: object) -> Text:
    if isinstance(value, bool):
        return Text("yes" if value else "no")
    if isinstance(value, (int, float)) or value is None:
        return Text(number(value))
    return Text(", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value))
