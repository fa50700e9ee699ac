"""`rollwright why`."""

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
    from rollwright.lab.why import Answer
    from rollwright.runner import Wait


def why(
    run: Path,
    /,
    *,
    num: int = 8,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Say what a run waits for, since when, and what happens at which deadline; if it is over, why.

    It reads the run folder only and takes no lock, so it works while the run goes on, when it stands, after
    it ended and after it was killed.

    For example:

    `rollwright why runs/first`

    `rollwright why runs/first --json`

    Args:
        run: The run folder.
        num: How many of the oldest open asks to print.
        as_json: Print everything as one JSON object instead, for programs.
    """
    import msgspec

    from rollwright.lab.why import explain

    answer = explain(run)
    if as_json:
        text, _ = dumps(msgspec.to_builtins(answer))
        sys.stdout.write(text + "\n")
        return 0
    console = Console()
    for line in lines(answer):
        console.print(Text(line), soft_wrap=True)
    print_asks(console, answer, num)
    for note in answer.notes:
        console.print(Text(f"note: {note}", style="yellow"), soft_wrap=True)
    return 0


def lines(answer: Answer) -> list[str]:
    """Return the answer in sentences."""
    from rollwright.lab.doing import text_of

    found = [f"{answer.path}: {_process(answer)}"]
    if answer.phase == "done":
        found.append(f"It ended in version {answer.version}: {answer.end}.")
        return found
    step = f"step {answer.step} of {answer.num_steps}" if answer.step else "no step yet"
    verb = "is" if answer.pid else "was"
    since = duration(max(0.0, answer.seconds - answer.phase_since))
    where = f"It {verb} in {step}, version {answer.version}, phase {answer.phase}"
    found.append(f"{where} for {since}: {answer.phase_text}.")
    for wait, follows in zip(answer.waits, answer.follows, strict=True):
        what, age = text_of(wait), duration(max(0.0, answer.seconds - wait.since))
        found.append(f"  step {wait.step + 1}: {what}, for {age}; {_deadline(answer, wait)}: {follows}.")
    if answer.silence is not None:
        found.append(f"Its last event was {answer.last_event}, {duration(answer.silence)} ago.")
    if answer.end is not None:
        found.append(f"It ends: {answer.end}.")
    found += [f"In step {answer.step - 1}, {what}" for what in answer.failures]
    return list(dict.fromkeys(found))


def _process(answer: Answer) -> str:
    pid = answer.pid
    ways = {
        "running": f"running as pid {pid}",
        "suspended": f"suspended: pid {pid} was sent a stop signal; `kill -CONT {pid}` lets it go on",
        "elsewhere": f"written by pid {pid} on {answer.host}; from here nobody can see whether that lives",
        "finished": "finished",
        "stopped": "stopped: no process writes it, and it recorded no end, so it was stopped, killed or "
        f"crashed; go on with: rollwright train --resume {answer.path}",
    }
    return ways[answer.state]


def _deadline(answer: Answer, wait: Wait) -> str:
    if wait.deadline is None:
        return "no deadline"
    if not answer.pid:
        return "a new deadline when the run goes on, and then"
    left = wait.deadline - answer.seconds
    if left >= 0:
        return f"in {duration(left)}"
    return (
        f"the deadline passed {duration(-left)} ago, but a thread looks at deadlines between two pieces of "
        "work, and this one takes long; then"
    )


def print_asks(console: Console, answer: Answer, num: int) -> None:
    """Print the oldest open asks; again: how often one was submitted again."""
    if not answer.asks or answer.phase == "done":
        return
    oldest = answer.asks[:num]
    heading(console, f"The oldest of {number(len(answer.asks))} open asks")
    table = table_of("ask", "what", ">tokens", ">versions", ">again", ">age")
    for row in oldest:
        table.add_row(
            Text(row.ask),
            row.kind if row.state == "flying" else f"{row.kind} ({row.state})",
            number(row.tokens),
            ", ".join(map(str, row.versions)) or "-",
            number(row.submits),
            duration(answer.seconds - row.since),
        )
    console.print(table)
