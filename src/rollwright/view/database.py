"""A run's rollouts in a DuckDB database that reads the run's shards and can reach nothing else.

Two tables lie in memory, because lists are sorted and scrolled in them: `rollouts` (one row a rollout,
without its texts and lists) and `groups` (one row a group; made when asked for). The view `trajectories`
has every column of the shards.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from rollwright.errors import StoreError
from rollwright.store.layout import SHARDS
from rollwright.store.parquet import shards
from rollwright.store.schema import NODES, TRAJECTORIES, VERSION_KEY, check_version

Tables = Mapping[str, pa.Table]

# In the order in which a list shows them. `id` is the place of a rollout in the shards, from 0. Each column
# makes a large run slower to open; a condition may name others too, and is then answered from the shards.
_NARROW = (
    *("kind", "step", "group_index", '"group"', '"index"', "reward", "status", "fate", "reason", "stop"),
    *("num_prompt", "num_sampled", "num_turns", "oldest_version", "batch_version", "terminated"),
    *("truncated", "replayed"),
)
AGE = "batch_version - oldest_version AS age"
_GROUPS = """
SELECT row_number() OVER (ORDER BY min(id)) - 1 AS id, kind, step, group_index, any_value("group") AS "group",
  count(*) AS num_rollouts, count(reward) AS num_scored, avg(reward) AS reward_mean,
  stddev_pop(reward) AS reward_spread, count(*) FILTER (status = 'right') AS num_right,
  count(*) FILTER (fate = 'trained') AS num_trained,
  CASE WHEN min(fate) = max(fate) THEN min(fate) ELSE 'mixed' END AS fate,
  avg(num_sampled) AS length_mean, max(num_sampled) AS length_max, max(num_turns) AS turns_max,
  max(age) AS age_max, max(batch_version) AS batch_version, bool_or(replayed) AS replayed
FROM rollouts GROUP BY kind, step, group_index
"""


class Database:
    """The rollouts of one run.

    Args:
        run_dir: the run folder.

    `refresh` fills it, and must have been called once.

    Attributes:
        generation: grows whenever the tables change.
        steps: steps of kind ``"train"`` that shards hold.

    Raises:
        StoreError: a shard of a newer schema.
    """

    def __init__(self, run_dir: str | Path) -> None:
        self.run_dir = Path(run_dir).resolve()
        self.generation = 0
        self.num_in_shards = 0
        self._loaded: list[Path] = []
        self.tail_key: object = None
        self._versions: set[bytes] = set()
        self._sizes: dict[Path, int] = {}  # rollouts by shard
        self._made: dict[str, int] = {}  # what is made when somebody asks, and of which generation it is
        self._lock = threading.RLock()
        self._main = duckdb.connect(":memory:")
        self._root = self._main.cursor()
        self._cursors = threading.Lock()
        self._lock_down()
        self._make_tail({"nodes": NODES.empty_table(), "trajectories": TRAJECTORIES.empty_table()})
        self._main.execute(f"CREATE TABLE rollouts AS {_narrow('tail_trajectories', 0)}")

    def _lock_down(self) -> None:
        """Take from every query the rest of the disk, the network, extensions, and the settings."""
        folder = str(self.run_dir / SHARDS).replace("'", "''")
        for setting in (
            f"allowed_directories = ['{folder}/']",
            "temp_directory = ''",
            "memory_limit = '4GB'",
            "enable_progress_bar = false",
            "python_enable_replacements = false",
            "autoinstall_known_extensions = false",
            "autoload_known_extensions = false",
            "enable_external_access = false",
            "lock_configuration = true",
        ):
            self._main.execute(f"SET {setting}")

    @property
    def steps(self) -> frozenset[int]:
        """Steps of training that shards hold, by the shards' names."""
        ranges = [path.name.rsplit("-", 2) for path in self._loaded if path.name.startswith("train-")]
        return frozenset(s for _, first, last in ranges for s in range(int(first), int(last) + 1))

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """Return a connection of its own for one request: cursors run side by side."""
        with self._cursors:  # not the lock that is held while a large run is read
            return self._root.cursor()

    def scan(self) -> list[Path]:
        """Look at the shards that `refresh` has not taken in yet, and return them.

        Raises:
            StoreError: one is of a newer schema, or cannot be read.
        """
        new = [path for path in shards(self.run_dir) if path not in self._loaded]
        for path in new:
            if path in self._sizes:
                continue
            try:  # both files of a shard appear by one rename, of one writer
                found = pq.read_metadata(path / "trajectories.parquet")
            except (OSError, pa.ArrowException) as error:
                raise StoreError(f"the shard {path} cannot be read: {error}") from error
            check_version(found.metadata, path)
            self._versions.add(found.metadata[VERSION_KEY])
            self._sizes[path] = found.num_rows
        return new

    def first(self, offset: int, limit: int) -> tuple[int, list[list[Any]]]:
        """Return how many rollouts the shards hold, and some in the run's order, from the shards themselves.

        This is for the moment before `refresh` has read a large run: `scan` is all that it needs.
        """
        begin, files, skip = 0, [], 0
        for path, num in self._sizes.items():
            if begin + num > offset and begin < offset + limit:
                if not files:
                    skip = offset - begin
                files.append(path / "trajectories.parquet")
            begin += num
        if not files:
            return begin, []
        query = f"{_narrow(self._parquet(files), 0)} LIMIT {limit} OFFSET {skip}"
        return begin, [list(row[1:]) for row in self.cursor().execute(query).fetchall()]

    def refresh(self, tail: Tables | None = None, tail_key: object = None) -> bool:
        """Take in new shards, and the groups that only the journal knows.

        Args:
            tail: ``nodes`` and ``trajectories`` of the steps that no shard holds; None keeps the last ones.
            tail_key: names the state of ``tail``; one that was given before changes nothing.

        Returns:
            Whether anything changed.
        """
        with self._lock:
            new = self.scan()
            is_new_tail = tail is not None and tail_key != self.tail_key
            if not new and not is_new_tail:
                return False
            self._main.execute("DELETE FROM rollouts WHERE id >= ?", [self.num_in_shards])
            if new:
                self._add(new)
            if is_new_tail and tail is not None:
                self._make_tail(tail)
                self.tail_key = tail_key
            steps = _listed(sorted(self.steps)) or "-1"
            left = f"(SELECT * FROM tail_trajectories WHERE kind <> 'train' OR step NOT IN ({steps}))"
            self._main.execute(f"INSERT INTO rollouts {_narrow(left, self.num_in_shards)}")
            self.generation += 1
            return True

    def _add(self, new: Sequence[Path]) -> None:
        source = self._parquet([path / "trajectories.parquet" for path in new])
        self._main.execute(f"INSERT INTO rollouts {_narrow(source, self.num_in_shards)}")
        self.num_in_shards = self._main.execute("SELECT count(*) FROM rollouts").fetchall()[0][0]
        self._loaded += new

    def _make_tail(self, tail: Tables) -> None:
        for name, content in tail.items():
            self._main.register("incoming", content)
            self._main.execute(f"CREATE OR REPLACE TABLE tail_{name} AS SELECT * FROM incoming")
            self._main.unregister("incoming")

    def need(self, what: str) -> None:
        """Make ``"groups"`` or the views of all columns, ``"trajectories"`` and ``"nodes"``, if they are old.

        The views have the rows in the order of `rollouts`.
        """
        with self._lock:
            if self._made.get(what) == self.generation:
                return
            if what == "groups":
                self._main.execute(f"CREATE OR REPLACE TABLE groups AS {_GROUPS}")
            elif what in ("nodes", "trajectories"):
                steps = _listed(sorted(self.steps)) or "-1"
                query = f"SELECT * FROM tail_{what} WHERE kind <> 'train' OR step NOT IN ({steps})"
                if self._loaded:
                    source = self._parquet([path / f"{what}.parquet" for path in self._loaded])
                    query = f"SELECT * FROM {source} UNION ALL BY NAME {query}"
                self._main.execute(f"CREATE OR REPLACE VIEW {what} AS {query}")
            self._made[what] = self.generation

    def _parquet(self, files: Sequence[Path]) -> str:
        # Columns are matched by name, which reads every file's footer, only where files can differ.
        by_name = ", union_by_name = true" if len(self._versions) > 1 else ""
        return f"read_parquet([{', '.join(map(_quoted, files))}]{by_name})"

    def rows(self, table: str, kind: str, step: int, group_index: int) -> list[dict[str, Any]]:
        """Return every column of a group's nodes or trajectories, in the order of the file."""
        where = "WHERE kind = ? AND step = ? AND group_index = ?"
        with self._lock:
            files = [path / f"{table}.parquet" for path in self._loaded if _holds(path, kind, step)]
        source = self._parquet(files) if files else f"tail_{table}"
        query = f"SELECT * FROM {source} {where}"
        return self.cursor().sql(query, params=[kind, step, group_index]).to_arrow_table().to_pylist()

    def close(self) -> None:
        """Give the memory free."""
        self._root.close()
        self._main.close()


def _narrow(source: str, first_id: int) -> str:
    columns = ", ".join(_NARROW)
    return f"SELECT row_number() OVER () - 1 + {first_id} AS id, {columns}, {AGE} FROM {source}"


def _quoted(path: Path) -> str:
    return "'{}'".format(str(path).replace("'", "''"))


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


def _holds(path: Path, kind: str, step: int) -> bool:
    found, first, last = path.name.rsplit("-", 2)
    return found == kind and int(first) <= step <= int(last)
