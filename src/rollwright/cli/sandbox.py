"""`rollwright sandbox`."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter
from rich.console import Console
from rich.text import Text

from rollwright.errors import ConfigError

if TYPE_CHECKING:
    from rollwright.grade.sandbox.program import Outcome, Protection


def sandbox(
    action: Literal["run"] | None = None,
    file: Path | None = None,
    /,
    *,
    stdin: Path | None = None,
    timeout: float = 5.0,
    memory_mb: int = 512,
    output_kb: int = 1024,
    processes: int = 32,
    file_mb: int = 32,
    isolation: Literal["auto", "namespaces", "plain"] = "auto",
    require: tuple[str, ...] = (),
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Say which protections the sandbox has on this machine, or run a Python file in it.

    For example:

    `rollwright sandbox`

    `rollwright sandbox run program.py --timeout 2 --require network`

    Args:
        action: `run`, to run a file.
        file: The Python file.
        stdin: A file that the program reads as its input.
        timeout: Seconds, by our clock.
        memory_mb: MiB of all its processes together, and of each one's address space.
        output_kb: KiB of its output, and as much of its errors.
        processes: Processes and threads at one time.
        file_mb: MiB of all its files together.
        isolation: `namespaces`, `plain` (limits, Landlock and a filter of system calls), or what can be had.
        require: Protections without which nothing is run; once for each.
        as_json: Print JSON instead, for programs.
    """
    from rollwright.grade.sandbox.pool import Sandbox
    from rollwright.grade.sandbox.program import Limits, Program

    if (action is None) != (file is None):
        raise ConfigError("`rollwright sandbox run` needs a file: rollwright sandbox run FILE")
    limits = Limits(timeout, memory_mb, output_kb, processes, file_mb)
    program = Program(_text(file), _text(stdin) if stdin else "") if file else None
    with Sandbox(1, limits, isolation, require) as box:
        if program is not None:
            return _print_outcome(box.run(program), as_json)
        _print_protections(box.protections(), as_json)
    return 0


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} cannot be read as text: {error}") from error


def _print_protections(found: dict[str, Protection], as_json: bool) -> None:
    from rollwright.cli.report import table_of
    from rollwright.store.strict import dumps

    if as_json:
        print(dumps({name: dataclasses.asdict(one) for name, one in found.items()})[0])
        return
    table = table_of("protection", "on", "how")
    for name, one in found.items():
        table.add_row(
            Text(name, style="bold"), "yes" if one.is_on else Text("NO", style="red"), Text(one.how)
        )
    Console().print(table)


def _print_outcome(outcome: Outcome, as_json: bool) -> int:
    from rollwright.store.strict import dumps

    if as_json:
        print(dumps(dataclasses.asdict(outcome))[0])
    else:
        sys.stdout.write(outcome.stdout)
        sys.stdout.flush()
        sys.stderr.write(outcome.stderr)
        detail = f": {outcome.detail}" if outcome.detail else ""
        print(f"rollwright: {outcome.ending}{detail}, after {outcome.wall_s:.2f} s", file=sys.stderr)
    return 0 if outcome.ending == "done" else 1
