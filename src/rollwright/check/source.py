"""Dumps as a stream of groups of raw rows, each with the file and the row that it came from.

Rows are raw on purpose: `rollwright.tree.Node` refuses what breaks its laws, and the checker must name it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rollwright.errors import ConfigError, DataError

Row = dict[str, Any]
Key = tuple[str, int, int]
DUMP_FORMAT = "rollwright-dump"
DUMP_VERSION = 1
_LIST_SUFFIXES = (".jsonl", ".json")


@dataclass(frozen=True, slots=True)
class RawGroup:
    """The rows of one group.

    Args:
        key: (kind, step, number of the group in the step).
        nodes, trajectories: rows with the columns of docs/formats.md; ``_file`` and ``_row`` (from 0) say
            where each stands. A column may be None: the dump does not know it.
    """

    key: Key
    nodes: list[Row] = field(default_factory=list)
    trajectories: list[Row] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Source:
    """A dump.

    Args:
        path: what was given.
        came_from: the foreign format that it was imported from; empty if it is ours.
        lacks: what that format cannot say, by column: why.
        run: the run's folder, where there is one with a config.
    """

    path: Path
    came_from: str = ""
    lacks: dict[str, str] = field(default_factory=dict)
    run: Path | None = None

    def groups(self) -> Iterator[RawGroup]:
        """Yield the groups in the order of the file; no more than one and a batch of rows is held.

        Raises:
            DataError: a file is not what it must be.
        """
        if self.path.is_file():
            yield from _lines(self.path)
        else:
            for shard in shard_folders(self.path):
                yield from _shard(shard)


def open_source(path: Path) -> Source:
    """Open a run folder, one shard of a run, or a dump of JSON lines.

    Raises:
        ConfigError: there is nothing like that at the path.
        DataError: the first line of the file is no header of a dump.
    """
    if path.is_file() and path.suffix in _LIST_SUFFIXES:
        header = _header(path)
        return Source(path, header.get("from", ""), header.get("lacks", {}))
    if path.is_dir() and shard_folders(path):
        run = path if (path / "config.toml").is_file() else None
        if run is None and (path.parent.parent / "config.toml").is_file():
            run = path.parent.parent
        return Source(path, run=run)
    raise ConfigError(
        f"{path} holds no rollouts; give a run folder with shards, one shard, or a .jsonl that "
        "`rollwright import` or `rollwright export --to jsonl` wrote"
    )


def shard_folders(path: Path) -> list[Path]:
    """Return a run's shards, or the folder itself if it is one."""
    if (path / "nodes.parquet").is_file() or (path / "trajectories.parquet").is_file():
        return [path]
    from rollwright.store.parquet import shards

    return shards(path)


def _header(path: Path) -> Row:
    with path.open(encoding="utf-8") as file:
        first = file.readline()
    try:
        header = json.loads(first)
    except ValueError:
        header = None
    if not isinstance(header, dict) or header.get("format") != DUMP_FORMAT:
        raise DataError(
            f"{path}, line 1 is not the header of a dump ({first[:60]!r}); import another framework's file "
            "first: `rollwright import FORMAT FILE OUT`"
        )
    if header.get("version") != DUMP_VERSION:
        raise DataError(f"{path} has dump version {header.get('version')}; this reads {DUMP_VERSION}: update")
    return header


def _lines(path: Path) -> Iterator[RawGroup]:
    with path.open(encoding="utf-8") as file:
        next(file)
        for number, line in enumerate(file, 2):
            try:
                raw = json.loads(line)
                group = RawGroup(
                    (raw["kind"], raw["step"], raw["group_index"]), raw["nodes"], raw["trajectories"]
                )
            except (ValueError, KeyError, TypeError) as error:
                raise DataError(
                    f"{path}, line {number} is not a group ({error!r}); is the file cut?"
                ) from error
            for row in (*group.nodes, *group.trajectories):
                row |= {"_file": path.name, "_row": number, "group": raw["group"], "task": raw["task"]}
            yield group


def _shard(folder: Path) -> Iterator[RawGroup]:
    """Merge the two files of a shard; both are sorted by step and group number."""
    kind = folder.name.split("-")[0]
    streams = [_runs(folder / f"{name}.parquet") for name in ("nodes", "trajectories")]
    heads = [next(stream, None) for stream in streams]
    while any(head is not None for head in heads):
        key = min(head[0] for head in heads if head is not None)
        rows: list[list[Row]] = [[], []]
        for place, head in enumerate(heads):
            if head is not None and head[0] == key:
                rows[place] = head[1]
                heads[place] = next(streams[place], None)
        yield RawGroup((kind, *key), *rows)


def _runs(path: Path) -> Iterator[tuple[tuple[int, int], list[Row]]]:
    """Yield neighbouring rows of one (step, group number) together."""
    held: list[Row] = []
    for row in _rows(path):
        if held and _place(held[0]) != _place(row):
            yield _place(held[0]), held
            held = []
        held.append(row)
    if held:
        yield _place(held[0]), held


def _place(row: Row) -> tuple[int, int]:
    return row["step"], row["group_index"]


def _rows(path: Path) -> Iterator[Row]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from rollwright.store.schema import check_version

    if not path.is_file():
        raise DataError(f"shard {path.parent} has no {path.name}; a shard is whole or not there")
    number = 0
    try:
        with pq.ParquetFile(path) as file:
            check_version(file.schema_arrow.metadata, path)
            for batch in file.iter_batches(batch_size=512):
                for row in batch.to_pylist():
                    yield {**row, "_file": f"{path.parent.name}/{path.name}", "_row": number}
                    number += 1
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"{path} is not a whole Parquet file: {error}") from error
