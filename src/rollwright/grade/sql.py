"""SQL answers: the query's rows against the gold query's, in duckdb, in a worker process."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from rollwright.grade.answers.thinking import after_thoughts
from rollwright.grade.math.grader import verdict_of
from rollwright.grade.pool import Pool, shared_pool
from rollwright.grade.verdict import Status, Verdict

GRADER = "sql/1"
MAX_ROWS = 100_000
_FENCE = re.compile(r"```(?:sql|duckdb)?[ \t]*\n(.*?)\n?```", re.DOTALL | re.IGNORECASE)
Row = tuple[Any, ...]


def find_query(response: str) -> str | None:
    """Return a response's query: the last fenced block, or all after the thoughts; None if there is none."""
    start, is_cut = after_thoughts(response)
    blocks = list(_FENCE.finditer(response, start))
    query = (blocks[-1][1] if blocks else response[start:]).strip()
    return None if is_cut or not query else query


def same_rows(answer: Sequence[Row], gold: Sequence[Row], is_ordered: bool, rel_tol: float) -> bool:
    """Whether two results hold the same rows. Duplicates count, NULL equals NULL and nothing else.

    Without order, both are sorted by the exact cells first and the floats last, then compared in pairs.
    """
    if len(answer) != len(gold):
        return False
    if not is_ordered:
        answer, gold = sorted(answer, key=_sort_key), sorted(gold, key=_sort_key)
    return all(
        len(x) == len(y) and all(_same_cell(a, b, rel_tol) for a, b in zip(x, y, strict=True))
        for x, y in zip(answer, gold, strict=True)
    )


def _is_number(cell: Any) -> bool:
    return isinstance(cell, int | float | Decimal) and not isinstance(cell, bool)


def _sort_key(row: Row) -> tuple[Any, ...]:
    exact = tuple((0, "") if _is_number(cell) else (1, f"{type(cell).__name__}:{cell!r}") for cell in row)
    return exact, tuple(_float(cell) if _is_number(cell) else 0.0 for cell in row)


def _float(cell: Any) -> float:
    value = float(cell)
    return math.inf if math.isnan(value) else value


def _same_cell(a: Any, b: Any, rel_tol: float) -> bool:
    if _is_number(a) and _is_number(b):
        if a == b:
            return True
        x, y = float(a), float(b)
        return (math.isnan(x) and math.isnan(y)) or math.isclose(x, y, rel_tol=rel_tol)
    if isinstance(a, date) and isinstance(b, date) and isinstance(a, datetime) != isinstance(b, datetime):
        return False
    return type(a) is type(b) and bool(a == b)


def run_pair(setup: str, answer: str, gold: str, is_ordered: bool, rel_tol: float) -> Verdict:
    """Run both queries, each in a fresh database without files or network, and compare; runs in a worker."""
    try:
        right = _rows(setup, gold)
    except Exception as error:  # duckdb has many kinds; all are the task's fault here
        return Verdict(None, Status.BAD_DATA, detail=f"the gold query or the set-up: {error}", grader=GRADER)
    try:
        rows = _rows(setup, answer)
    except Exception as error:  # the model's query failed
        return Verdict(0.0, Status.RUNTIME_ERROR, answer, str(error)[:500], grader=GRADER)
    same = same_rows(rows, right, is_ordered, rel_tol)
    detail = "" if same else f"{len(rows)} rows, expected {len(right)}"
    return Verdict(float(same), Status.RIGHT if same else Status.WRONG, answer, detail, grader=GRADER)


def _rows(setup: str, query: str) -> list[Row]:
    import duckdb

    with duckdb.connect(":memory:", config={"threads": "1", "enable_external_access": "false"}) as connection:
        connection.execute(setup)
        connection.execute("SET lock_configuration = true")
        rows = connection.execute(query).fetchmany(MAX_ROWS + 1)
    if len(rows) > MAX_ROWS:
        raise ValueError(f"more than {MAX_ROWS} rows")
    return rows


def grade_sql(
    response: str,
    gold: str,
    setup: str,
    is_ordered: bool = False,
    rel_tol: float = 1e-9,
    timeout_s: float = 10.0,
    pool: Pool | None = None,
) -> Verdict:
    """Grade a response's query by its result.

    Args:
        response: with the query, fenced or bare.
        gold: the right query.
        setup: statements that make the tables.
        is_ordered: whether the order of the rows counts.
        rel_tol: of numbers.
        timeout_s: for both queries together.
        pool: workers; None takes the process's own.
    """
    settings = {"is_ordered": str(is_ordered), "rel_tol": str(rel_tol)}
    query = find_query(response)
    if query is None:
        status = Status.TRUNCATED if after_thoughts(response)[1] else Status.NO_ANSWER
        return Verdict(0.0, status, detail="no query", grader=GRADER, settings=settings)
    jobs = [(setup, query, gold, is_ordered, rel_tol)]
    [outcome] = (pool or shared_pool()).map("rollwright.grade.sql:run_pair", jobs, timeout_s)
    return verdict_of(outcome, GRADER, settings)
