"""Lists of rollouts and groups: a condition in SQL, an order, and pages of the result."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import duckdb
import numpy as np
from numpy.typing import NDArray

from rollwright.errors import ConfigError, UnknownName
from rollwright.view.database import AGE, Database

TABLES = ("rollouts", "groups")
MAX_PAGE = 1000
TIME_LIMIT_S = 20.0
_KEPT = 8  # results whose order is remembered, 8 bytes a row each


class QueryError(ConfigError):
    """A condition or an order that DuckDB cannot run, in DuckDB's words."""


class UnknownColumn(QueryError):
    """A condition that names what is not there, or compares what cannot be compared."""


class Lists:
    """Answers what a list asks for, page by page.

    Args:
        database: the run's.
        time_limit_s: seconds after which a query is given up.
        wait: waits until the database has been filled. Before, the run's own order can be seen already.
    """

    def __init__(
        self,
        database: Database,
        time_limit_s: float = TIME_LIMIT_S,
        wait: Callable[[], None] = lambda: None,
    ) -> None:
        self.database, self.time_limit_s, self.wait = database, time_limit_s, wait
        self._orders: OrderedDict[tuple[object, ...], NDArray[np.int64]] = OrderedDict()
        self._lock = threading.Lock()

    def columns(self, table: str) -> list[tuple[str, str]]:
        """Return (name, type) of a list's columns, in order, without its row number."""
        if _known_table(table) == "groups":
            self.wait()
            self.database.need("groups")
        rows = self.database.cursor().execute(f"DESCRIBE {table}").fetchall()
        return [(row[0], row[1]) for row in rows if row[0] != "id"]

    def page(
        self, table: str, where: str, sort: str, is_descending: bool, offset: int, limit: int
    ) -> dict[str, Any]:
        """Return rows ``offset`` to ``offset + limit`` of a list, and how many there are.

        Args:
            table: ``"rollouts"`` or ``"groups"``.
            where: a condition in DuckDB's SQL over the columns; empty is all. One on rollouts may name any
                column of the trajectories in docs/formats.md, texts and lists too, which reads the shards.
            sort: a column; empty is the order of the run.
            is_descending: largest first. What is null comes last either way.

        Returns:
            ``total``, ``columns``, ``rows`` (a list of values each) and the ``generation`` they are of.

        Raises:
            QueryError: the condition is not one, or takes longer than the limit.
        """
        table = _known_table(table)
        if not 0 <= limit <= MAX_PAGE or offset < 0:
            raise QueryError(
                f"offset {offset}, limit {limit}; expected 0 ≤ offset and 0 ≤ limit ≤ {MAX_PAGE}"
            )
        names = [name for name, _ in self.columns(table)]
        if sort and sort not in names:
            raise UnknownName("column", sort, names)
        if self.database.generation == 0 and table == "rollouts" and not (where.strip() or sort):
            total, found = self.database.first(offset, limit)
            return {"total": total, "columns": names, "rows": found, "generation": 1}
        self.wait()
        while True:
            generation = self.database.generation
            ids = self.order(table, where, sort, is_descending)
            rows = self._fetch(table, ids[offset : offset + limit])
            # A live run may have grown in between; ids of what no shard held may mean others by now.
            if rows is not None and generation == self.database.generation:
                return {"total": len(ids), "columns": names, "rows": rows, "generation": generation}

    def order(self, table: str, where: str, sort: str, is_descending: bool) -> NDArray[np.int64]:
        """Return the ids of a list's rows in its order; the last few orders are remembered."""
        key = (self.database.generation, table, where.strip(), sort, is_descending)
        with self._lock:
            if key in self._orders:
                self._orders.move_to_end(key)
                return self._orders[key]
        found = self._order(table, where.strip(), sort, is_descending)
        with self._lock:
            self._orders[key] = found
            while len(self._orders) > _KEPT:
                self._orders.popitem(last=False)
        return found

    def _order(self, table: str, where: str, sort: str, is_descending: bool) -> NDArray[np.int64]:
        condition = f"WHERE ({_condition(where)}\n)" if where else ""
        direction = "DESC" if is_descending else "ASC"
        order = f'ORDER BY "{sort}" {direction} NULLS LAST, id' if sort else "ORDER BY id"
        try:
            return self._ids(f"SELECT id FROM {table} {condition} {order}")
        except UnknownColumn:
            if table != "rollouts":
                raise
        self.database.need("trajectories")
        # The condition names a column that is not in memory: find the ids in the shards.
        wide = f"(SELECT *, {AGE}, row_number() OVER () - 1 AS id FROM trajectories)"
        return self._ids(f"SELECT id FROM rollouts WHERE id IN (SELECT id FROM {wide} {condition}) {order}")

    def _ids(self, query: str) -> NDArray[np.int64]:
        with self._limited() as cursor:
            return cursor.execute(query).fetchnumpy()["id"].astype(np.int64, copy=False)

    def _fetch(self, table: str, ids: NDArray[np.int64]) -> list[list[Any]] | None:
        """Return the rows of these ids, None if one is not there any more."""
        if not len(ids):
            return []
        wanted = ", ".join(map(str, ids.tolist()))
        with self._limited() as cursor:
            rows = cursor.execute(f"SELECT * FROM {table} WHERE id IN ({wanted})").fetchall()
        by_id = {row[0]: row for row in rows}
        if len(by_id) < len(ids):
            return None
        return [list(by_id[number][1:]) for number in ids.tolist()]

    @contextmanager
    def _limited(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A cursor whose query ends when the time is over, and whose errors are told in one line."""
        cursor = self.database.cursor()
        timer = threading.Timer(self.time_limit_s, cursor.interrupt)
        timer.daemon = True
        timer.start()
        try:
            yield cursor
        except duckdb.InterruptException as error:
            raise QueryError(
                f"the query took more than {self.time_limit_s:g} s and was given up; ask for less (fewer "
                "steps, or no texts)"
            ) from error
        except duckdb.BinderException as error:
            raise UnknownColumn(first_line(error)) from error
        except duckdb.Error as error:
            raise QueryError(first_line(error)) from error
        finally:
            timer.cancel()
            cursor.close()


def _known_table(table: str) -> str:
    if table not in TABLES:
        raise UnknownName("list", table, TABLES)
    return table


def _condition(where: str) -> str:
    """Return a condition that is one expression and nothing else, so that nothing can be put behind it."""
    try:
        duckdb.SQLExpression(where)
    except duckdb.Error as error:
        raise QueryError(f"{where!r} is no condition: {first_line(error)}") from error
    return where


def first_line(error: Exception) -> str:
    """Return DuckDB's message without its picture of the statement."""
    return str(error).partition("\n")[0]
