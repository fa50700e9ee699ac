"""Count, watch and kill processes, and remove what they leave. Standard library only."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import time
from collections.abc import Iterable
from pathlib import Path

_PROC = Path("/proc")
_MOST_FILES = 4096
_PAGE = resource.getpagesize()


def others() -> list[int]:
    """Return all processes that this one sees, but for itself."""
    return [
        int(path.name) for path in _PROC.iterdir() if path.name.isdigit() and path.name != str(os.getpid())
    ]


def descendants(pid: int) -> list[int]:
    """Return the children of a process, their children and so on."""
    found, queue = [], [pid]
    while queue:
        at = queue.pop()
        for child in _children(at):
            found.append(child)
            queue.append(child)
    return found


def _children(pid: int) -> list[int]:
    children: list[int] = []
    with contextlib.suppress(OSError):
        for thread in (_PROC / str(pid) / "task").iterdir():
            with contextlib.suppress(OSError):
                children += map(int, (thread / "children").read_text().split())
    return children


def usage(pids: Iterable[int]) -> tuple[int, int]:
    """Return the threads of some processes, and the bytes of memory that are of no file.

    Pages that forks still share are counted for each, so the bytes are an upper bound.
    """
    num_threads = memory = 0
    for pid in pids:
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
            num_threads += int(fields[17])
            pages = (_PROC / str(pid) / "statm").read_text().split()
            memory += max(0, int(pages[1]) - int(pages[2])) * _PAGE
    return num_threads, memory


def fair_memory(pids: Iterable[int]) -> int:
    """Return the bytes of memory of some processes, pages that several hold counted once.

    Exact, and too slow to be asked for often. A process that cannot be looked into counts as `usage` says.
    """
    memory = 0
    for pid in pids:
        try:
            lines = (_PROC / str(pid) / "smaps_rollup").read_text().splitlines()
            memory += sum(int(line.split()[1]) for line in lines if line.startswith("Pss_Anon:")) << 10
        except (FileNotFoundError, ProcessLookupError):  # it is gone
            continue
        except (OSError, ValueError, IndexError):
            memory += usage([pid])[1]
    return memory


def size_of(folder: Path) -> int:
    """Return the bytes that the files below a folder take; a huge number if there are too many to count."""
    size = num = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                size += Path(parent, name).lstat().st_blocks * 512
        num += 1 + len(names)
        if num > _MOST_FILES:
            return 1 << 62
    return size


def remove_tree(folder: Path) -> bool:
    """Remove a folder, whatever rights a program has taken off it and what is in it; whether it is gone.

    Links are not followed. Nobody may be at work in it.
    """
    with contextlib.suppress(OSError):
        folder.chmod(0o700)
        for parent, names, _ in os.walk(folder):
            for name in names:
                if not (path := Path(parent, name)).is_symlink():
                    path.chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()


def num_of_user(uid: int) -> int:
    """Return how many threads a user has on this machine, as far as can be seen."""
    num = 0
    for pid in others():
        with contextlib.suppress(OSError):
            if (_PROC / str(pid)).stat().st_uid == uid:
                num += usage([pid])[0]
    return num


def kill_descendants(timeout_s: float = 5.0) -> bool:
    """Kill all descendants, those whose parents are gone too, and reap them; whether none is left.

    This process must adopt orphans. The killing is repeated, because one may fork while others are killed.
    """
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        for pid in descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if reap():
            return True
        time.sleep(0.002)
    return False


def kill_user(uid: int, gid: int) -> None:
    """Kill all processes of a user at once; needs root. The user must be one that only we use."""
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)
            os.kill(-1, signal.SIGKILL)
        except OSError:  # nobody there
            pass
        finally:
            os._exit(0)
    os.waitpid(pid, 0)


def reap() -> bool:
    """Wait for the children that have ended; whether there are no others."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return True
        if pid == 0:
            return False
