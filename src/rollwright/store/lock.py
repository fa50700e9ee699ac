"""One writer per run folder."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
from pathlib import Path
from types import TracebackType

from rollwright.errors import StoreError
from rollwright.store.layout import LOCK


class WriterLock:
    """The right to write into a folder; the kernel frees it when the holder dies, however it dies.

    Raises:
        StoreError: another process (or another part of this one) holds it; its pid is named.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        path = self.folder / LOCK
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StoreError(f"cannot open {path} for writing: {error.strerror}") from error
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(self._fd, 4096, 0)
            os.close(self._fd)
            raise StoreError(_refusal(self.folder, holder)) from error
        owner = json.dumps({"pid": os.getpid(), "host": socket.gethostname()}) + "\n"
        os.ftruncate(self._fd, 0)
        # The lock itself holds without these bytes: they only let a refusal name the holder.
        try:
            os.pwrite(self._fd, owner.encode(), 0)
        except OSError:
            os.ftruncate(self._fd, 0)

    def release(self) -> None:
        """Give the folder free, and name no holder any more. Safe to call twice."""
        if self._fd >= 0:
            # A reader takes the pid in it for a writer for as long as that process lives.
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, 0)
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> WriterLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def _refusal(folder: Path, holder: bytes) -> str:
    try:
        owner = json.loads(holder)
        pid, host = int(owner["pid"]), str(owner["host"])
    except (ValueError, KeyError, TypeError):
        return f"{folder} is being written by another process (unknown pid); one writer at a time"
    who = f"pid {pid} on {host}"
    if pid == os.getpid():
        who = f"this process (pid {pid}); close its run folder first"
    elif host == socket.gethostname() and not _alive(pid):
        who += ", which has ended: a child process of it still holds the lock and must end first"
    else:
        who += "; wait for it, stop it, or choose another folder"
    return f"{folder} is being written by {who}"


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
