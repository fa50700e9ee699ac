"""Files of whole lines: repair of a torn tail, and appends that a full disk cannot half-write."""

from __future__ import annotations

import contextlib
import errno
import os
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from rollwright.errors import StoreError

_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Torn:
    """Bytes after the last newline, cut off a file and kept aside.

    Args:
        num_bytes: how many.
        kept_in: the side file that holds them.
    """

    num_bytes: int
    kept_in: Path


def end_of_lines(path: Path) -> tuple[int, int]:
    """Return (offset after the last newline, size of the file) in bytes."""
    with path.open("rb") as file:
        size = position = file.seek(0, os.SEEK_END)
        while position > 0:
            start = max(0, position - _BLOCK)
            file.seek(start)
            found = file.read(position - start).rfind(b"\n")
            if found >= 0:
                return start + found + 1, size
            position = start
    return 0, size


def cut_torn_tail(path: Path) -> Torn | None:
    """Cut ``path`` back to its last newline and keep the torn bytes in a side file.

    The side file is complete and on disk before the cut, so a crash in between loses nothing.

    Returns:
        What was cut, or None when the file ends with a newline or is empty.
    """
    end, size = end_of_lines(path)
    if end == size:
        return None
    aside = keep_aside(path, end, size - end)
    os.truncate(path, end)
    return Torn(size - end, aside)


def keep_aside(path: Path, offset: int, num_bytes: int) -> Path:
    """Copy bytes of ``path`` to a new file ``<name>.torn-<offset>[.<n>]`` beside it and return it."""
    number, name = 0, f"{path.name}.torn-{offset}"
    while True:
        aside = path.with_name(name if number == 0 else f"{name}.{number}")
        try:
            out = aside.open("xb")
        except FileExistsError:
            number += 1
            continue
        with out, path.open("rb") as source:
            try:
                _copy(source, out, offset, num_bytes)
            except OSError:
                aside.unlink()
                raise
        return aside


def _copy(source: BinaryIO, out: BinaryIO, offset: int, num_bytes: int) -> None:
    source.seek(offset)
    while num_bytes > 0 and (block := source.read(min(_BLOCK, num_bytes))):
        out.write(block)
        num_bytes -= len(block)
    out.flush()
    os.fsync(out.fileno())


def sync_folder(folder: Path) -> None:
    """Make the names in ``folder`` durable (fsync of the directory)."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_atomic(path: Path, data: bytes) -> None:
    """Write a whole file or nothing: a temporary file, fsync, rename.

    Raises:
        StoreError: it could not be written; an older file of the name is as it was.
    """
    draft = path.with_name(f".{path.name}.part")
    try:
        with draft.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise StoreError(f"cannot write {path}: {reason(error)}; nothing there was changed") from error


def reason(error: OSError) -> str:
    """Return why a write failed, and for a full disk what to do."""
    text = error.strerror or str(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return f"{text} (free some space and go on)"
    return text


class LineFile:
    """An append-only file of whole lines with one writer.

    The writer knows the offset where the next line belongs and writes there (`os.pwrite`), so a
    write that failed half way is overwritten by the next one, never glued to it.

    Args:
        path: the file; made if it is missing, cut back to its last newline if its tail is torn.

    Raises:
        StoreError: it cannot be opened or repaired.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = -1
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            self.torn = cut_torn_tail(path)
            self.offset = os.fstat(self._fd).st_size
        except OSError as error:
            self.close()
            raise StoreError(f"cannot open {path} for appending: {reason(error)}") from error

    def write(self, lines: bytes | bytearray) -> tuple[int, OSError | None]:
        """Append whole lines; the bytes are the kernel's before this returns.

        Returns:
            (kept, error): the bytes of the whole lines that are in the file, and what stopped the
            rest. ``kept == len(lines)`` exactly when ``error`` is None.
        """
        done = 0
        view = memoryview(lines)
        try:
            while done < len(lines):
                num = os.pwrite(self._fd, view[done:], self.offset + done)
                if num == 0:
                    raise OSError(errno.EIO, "the write made no progress")
                done += num
        except OSError as error:
            kept = bytes(view[:done]).rfind(b"\n") + 1
            self.offset += kept
            self._cut_back()
            return kept, error
        finally:
            view.release()
        self.offset += done
        return done, None

    def _cut_back(self) -> None:
        # If even this fails, the next open repairs the tail and the next write overwrites it.
        with contextlib.suppress(OSError):
            os.ftruncate(self._fd, self.offset)

    def sync(self) -> OSError | None:
        """Force everything written to the device; return what went wrong, if anything did."""
        try:
            os.fsync(self._fd)
        except OSError as error:
            return error
        return None

    def close(self) -> None:
        """Close the file. Safe to call twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
