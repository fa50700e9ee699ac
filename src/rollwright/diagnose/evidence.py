"""What detectors read: SQL views over a run's shards, a sample of its token trees, its journal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollwright.diagnose.windows import Window
from rollwright.errors import ConfigError, StoreError
from rollwright.lab.activity import Activity, read_activity
from rollwright.store.layout import JOURNAL
from rollwright.store.parquet import open_run

NUM_WINDOWS = 10
_SAMPLE_STEPS, _SAMPLE_GROUPS, _SAMPLE_TOKENS = 40, 16, 2_000_000


@dataclass(frozen=True, slots=True)
class Leaf:
    """A rollout of the sample: all tokens after the prompt, those that were sampled, nodes of its path."""

    name: str
    response: NDArray[np.int32]
    sampled: NDArray[np.int32]
    path: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Tree:
    """A group of the sample."""

    step: int
    group: str
    leaves: tuple[Leaf, ...]


class Evidence:
    """A run folder, or only its shards or metrics, opened for reading.

    Attributes:
        sql: DuckDB with `nodes`, `trajectories`, `metrics`, and `fresh`: this run's own training rollouts,
            with `window`, the number of the tenth of the steps that they left in.

    Raises:
        ConfigError: there is nothing to read, or its shards are damaged.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            self.sql = open_run(self.path)
        except (StoreError, OSError, ValueError) as error:  # pyarrow's ArrowInvalid is a ValueError
            raise ConfigError(f"cannot read {path} as a run: {error}") from error
        self.sql.execute(
            f"""CREATE TEMP TABLE windows AS
                SELECT step, ntile({NUM_WINDOWS}) OVER (ORDER BY step) - 1 AS "window"
                FROM (SELECT DISTINCT step FROM trajectories WHERE kind = 'train')"""
        )
        self.sql.execute(
            """CREATE TEMP VIEW fresh AS
               SELECT t.*, t."group" AS group_id, w."window" FROM trajectories t JOIN windows w USING (step)
               WHERE t.kind = 'train' AND NOT t.replayed"""
        )
        self.num_rollouts = int(self.one("SELECT count(*) FROM fresh")[0])
        self.num_steps = int(self.one("SELECT count(*) FROM windows")[0])
        if not self.num_rollouts and not self.metric_names:
            raise ConfigError(
                f"{path} has neither training rollouts (shards/) nor metrics; expected a run folder "
                "(imported .jsonl dumps are not read yet)"
            )

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return self.sql.execute(query).fetchall()

    def one(self, query: str) -> tuple[Any, ...]:
        return self.rows(query)[0]

    def windows(self, source: str) -> list[Window]:
        """Count hits by window.

        Args:
            source: a query that gives ``step``, ``window``, ``hit`` and ``name``, one row a unit.
        """
        rows = self.rows(
            f"""SELECT min(step), max(step), count(*) FILTER (hit), count(*), min(name, 3) FILTER (hit)
                FROM ({source}) GROUP BY "window" ORDER BY "window" """
        )
        return [Window(*row[:4], tuple(row[4] or ())) for row in rows]

    @cached_property
    def metric_names(self) -> set[str]:
        return {str(row[0]) for row in self.rows("DESCRIBE metrics")} - {"step", "kind"}

    def metric(self, name: str) -> list[tuple[int, float]]:
        """Return (step, value) of a metric of training steps where it was measured."""
        if name not in self.metric_names:
            return []
        query = f"""SELECT step, "{name}" FROM metrics WHERE kind = 'step' AND "{name}" IS NOT NULL
                    ORDER BY step"""
        return [(int(step), float(value)) for step, value in self.rows(query)]

    @cached_property
    def has_journal(self) -> bool:
        return (self.path / JOURNAL).is_file()

    @cached_property
    def activity(self) -> Activity | None:
        """Who worked when; None without a journal."""
        return read_activity(self.path / JOURNAL) if self.has_journal else None

    @cached_property
    def sample(self) -> list[Tree]:
        """Some groups of steps spread evenly over the run, of at most two million tokens or one group."""
        every = max(1, self.num_steps // _SAMPLE_STEPS)
        chosen = self.rows(
            f"""WITH numbered AS (SELECT step, row_number() OVER (ORDER BY step) - 1 AS n FROM windows),
                sizes AS (SELECT step, group_index, sum(num_prompt + num_response) AS size FROM fresh
                    WHERE step IN (SELECT step FROM numbered WHERE n % {every} = 0) GROUP BY ALL),
                ranked AS (SELECT *, row_number() OVER (PARTITION BY step ORDER BY group_index) AS r
                    FROM sizes),
                cut AS (SELECT *, sum(size) OVER (ORDER BY r, step) AS total,
                    row_number() OVER (ORDER BY r, step) AS place FROM ranked WHERE r <= {_SAMPLE_GROUPS})
                SELECT step, group_index FROM cut WHERE total <= {_SAMPLE_TOKENS} OR place = 1 ORDER BY ALL"""
        )
        return self._trees(chosen)

    def _trees(self, chosen: Sequence[tuple[int, int]]) -> list[Tree]:
        if not chosen:
            return []
        steps = ", ".join(str(step) for step in sorted({step for step, _ in chosen}))
        keys = f"step IN ({steps}) AND (step, group_index) IN ({', '.join(map(str, chosen))})"
        nodes = self.sql.execute(
            f"""SELECT step, group_index, node, parent, "at", origin, tokens FROM nodes
                WHERE kind = 'train' AND {keys}"""
        ).fetchnumpy()
        table: dict[tuple[int, int], dict[str, tuple[str | None, int, str, NDArray[np.int32]]]] = {}
        for step, index, node, parent, at, origin, tokens in zip(*nodes.values(), strict=True):
            own = table.setdefault((int(step), int(index)), {})
            above = parent if isinstance(parent, str) else None
            own[node] = (above, int(at), origin, np.asarray(tokens, dtype=np.int32))
        leaves: dict[tuple[int, int], list[Leaf]] = {}
        groups: dict[tuple[int, int], str] = {}
        for step, index, group, leaf in self.rows(
            f"SELECT step, group_index, group_id, leaf FROM fresh WHERE {keys} ORDER BY ALL"
        ):
            groups[step, index] = group
            leaves.setdefault((step, index), []).append(_leaf(leaf, table[step, index]))
        return [Tree(key[0], groups[key], tuple(found)) for key, found in sorted(leaves.items())]


def _leaf(name: str, nodes: dict[str, tuple[str | None, int, str, NDArray[np.int32]]]) -> Leaf:
    path: list[tuple[str, int]] = []
    place: str | None = name
    take = len(nodes[name][3])
    while place is not None:
        path.append((place, take))
        place, take = nodes[place][0], nodes[place][1]
    path.reverse()
    empty = np.zeros(0, dtype=np.int32)
    runs = [(nodes[node][2], nodes[node][3][:num]) for node, num in path[1:]]
    return Leaf(
        name,
        np.concatenate([empty, *(run for _, run in runs)]),
        np.concatenate([empty, *(run for origin, run in runs if origin == "sampled")]),
        tuple(path),
    )
