"""A run folder as the page sees it: finished, running or crashed; it is never written to."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from rollwright.config import RunConfig
from rollwright.errors import ConfigError, RollwrightError, StoreError
from rollwright.store.layout import METRICS
from rollwright.store.parquet import tables_of
from rollwright.store.rows import load_rows
from rollwright.store.run import RunFolder
from rollwright.view import overview as pages
from rollwright.view import rollout as rollouts
from rollwright.view.database import Database, Tables
from rollwright.view.follow import Watch
from rollwright.view.pieces import Pieces
from rollwright.view.query import Lists
from rollwright.view.timeline import timeline

Row = dict[str, Any]
_JOURNAL_WAIT_S = 1.0  # a page waits so long for a journal to be read; then it is told how far that is


class Run:
    """One run.

    Args:
        path: the run folder.

    Its rollouts are read on a thread that begins at once. The state, and the list in the run's own order, can
    be asked for before that is done; everything else waits for it.

    Raises:
        StoreError: it is no run folder, or a shard is of a newer schema or cannot be read.
    """

    def __init__(self, path: str | Path) -> None:
        self.folder = RunFolder.view(path)
        self.path = self.folder.path
        self.notes: list[str] = []
        self.config = self._config()
        self.database = Database(self.path)
        self.lists = Lists(self.database, wait=self.ready)
        self.pieces = Pieces(self.path)
        self._lock = threading.Lock()
        self._metrics_stamp: object = None
        self._rows: list[Row] = []
        self._watch: Watch | None = None
        self._read_metrics()
        self.database.scan()
        self._first = ThreadPoolExecutor(1).submit(self.refresh)

    def ready(self) -> None:
        """Wait until the rollouts that are there now can be asked for.

        Raises:
            StoreError: a shard cannot be read.
        """
        try:
            self._first.result()
        except duckdb.Error as error:
            raise StoreError(f"the shards of {self.path} cannot be read: {error}") from error

    def _config(self) -> RunConfig | None:
        try:
            return self.folder.config()
        except ConfigError as error:
            self.notes.append(f"the run's config cannot be read by this version: {error}")
            return None

    @property
    def name(self) -> str:
        return self.path.resolve().name

    @property
    def title(self) -> str:
        cfg = self.config
        return self.name if cfg is None else f"{cfg.task} with {cfg.method}, seed {cfg.seed}"

    @property
    def steps(self) -> list[Row]:
        return self._by_step("step")

    def _by_step(self, kind: str) -> list[Row]:
        rows = [r for r in self._rows if r.get("kind") == kind and isinstance(r.get("step"), int)]
        found = {row["step"]: row for row in rows}
        return [found[step] for step in sorted(found)]

    # ------------------------------------------------------------ staying up to date

    def refresh(self) -> None:
        """Take in what was written since the last look; cheap when that is nothing."""
        with self._lock:
            self._read_metrics()
            self.database.refresh()  # what shards hold need not be looked for in the journal
            tail, key = self._tail()
            if tail is not None:
                self.database.refresh(tail, key)

    def _read_metrics(self) -> None:
        path = self.path / METRICS
        if not path.exists():
            return
        stat = path.stat()
        stamp = (stat.st_size, stat.st_mtime_ns)
        if stamp != self._metrics_stamp:
            self._rows, self._metrics_stamp = load_rows(path).rows, stamp

    def _tail(self) -> tuple[Tables | None, object]:
        """Return the groups that only the journal knows; follow it first, if it may know any."""
        if self._watch is None or not self._watch.is_folding:
            if self.config is None or not self._may_have_tail():
                return None, None
            if self._watch is not None:
                self._watch.close()
            self._watch = Watch(self.folder.journal_path, self.config, self.database.steps)
        with self._watch.lock:
            followed = self._watch.followed
            key = (id(self._watch), followed.generation)
            closed = {step: list(found) for step, found in followed.closed.items()}
        if not closed or key == self.database.tail_key:
            return None, None
        made = [self._tables(step, found) for step, found in sorted(closed.items())]
        return {name: pa.concat_tables([one[name] for one in made]) for name in made[0]}, key

    def _may_have_tail(self) -> bool:
        if not self.folder.journal_path.exists():
            return False
        if self.state()["state"] == "running":
            return True
        in_shards = self.database.steps
        return any(row["step"] not in in_shards and row.get("num_rollouts") for row in self.steps)

    def _tables(self, step: int, found: list[Any]) -> Tables:
        fates = {leaf: fate for one in found for leaf, fate in one.fates.items()}
        decode = self.pieces.decode if self.pieces.tokenizer is not None else None
        groups = [one.group for one in found]
        return tables_of(step, groups, fates, "train", found[0].version, {}, decode)

    def close(self) -> None:
        """Stop following the journal."""
        if self._watch is not None:
            self._watch.close()
        self.database.close()

    # ------------------------------------------------------------ what pages ask for

    def state(self) -> Row:
        """Return ``state`` (``"running"``, ``"finished"``, ``"stopped"``) and the same in words."""
        wanted = None if self.config is None else self.config.num_steps
        return pages.state(self.path, self.folder.journal_path, len(self.steps), wanted)

    def status(self) -> Row:
        """Return what a page needs to know whether it is up to date."""
        if self._first.done():
            self.refresh()
        return {
            "name": self.name,
            "path": str(self.path),
            "title": self.title,
            **self.state(),
            "num_steps": len(self.steps),
            "generation": f"{max(1, self.database.generation)}.{len(self._rows)}",
            "notes": self._notes(),
        }

    def _notes(self) -> list[str]:
        notes = list(self.notes)
        if self._watch is not None:
            found = self._watch.followed
            notes += [text for text in (found.error, found.fold_error) if text]
            if self._watch.is_folding and not found.is_whole and not found.error:
                notes.append(f"reading the journal: {found.num_records:,} records so far")
        return notes

    def overview(self) -> Row:
        """Return what the first page draws."""
        self.ready()
        status = self.status()
        found = pages.overview(self.database, self.config, self.steps, self._by_step("evaluation"))
        journal = self.folder.journal_path
        return {**status, **found, "journal_bytes": journal.stat().st_size if journal.exists() else 0}

    def series(self, names: list[str]) -> Row:
        """Return curves of metrics by step."""
        return pages.series(self.steps, names)

    def group(self, kind: str, step: int, group_index: int) -> Row:
        """Return a group's tree."""
        self.ready()
        return rollouts.group(self.database, kind, step, group_index)

    def node(self, kind: str, step: int, group_index: int, name: str) -> Row:
        """Return one node with its steps."""
        self.ready()
        return rollouts.node(self.database, self.pieces, kind, step, group_index, name)

    def rollout(self, kind: str, step: int, group_index: int, index: int) -> Row:
        """Return one rollout with its steps."""
        self.ready()
        return rollouts.rollout(self.database, self.pieces, kind, step, group_index, index)

    def timeline(self, since: float, until: float | None) -> Row:
        """Return who worked when, or how far the journal has been read.

        Raises:
            StoreError: the journal cannot be read.
        """
        if not self.folder.journal_path.exists():
            return {"missing": "the run has no journal, so nobody knows who worked when"}
        with self._lock:
            if self._watch is None:
                self._watch = Watch(self.folder.journal_path, None, frozenset())
        watch = self._watch
        watch.wait(_JOURNAL_WAIT_S)
        if not (watch.followed.is_whole or watch.followed.error):
            return {"reading": watch.followed.num_records}
        with watch.lock:
            found = timeline(watch.followed.activity, since, until)
        return {**found, "note": watch.followed.error}


def open_runs(paths: list[Path]) -> list[Run]:
    """Open runs in the order given.

    Raises:
        StoreError: one is no run folder; it is named.
    """
    runs: list[Run] = []
    try:
        for path in paths:
            runs.append(Run(path))
    except RollwrightError:
        for run in runs:
            run.close()
        raise
    return runs
