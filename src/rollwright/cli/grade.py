"""`rollwright grade`."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console
from rich.table import Table

from rollwright.cli.text import duration, percent
from rollwright.errors import ConfigError, DataError

if TYPE_CHECKING:
    from rollwright.grade.verdict import Verdict

_RESPONSE, _GOLD = ("response", "answer"), ("gold",)


def grade(
    file: Path,
    /,
    *,
    grader: Literal["math", "choice", "text", "numeric", "json"] = "math",
    out: Path | None = None,
    timeout: float = 5.0,
    workers: int | None = None,
    percent_sign: Literal["value", "number", "either"] = "value",
    units: Literal["optional", "required"] = "optional",
    rel_tol: float = 1e-6,
) -> int:
    """Grade responses in a file of JSON lines: a table of what came of them, and a verdict for each line.

    Each line is an object with `response` (or `answer`) and `gold`. What our side could not grade is counted
    on its own and has no score.

    For example:

    `rollwright grade answers.jsonl`

    `rollwright grade answers.jsonl --grader choice --out verdicts.jsonl`

    Args:
        file: JSON lines with `response` (or `answer`) and `gold`.
        grader: How answers are compared.
        out: Where the verdicts go, a JSON object for each line; nowhere without it.
        timeout: Seconds for one math answer; its worker is killed after that.
        workers: Worker processes for math; one per core without it.
        percent_sign: Of math: 50% is 1/2 (`value`), 50 (`number`), or `either`.
        units: Of math: whether a unit may be left out.
        rel_tol: Of math and numeric: how far a rounded decimal may be off.
    """
    if timeout <= 0 or (workers is not None and workers < 1):
        raise ConfigError(f"--timeout {timeout}, --workers {workers}: expected more than 0 and at least 1")
    pairs = read_pairs(file)
    start = time.monotonic()
    if grader == "math":
        verdicts = _math(
            pairs, timeout, workers, {"percent": percent_sign, "units": units, "rel_tol": rel_tol}
        )
    else:
        one = _graders(rel_tol)[grader]
        verdicts = [one(response, gold) for response, gold in pairs]
    seconds = time.monotonic() - start
    if out is not None:
        write_verdicts(out, verdicts)
    _print(Console(), file, grader, verdicts, seconds)
    return 0


def read_pairs(file: Path) -> list[tuple[str, str]]:
    """Return (response, gold) of each line.

    Raises:
        ConfigError: there is no such file.
        DataError: a line is not an object with both fields; the message names the line.
    """
    from rollwright.grade.structured import read_json

    if not file.is_file():
        raise ConfigError(f"no file {file}; give a file of JSON lines with 'response' and 'gold'")
    pairs = []
    try:
        lines = file.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise DataError(f"{file} is no UTF-8 text ({error}); expected JSON lines in UTF-8") from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = read_json(line)
        except ValueError as error:
            raise DataError(
                f"{file}, line {number} is not JSON ({error}); expected one object a line"
            ) from error
        if not isinstance(row, dict):
            raise DataError(f"{file}, line {number} is a {type(row).__name__}; expected an object")
        where = f"{file}, line {number}"
        pairs.append((_field(row, _RESPONSE, where), _field(row, _GOLD, where)))
    if not pairs:
        raise DataError(f"{file} has no lines; expected JSON objects with 'response' and 'gold'")
    return pairs


def _field(row: Mapping[str, Any], names: Sequence[str], where: str) -> str:
    for name in names:
        value = row.get(name)
        if isinstance(value, str):
            return value
        if isinstance(value, int | float) and not isinstance(value, bool):
            return repr(value)
        if value is not None:
            raise DataError(f"{where}: {name!r} is {value!r}; expected text or a number")
    raise DataError(
        f"{where}: no {' or '.join(map(repr, names))} in it; its fields are {', '.join(row) or 'none'}"
    )


def _math(
    pairs: list[tuple[str, str]], timeout: float, workers: int | None, settings: dict[str, Any]
) -> list[Verdict]:
    from rollwright.grade.math import MathSettings, grade_many
    from rollwright.grade.pool import Pool

    with Pool(workers) as pool:
        return grade_many(pairs, timeout, MathSettings(**settings), pool)


def _graders(rel_tol: float) -> dict[str, Callable[[str, str], Verdict]]:
    from rollwright.grade.choice import grade_choice
    from rollwright.grade.numeric import grade_numeric
    from rollwright.grade.structured import grade_json
    from rollwright.grade.text import grade_text

    return {
        "choice": grade_choice,
        "text": grade_text,
        "numeric": lambda response, gold: grade_numeric(response, gold, rel_tol),
        "json": grade_json,
    }


def write_verdicts(out: Path, verdicts: Sequence[Verdict]) -> None:
    """Write one JSON object for each verdict, in order."""
    from rollwright.store.strict import dumps

    try:
        out.write_text(
            "".join(dumps(dataclasses.asdict(one))[0] + "\n" for one in verdicts), encoding="utf-8"
        )
    except OSError as error:
        raise ConfigError(f"--out {out} cannot be written: {error.strerror}") from error


def _print(console: Console, file: Path, grader: str, verdicts: Sequence[Verdict], seconds: float) -> None:
    table = Table("status", "answers", "share", "score", box=None, header_style="bold")
    for column in table.columns[1:]:
        column.justify = "right"
    status_to_score = {str(one.status): one.score for one in verdicts}
    for status, num in Counter(str(one.status) for one in verdicts).most_common():
        score = status_to_score[status]
        table.add_row(
            status, f"{num:,}", percent(num / len(verdicts)), "none" if score is None else f"{score:g}"
        )
    console.print(table)
    scored = [one.score for one in verdicts if one.score is not None]
    mean = percent(sum(scored) / len(scored)) if scored else "-"
    console.print(
        f"{file.name}: mean score {mean} over {len(scored):,} scored, by {grader}, {duration(seconds)}"
    )
    if len(scored) < len(verdicts):
        print(f"{len(verdicts) - len(scored):,} answers have no score; --out says why", file=sys.stderr)
