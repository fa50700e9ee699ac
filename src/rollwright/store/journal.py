"""The append-only journal: every event with the decisions that answered it, safe from kill -9.

An event is acknowledged once `Journal.flush` returned: its bytes are the kernel's, and no death of
the process can take them. `Journal.sync` also protects them from a loss of power.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType

import msgspec

from rollwright.errors import JournalCorrupt, LawBroken, StoreError
from rollwright.events import AnyCommand, AnyEvent
from rollwright.store.codec import damage, decision_bytes, decode_record, encode_record
from rollwright.store.lock import WriterLock
from rollwright.store.tail import LineFile, Torn, keep_aside, reason, sync_folder

FORMAT_VERSION = 1
_HEADER = json.dumps({"format": "rollwright-journal", "version": FORMAT_VERSION}).encode()
_FLUSH_BYTES = 1 << 20


class Journal:
    """The one writer of a run's journal.

    Args:
        path: the file; made if it is missing, its torn tail cut off and kept aside.
        lock: the run folder's lock if the caller holds it; else the journal takes it itself.

    Attributes:
        num_records: records in the file (acknowledged), pending ones not counted.
        torn: what was cut off when it was opened, or None.

    Raises:
        StoreError: another writer holds the folder, or the file cannot be read or written.
        JournalCorrupt: a record before the end is damaged.
    """

    def __init__(self, path: str | Path, lock: WriterLock | None = None) -> None:
        self.path = Path(path)
        self._own_lock = WriterLock(self.path.parent) if lock is None else None
        self._pending = bytearray()
        self._num_pending = self.num_records = self._num_synced = 0
        self._file: LineFile | None = None
        try:
            self._file = LineFile(self.path)
            self.torn: Torn | None = self._file.torn
            if self._file.offset == 0:
                self._write_header()
            self.num_records = self._num_synced = sum(1 for _ in _whole_lines(self.path))
        except BaseException:
            self._release()
            raise

    @classmethod
    def open(cls, path: str | Path, lock: WriterLock | None = None) -> Journal:
        """Open a journal for appending; see the class."""
        return cls(path, lock)

    def _write_header(self) -> None:
        assert self._file is not None
        _, error = self._file.write(b"%08x %b\n" % (zlib.crc32(_HEADER), _HEADER))
        if error is not None:
            raise StoreError(f"cannot start {self.path}: {reason(error)}") from error
        sync_folder(self.path.parent)

    def append(self, event: AnyEvent, commands: Sequence[AnyCommand]) -> None:
        """Add a record. It counts as acknowledged only after the next `flush`.

        Raises:
            LawBroken: the event would read back as another value; nothing was added.
            StoreError: the buffer was full and writing it failed; the record is pending.
        """
        self._pending += encode_record(event, commands)
        self._num_pending += 1
        if len(self._pending) >= _FLUSH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Hand every pending record to the kernel; returning acknowledges them.

        Raises:
            StoreError: the disk is full or failing. The message says what was kept; records that
                were not written stay pending and the next flush tries them again.
        """
        if not self._pending:
            return
        file = self._opened()
        kept, error = file.write(self._pending)
        num_kept = self._num_pending if error is None else self._pending.count(b"\n", 0, kept)
        self.num_records += num_kept
        self._num_pending -= num_kept
        del self._pending[:kept]
        if error is not None:
            raise StoreError(
                f"cannot write {self.path}: {reason(error)}. Kept: {self.num_records} records are in the "
                f"file and whole; {self._num_pending} are in memory only, and flush() tries them again"
            ) from error

    def sync(self) -> None:
        """Flush, and force everything to the device (fsync).

        Raises:
            StoreError: as `flush`, or the device reports a fault.
        """
        self.flush()
        error = self._opened().sync()
        if error is not None:
            raise StoreError(
                f"cannot sync {self.path}: {reason(error)}. Certain on the device: the first "
                f"{self._num_synced} of {self.num_records} records; copy the file before going on"
            ) from error
        self._num_synced = self.num_records

    def close(self) -> None:
        """Flush, sync, close and free the lock. Safe to call twice.

        Raises:
            StoreError: as `sync`; it is closed all the same, and records still pending are dropped.
        """
        if self._file is None:
            return
        try:
            self.sync()
        except StoreError as error:
            if not self._num_pending:
                raise
            raise StoreError(
                f"{self.path} is closed. Kept: {self.num_records} whole records; lost: {self._num_pending} "
                f"that were never acknowledged ({error.__cause__})"
            ) from error
        finally:
            self._release()

    def _opened(self) -> LineFile:
        if self._file is None:
            raise StoreError(f"{self.path} is closed; open it again to write")
        return self._file

    def _release(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
        if self._own_lock is not None:
            self._own_lock.release()

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read(path: str | Path) -> Iterator[tuple[AnyEvent, bytes]]:
    """Yield (event, decision bytes) of every whole record, in order.

    Needs no lock: a torn last line, as a live writer may leave for a moment, is passed over.

    Raises:
        StoreError: there is no such file, or a newer rollwright wrote it.
        JournalCorrupt: a record before the end is damaged.
    """
    path = Path(path)
    for number, offset, line in _whole_lines(path):
        try:
            yield decode_record(line)
        except msgspec.MsgspecError as error:
            raise _corrupt(path, number, offset, f"it holds no known event: {error}") from error


def check_replay(path: str | Path, step: Callable[[AnyEvent], Sequence[AnyCommand]]) -> int:
    """Fold a journal through a fresh runner's ``step`` and compare every decision byte by byte.

    Returns:
        The number of records, all of which gave the same bytes.

    Raises:
        LawBroken: a record's decisions differ; its number and the first difference are shown.
        StoreError, JournalCorrupt: as `read`.
    """
    number = 0
    for number, (event, recorded) in enumerate(read(path), 1):
        got = decision_bytes(step(event))
        if got != recorded:
            shared = zip(got, recorded, strict=False)
            same = next((k for k, (a, b) in enumerate(shared) if a != b), min(len(got), len(recorded)))
            left = max(0, same - 40)
            raise LawBroken(
                f"record {number} of {path} ({type(event).__name__}) does not replay: recorded "
                f"...{recorded[left : same + 80]!r}, now ...{got[left : same + 80]!r}"
            )
    return number


def cut_before(path: str | Path, line: int) -> Path:
    """Cut a damaged journal before a line and keep what was cut in a side file.

    Args:
        path: the journal.
        line: number of the first line to cut, from 1; at least 2, for line 1 is the header.

    Returns:
        The side file.

    Raises:
        StoreError: another writer holds the folder, or there is no such line.
    """
    path = Path(path)
    if line < 2:
        raise StoreError(f"cannot cut {path} before line {line}: line 1 is its header; expected 2 or more")
    with WriterLock(path.parent), path.open("rb+") as file:
        offset = sum(len(file.readline()) for _ in range(line - 1))
        size = file.seek(0, os.SEEK_END)
        if offset >= size:
            raise StoreError(f"{path} has no line {line} to cut before; nothing was changed")
        aside = keep_aside(path, offset, size - offset)
        file.truncate(offset)
    return aside


def _whole_lines(path: Path) -> Iterator[tuple[int, int, bytes]]:
    """Yield (line number from 1, byte offset, line) of every whole record after the header."""
    try:
        file = path.open("rb")
    except OSError as error:
        raise StoreError(
            f"cannot read the journal {path}: {error.strerror}; expected a run folder"
        ) from error
    with file:
        offset = 0
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return
            why = damage(line)
            if why:
                raise _corrupt(path, number, offset, why)
            if number == 1:
                _check_header(path, line[9:-1])
            else:
                yield number, offset, line
            offset += len(line)


def _check_header(path: Path, body: bytes) -> None:
    try:
        header = json.loads(body)
        form, version = header["format"], header["version"]
    except (ValueError, KeyError, TypeError):
        form = version = None
    if form != "rollwright-journal" or not isinstance(version, int):
        raise StoreError(f"{path} is not a journal: its first line is not a journal header")
    if version > FORMAT_VERSION:
        raise StoreError(
            f"{path} has journal format {version}, this rollwright reads up to {FORMAT_VERSION}: update it"
        )


def _corrupt(path: Path, number: int, offset: int, why: str) -> JournalCorrupt:
    if number == 1:
        advice = "Restore it from a copy, or start a new run."
    else:
        advice = (
            f"The {number - 2} records before it are whole. Restore the file from a copy; or go on from the "
            f"last whole record: `rollwright.store.journal.cut_before({str(path)!r}, {number})` moves this "
            "line and all after it to a side file, and their rollouts are made again."
        )
    return JournalCorrupt(f"{path}: line {number} (byte {offset}) is damaged: {why}. {advice}")
