"""The folder of one run: what lies where, made once, opened by one writer or by any reader."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from rollwright.config import RunConfig, dump_config, load_config
from rollwright.errors import StoreError
from rollwright.store.journal import Journal
from rollwright.store.layout import CHECKPOINTS, CONFIG, DRAFT, JOURNAL, LOCK, METRICS, PLOTS, SHARDS
from rollwright.store.lock import WriterLock
from rollwright.store.parquet import ShardWriter
from rollwright.store.rows import RowFile
from rollwright.store.schema import Decode
from rollwright.store.tail import reason, sync_folder, write_atomic

_CHECKPOINT = re.compile(r"step-(\d{8})")
_REPLACED = f"{DRAFT}replaced-"


class RunFolder:
    """A run's folder: config.toml, journal.jsonl, metrics.jsonl, shards/, checkpoints/, plots/.

    Make one with `create` (a new run), `open` (go on with a run) or `view` (read only, no lock).

    Attributes:
        path: the folder.
        lock: the writer's lock, None in a view.
    """

    def __init__(self, path: Path, lock: WriterLock | None) -> None:
        self.path, self.lock = path, lock

    @classmethod
    def create(cls, path: str | Path, config: RunConfig) -> RunFolder:
        """Make the folder of a new run and write its resolved config.

        Raises:
            StoreError: the folder holds files, is being written, or cannot be made.
        """
        path = Path(path)
        lock: WriterLock | None = None
        try:
            path.mkdir(parents=True, exist_ok=True)
            lock = WriterLock(path)
            _refuse_content(path)
            for name in (SHARDS, CHECKPOINTS, PLOTS):
                (path / name).mkdir(exist_ok=True)
            # The config comes last: a folder with a config is a run, one without never began.
            write_atomic(path / CONFIG, dump_config(config).encode())
        except BaseException as error:
            if lock is not None:
                lock.release()
            if isinstance(error, OSError):
                raise StoreError(f"cannot make the run folder {path}: {reason(error)}") from error
            raise
        return cls(path, lock)

    @classmethod
    def open(cls, path: str | Path) -> RunFolder:
        """Open a run to go on with it; its drafts of a crashed writer are cleared away.

        Raises:
            StoreError: there is no run, or another process is writing it.
        """
        path = _existing(path)
        lock = WriterLock(path)
        for replaced in (path / CHECKPOINTS).glob(f"{_REPLACED}*"):
            final = replaced.with_name(replaced.name.removeprefix(_REPLACED))
            if not final.exists():  # the crash fell between the two renames of `_publish`
                replaced.rename(final)
        for draft in (path / CHECKPOINTS).glob(f"{DRAFT}*"):
            shutil.rmtree(draft)
        return cls(path, lock)

    @classmethod
    def view(cls, path: str | Path) -> RunFolder:
        """Open a run for reading, be it running or not.

        Raises:
            StoreError: there is no run.
        """
        return cls(_existing(path), None)

    def config(self) -> RunConfig:
        """Return the config that the run was started with.

        Raises:
            ConfigError: it does not hold what this version expects.
        """
        return load_config(self.path / CONFIG)

    def journal(self) -> Journal:
        """Open the journal for appending; see `Journal`. Read it with `store.journal.read`."""
        return Journal.open(self.path / JOURNAL, self._writer())

    def metrics(self) -> RowFile:
        """Open the metrics for appending; see `RowFile`."""
        self._writer()
        return RowFile(self.path / METRICS)

    def shards(self, steps_per_shard: int = 10, decode: Decode | None = None) -> ShardWriter:
        """Return the writer of the run's Parquet shards; see `ShardWriter`."""
        self._writer()
        return ShardWriter(self.path, steps_per_shard, decode)

    def _writer(self) -> WriterLock:
        if self.lock is None:
            raise StoreError(f"{self.path} was opened as a view; use RunFolder.open to write")
        return self.lock

    @property
    def journal_path(self) -> Path:
        return self.path / JOURNAL

    @property
    def plots(self) -> Path:
        return self.path / PLOTS

    def checkpoints(self) -> list[tuple[int, Path]]:
        """Return (step, folder) of every whole checkpoint, oldest first."""
        found = []
        for path in (self.path / CHECKPOINTS).glob("step-*"):
            match = _CHECKPOINT.fullmatch(path.name)
            if match and path.is_dir():
                found.append((int(match[1]), path))
        return sorted(found)

    @contextmanager
    def new_checkpoint(self, step: int, keep: int | None = None) -> Iterator[Path]:
        """Give a folder to write a checkpoint into; it appears whole, and only if the block succeeds.

        Args:
            step: the step it belongs to; a checkpoint of the same step is replaced.
            keep: how many of the newest checkpoints to keep, ≥ 1; None keeps all.

        Raises:
            StoreError: it cannot be written; older checkpoints are as they were.
        """
        self._writer()
        final = self.path / CHECKPOINTS / f"step-{step:08d}"
        draft = final.with_name(DRAFT + final.name)
        try:
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir(parents=True)
            yield draft
            _publish(draft, final)
        except BaseException as error:
            shutil.rmtree(draft, ignore_errors=True)
            if isinstance(error, OSError):
                raise StoreError(
                    f"cannot write checkpoint {final}: {reason(error)}; older checkpoints are kept"
                ) from error
            raise
        if keep is not None:
            for _, old in self.checkpoints()[: -max(1, keep)]:
                shutil.rmtree(old)

    def close(self) -> None:
        """Give the folder free. Close the journal first. Safe to call twice."""
        if self.lock is not None:
            self.lock.release()

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _existing(path: str | Path) -> Path:
    path = Path(path)
    if not (path / CONFIG).is_file():
        raise StoreError(f"{path} is no run folder: it has no {CONFIG}; give the folder of a run")
    return path


def _refuse_content(path: Path) -> None:
    if (path / CONFIG).exists():
        raise StoreError(
            f"{path} holds a run already; nothing is overwritten. Go on with it (--resume {path}) or choose "
            "another folder"
        )
    passed = (LOCK, f".{CONFIG}.part")
    found = next((file for file in path.rglob("*") if file.is_file() and file.name not in passed), None)
    if found is not None:
        raise StoreError(f"{path} is not empty: it holds {found.relative_to(path)}; choose another folder")


def _publish(draft: Path, final: Path) -> None:
    for path in draft.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
        else:
            sync_folder(path)
    sync_folder(draft)
    replaced = final.with_name(_REPLACED + final.name)
    if final.exists():
        final.rename(replaced)
    draft.rename(final)
    sync_folder(final.parent)
    shutil.rmtree(replaced, ignore_errors=True)
