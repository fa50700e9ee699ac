"""`rollwright check`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from rich.console import Console
from rich.text import Text

from rollwright.errors import ConfigError, DataError

if TYPE_CHECKING:
    from rollwright.check.run import Verdict
    from rollwright.check.source import Source


def check(
    dump: Path,
    /,
    *,
    model: Path | None = None,
    bos: int | None = None,
    eos: str = "",
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Prove a dump of rollouts right, or say where it is wrong and what it cannot tell.

    Exit code 0: nothing is refuted. 1: something is. 2: the dump cannot be read.

    For example:

    `rollwright check runs/demo`

    `rollwright check runs/demo --model runs/demo/checkpoints/v00000002 --json`

    Args:
        dump: A run folder, one of its shards, or a `.jsonl` of `rollwright import` or `export --to jsonl`.
        model: A checkpoint of the run, to compare the logprobs of the tokens that this version sampled.
        bos: The begin token's id; taken from the run's checkpoint without it.
        eos: Ids of the end tokens, with commas; taken from the run's checkpoint without it.
        as_json: Print JSON instead, for programs.
    """
    from rollwright.check.run import check_source, context_of
    from rollwright.check.source import open_source

    try:
        ids = frozenset(int(word) for word in eos.split(",") if word.strip())
    except ValueError as error:
        raise ConfigError(f"--eos {eos!r}: expected numbers with commas between them") from error
    try:
        source = open_source(dump)
        verdicts = check_source(source, context_of(source, bos, ids, model))
    except DataError as error:
        raise ConfigError(str(error)) from error
    if as_json:
        _print_json(source, verdicts)
    else:
        _print(Console(), source, verdicts)
    return 1 if any(verdict.word == "refuted" for verdict in verdicts) else 0


def _print_json(source: Source, verdicts: list[Verdict]) -> None:
    from rollwright.store.strict import dumps

    found = [
        {
            "invariant": one.invariant,
            "verdict": one.word,
            "groups": one.num_groups,
            "wrong": one.num_wrong,
            "first": one.first,
            "missing": one.missing,
        }
        for one in verdicts
    ]
    facts = {"dump": str(source.path), "from": source.came_from, "lacks": source.lacks, "verdicts": found}
    sys.stdout.write(dumps(facts)[0] + "\n")


def _print(console: Console, source: Source, verdicts: list[Verdict]) -> None:
    from rollwright.check.invariants import INVARIANTS
    from rollwright.cli.report import table_of

    table = table_of("invariant", "", "what it says, what is wrong, or what is missing")
    for one in verdicts:
        text = (INVARIANTS[one.invariant].__doc__ or "").split("\n")[0]
        word = one.word
        if one.first is not None:
            where = f"{one.first['file']}, row {one.first['row']}"
            text = f"{where}: {one.first['problem']} ({one.num_wrong} in all)"
        elif word == "unknown":
            text = f"missing: {one.missing}"
            word = "cannot be told"
        table.add_row(one.invariant.replace("_", " "), word, Text(text))
    console.print(table)
    if source.came_from:
        console.print(f"imported from {source.came_from}; it cannot hold:", highlight=False)
        for name, why in source.lacks.items():
            console.print(f"  {name}: {why}", highlight=False, markup=False, soft_wrap=True)
