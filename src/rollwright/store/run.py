"""The folder of one run: what lies where, made once, opened by one writer or by any reader."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

from rollwright.config import RunConfig, dump_config, load_config
from rollwright.errors import StoreError
from rollwright.store.journal import Journal
from rollwright.store.layout import CHECKPOINTS, CONFIG, JOURNAL, LOCK, METRICS, PLOTS, SHARDS
from rollwright.store.lock import WriterLock
from rollwright.store.parquet import ShardWriter
from rollwright.store.rows import RowFile
from rollwright.store.schema import Decode
from rollwright.store.tail import reason, write_atomic


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
        """Open a run to go on with it.

        Raises:
            StoreError: there is no run, or another process is writing it.
        """
        path = _existing(path)
        lock = WriterLock(path)
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
