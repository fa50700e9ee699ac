"""Parquet shards of a run: written whole or not at all, read back exactly, queried with DuckDB."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from rollwright.errors import DataError, StoreError
from rollwright.store.layout import DRAFT, METRICS, SHARDS
from rollwright.store.rows import load_rows
from rollwright.store.schema import (
    NODES,
    TRAJECTORIES,
    Decode,
    Fates,
    Row,
    check_version,
    group_of,
    node_rows,
    table,
    trajectory_rows,
)
from rollwright.store.tail import reason, sync_folder
from rollwright.tree import Group, NodeId

Kind = Literal["train", "evaluation"]
Tables = dict[str, pa.Table]
_SCHEMAS = {"nodes": NODES, "trajectories": TRAJECTORIES}


def write_shard(
    run_dir: str | Path,
    step: int,
    groups: Sequence[Group],
    fates: Fates,
    *,
    kind: Kind = "train",
    version: int | None = None,
    extras: Mapping[NodeId, Mapping[str, object]] | None = None,
    decode: Decode | None = None,
) -> Path:
    """Write the groups of one step as a shard of its own; see `ShardWriter.add` for the arguments.

    Returns:
        The shard's folder.

    Raises:
        StoreError, DataError: as `ShardWriter.add` and `ShardWriter.flush`.
    """
    tables = tables_of(step, groups, fates, kind, version, extras or {}, decode)
    return _write(Path(run_dir) / SHARDS, kind, step, step, tables)


def tables_of(
    step: int,
    groups: Sequence[Group],
    fates: Fates,
    kind: Kind,
    version: int | None,
    extras: Mapping[NodeId, Mapping[str, object]],
    decode: Decode | None,
) -> Tables:
    """Return the node and the trajectory table of one step; see `ShardWriter.add`."""
    leaves = {trajectory.leaf for group in groups for trajectory in group.trajectories}
    if extras.keys() - leaves:
        raise DataError(
            f"step {step}: extras for {sorted(extras.keys() - leaves)[:5]}, which are no trajectories of it "
            f"({len(extras)} extras, {len(leaves)} trajectories); nothing was written"
        )
    nodes: list[Row] = []
    trajectories: list[Row] = []
    for number, group in enumerate(groups):
        key: Row = {"step": step, "kind": kind, "group_index": number}
        nodes.extend(node_rows(key, group, fates, decode))
        trajectories.extend(trajectory_rows(key, group, fates, version, extras, decode))
    return {"nodes": table(nodes, NODES), "trajectories": table(trajectories, TRAJECTORIES)}


class ShardWriter:
    """Collects steps and writes a shard every few of them.

    Steps that are collected but not written are in the journal: after a crash the run gives them
    again, and steps that a shard holds already are passed over.

    Args:
        run_dir: the run folder.
        steps_per_shard: steps to collect, ≥ 1.
        decode: tokens to text, to write texts too.
    """

    def __init__(self, run_dir: str | Path, steps_per_shard: int = 10, decode: Decode | None = None) -> None:
        self.folder = Path(run_dir) / SHARDS
        self.steps_per_shard, self.decode = steps_per_shard, decode
        self._held: dict[Kind, dict[int, Tables]] = {"train": {}, "evaluation": {}}
        self._given: dict[Kind, list[int]] = {"train": [], "evaluation": []}
        self._found = {
            (kind, step)
            for path in shards(run_dir)
            for kind, first, last in [_range(path)]
            for step in range(first, last + 1)
        }
        for draft in self.folder.glob(f"{DRAFT}*"):
            shutil.rmtree(draft)

    def has(self, step: int, kind: Kind = "train") -> bool:
        """Return whether a shard holds the step, or this writer has collected it."""
        return (kind, step) in self._found or step in self._given[kind]

    def add(
        self,
        step: int,
        groups: Sequence[Group],
        fates: Fates,
        *,
        kind: Kind = "train",
        version: int | None = None,
        extras: Mapping[NodeId, Mapping[str, object]] | None = None,
    ) -> Path | None:
        """Collect one step, later steps after earlier ones.

        Args:
            step: the step's number; one that a shard held before this writer is passed over.
            groups: its groups, each whole.
            fates: (fate, reason) by leaf, of every trajectory and of other leaves (pruned, failed),
                in the order in which the ledger settled them.
            kind: ``"train"`` or ``"evaluation"``.
            version: the version that the batch improves on.
            extras: what graders or stages noted per trajectory, by leaf.

        Returns:
            The shard that was written because it was full, or None.

        Raises:
            StoreError: a trajectory without a fate, a step given twice or out of order, or the shard
                could not be written.
            DataError: extras of unknown trajectories, or that JSON cannot hold.
        """
        if (kind, step) in self._found:
            return None
        held, given = self._held[kind], self._given[kind]
        if given and step <= given[-1]:
            raise StoreError(f"step {step} came after step {given[-1]}; give each step once, in order")
        tables = tables_of(step, groups, fates, kind, version, extras or {}, self.decode)
        held[step] = tables
        given.append(step)
        return self._flush(kind) if len(held) >= self.steps_per_shard else None

    def flush(self) -> list[Path]:
        """Write what is collected, full or not.

        Raises:
            StoreError: a shard could not be written; it stays collected, no half shard is left.
        """
        return [self._flush(kind) for kind, held in self._held.items() if held]

    def _flush(self, kind: Kind) -> Path:
        held = self._held[kind]
        tables = {name: pa.concat_tables([each[name] for each in held.values()]) for name in _SCHEMAS}
        path = _write(self.folder, kind, min(held), max(held), tables)
        held.clear()
        return path


def _write(folder: Path, kind: Kind, first: int, last: int, tables: Tables) -> Path:
    """Write both files into a draft folder and rename it: one rename makes the whole shard appear."""
    path = folder / f"{kind}-{first:08d}-{last:08d}"
    draft = folder / f"{DRAFT}{path.name}"
    if path.exists():
        raise StoreError(f"shard {path} is there already; it is left as it is")
    try:
        draft.mkdir(parents=True, exist_ok=True)
        for name, content in tables.items():
            with (draft / f"{name}.parquet").open("wb") as file:
                pq.write_table(content, file, compression="zstd")
                file.flush()
                os.fsync(file.fileno())
        sync_folder(draft)
        draft.rename(path)
        sync_folder(folder)
    except OSError as error:
        shutil.rmtree(draft, ignore_errors=True)
        raise StoreError(
            f"cannot write shard {path}: {reason(error)}. No half shard is left; its steps are in the journal"
        ) from error
    return path


def shards(run_dir: str | Path) -> list[Path]:
    """Return the folders of a run's whole shards, in order of their first step."""
    found = [path for path in (Path(run_dir) / SHARDS).glob("[!.]*-*-*") if path.is_dir()]
    return sorted(found, key=lambda path: (_range(path)[1], path.name))


def _range(path: Path) -> tuple[Kind, int, int]:
    kind, first, last = path.name.rsplit("-", 2)
    if kind not in ("train", "evaluation") or not (first.isdigit() and last.isdigit()):
        raise StoreError(f"{path} is no shard; expected <kind>-<first step>-<last step>")
    return ("train" if kind == "train" else "evaluation"), int(first), int(last)


def read_groups(run_dir: str | Path, kind: Kind = "train") -> Iterator[tuple[int, Group]]:
    """Yield (step, group) of every group in a run's shards, exactly as it was written.

    Raises:
        StoreError: a shard of a newer schema.
    """
    for path in shards(run_dir):
        if _range(path)[0] != kind:
            continue
        rows: dict[tuple[int, int], tuple[list[Row], list[Row]]] = {}
        for place, name in enumerate(_SCHEMAS):
            file = path / f"{name}.parquet"
            content = pq.read_table(file)
            check_version(content.schema.metadata, file)
            for row in content.to_pylist():
                rows.setdefault((row["step"], row["group_index"]), ([], []))[place].append(row)
        for (step, _), (nodes, trajectories) in rows.items():
            yield step, group_of(nodes, trajectories)


def open_run(run_dir: str | Path) -> duckdb.DuckDBPyConnection:
    """Open a run for queries: an in-memory DuckDB with ``nodes``, ``trajectories`` and ``metrics``.

    ``nodes`` and ``trajectories`` are views of the shards that are there now; ``metrics`` has one row
    a step and kind (of what was written twice, the later value) and a column for each metric.

    Raises:
        StoreError: no such folder, or a shard of a newer schema.
    """
    run_dir = Path(run_dir)
    if not run_dir.is_dir():
        raise StoreError(f"there is no run folder {run_dir}")
    connection = duckdb.connect()
    for name, schema in _SCHEMAS.items():
        files = [path / f"{name}.parquet" for path in shards(run_dir)]
        for file in files:
            check_version(pq.read_metadata(file).metadata, file)
        if files:
            names = ", ".join("'{}'".format(str(file).replace("'", "''")) for file in files)
            query = f"SELECT * FROM read_parquet([{names}], union_by_name = true)"
            connection.execute(f"CREATE VIEW {name} AS {query}")
        else:
            _add_table(connection, name, schema.empty_table())
    _add_table(connection, "metrics", _metrics_table(run_dir / METRICS))
    return connection


def _add_table(connection: duckdb.DuckDBPyConnection, name: str, content: pa.Table) -> None:
    connection.register("incoming", content)
    connection.execute(f"CREATE TABLE {name} AS SELECT * FROM incoming")
    connection.unregister("incoming")


def _metrics_table(path: Path) -> pa.Table:
    merged: dict[tuple[int, str], Row] = {}
    for row in load_rows(path).rows if path.exists() else []:
        if isinstance(row.get("step"), int):
            merged.setdefault((row["step"], str(row.get("kind"))), {}).update(row)
    rows = [merged[key] for key in sorted(merged)]
    names = dict.fromkeys(["step", *(name for row in rows for name in row)])
    return pa.table({name: _column([row.get(name) for row in rows], name) for name in names})


def _column(values: Sequence[Any], name: str) -> pa.Array:
    if name == "step":
        return pa.array(values, type=pa.int64())
    if name == "non_finite":
        words = [value and [f"{path}={word}" for path, word in value.items()] for value in values]
        return pa.array(words, type=pa.list_(pa.string()))
    if {type(value) for value in values} <= {int, float, type(None)}:
        return pa.array(values, type=pa.float64())
    return pa.array([None if value is None else str(value) for value in values], type=pa.string())
