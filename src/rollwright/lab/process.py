"""Which process writes a run, seen from outside: no lock is taken, so a writer is never in the way."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rollwright.store.layout import LOCK

_SLACK = 60.0  # seconds that the machine's clock may have been set by since the lock was taken


@dataclass(frozen=True, slots=True)
class Writer:
    """The process that holds a run's lock.

    Args:
        pid, host: as the lock names them.
        state: ``"running"``, ``"suspended"`` (by a stop signal), or ``"elsewhere"``: on another machine, so
            that nobody here can see whether it lives.
        since: wall-clock time at which it took the lock, seconds.
    """

    pid: int
    host: str
    state: Literal["running", "suspended", "elsewhere"]
    since: float


def writer(path: str | Path) -> Writer | None:
    """Return the process that writes a run folder, None if there is none.

    A pid that another process has by now, or whose process is dead but not yet waited for, is nobody.
    """
    lock = Path(path) / LOCK
    try:
        owner, since = json.loads(lock.read_text()), lock.stat().st_mtime
        pid, host = int(owner["pid"]), str(owner["host"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if host != socket.gethostname():
        return Writer(pid, host, "elsewhere", since)
    if not _exists(pid):
        return None
    letter, began = _status(pid)
    if letter in ("Z", "X") or (began is not None and began > since + _SLACK):
        return None
    return Writer(pid, host, "suspended" if letter in ("T", "t") else "running", since)


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return pid > 0


def _status(pid: int) -> tuple[str, float | None]:
    """Return (state letter, wall-clock time of its start) as Linux tells; ("", None) elsewhere."""
    try:
        # The name in brackets may hold anything, brackets and blanks too.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        boot = next(
            int(line.split()[1])
            for line in Path("/proc/stat").read_text().splitlines()
            if line.startswith("btime ")
        )
        return fields[0], boot + int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, StopIteration):
        return "", None
