"""The first process of one program: makes its surroundings, watches what it uses, says how it ended.

In a process namespace it is number 1: whoever loses a parent becomes its child, and when it ends, the
kernel kills all others. It is never the program: it keeps its rights, and the program has none. Standard
library only.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from rollwright.grade.sandbox import harness, kernel, processes, root, wire

_WATCH_S = 0.03
_MARGIN = 16  # the kernel's limit on processes lies above ours, so that going over ours is seen
_SHARED_MARGIN = 256


@dataclass(frozen=True, slots=True)
class Place:
    """What a zygote found out about where it runs.

    Args:
        own_processes: a descriptor of the zygote's process namespace; -1 without namespaces.
        uid, gid: whom programs run as.
        is_private: nobody else runs as them.
        folder: where a program's working folder is made, without namespaces.
        landlock: the version that the kernel offers, 0 for none.
        can_watch: programs' processes can be seen.
        old_kernel: limits on processes count those of the user everywhere, also with namespaces.
    """

    own_processes: int
    uid: int
    gid: int
    is_private: bool
    folder: Path
    landlock: int
    can_watch: bool
    old_kernel: bool

    @property
    def has_namespaces(self) -> bool:
        return self.own_processes >= 0


def main(place: Place, job: dict[str, Any], fds: list[int], report: int) -> NoReturn:
    """Run one program.

    Args:
        place: see `Place`.
        job: ``limits`` and what the harness needs.
        fds: the program's input, output, error output and channel.
        report: where the last word goes.
    """
    result: dict[str, Any] = {}
    try:
        kernel.die_with_parent()
        os.setsid()
        result = _run(place, job, fds, report)
    except BaseException as error:  # the parent must hear of anything that goes wrong on our side
        result = {"failed": f"{type(error).__name__}: {error}"}
    finally:
        try:
            wire.write(report, result)
        finally:
            os._exit(0)


def _run(place: Place, job: dict[str, Any], fds: list[int], report: int) -> dict[str, Any]:
    limits = job["limits"]
    folder, can_watch = _surroundings(place, limits)
    cap = _process_cap(place, limits["num_processes"])
    held = (place.has_namespaces, place.is_private, place.landlock)
    cage = harness.Cage(folder, place.uid, place.gid, cap, *held)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    pid = os.fork()
    if pid == 0:
        try:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
            harness.main(job, fds, cage)
        finally:
            os._exit(70)
    for fd in fds:
        os.close(fd)
    return _watch(pid, None if place.has_namespaces else folder, can_watch, limits)


def _surroundings(place: Place, limits: dict[str, Any]) -> tuple[str, bool]:
    """Return the working folder, and whether processes can be watched."""
    if place.has_namespaces:
        kernel.unshare(kernel.CLONE_NEWNS | kernel.CLONE_NEWIPC)
        return "/tmp", root.private_mounts(limits, place.uid, place.gid)
    kernel.adopt_orphans()
    folder = place.folder / "work"
    folder.mkdir(mode=0o700)
    if os.geteuid() == 0:
        os.chown(folder, place.uid, place.gid)
    return str(folder), True


def _process_cap(place: Place, num: int) -> int | None:
    """Return the kernel's limit on the user's processes, or None where it cannot be told."""
    if place.is_private:
        return num + _MARGIN
    if place.has_namespaces:
        # The namespace's user is counted apart: the zygote with its parent and this process are all others.
        return None if place.old_kernel else num + _MARGIN + 3
    # Other slots' programs count too, and one of them may be a fork bomb that has yet to be seen.
    return processes.num_of_user(place.uid) + num + _SHARED_MARGIN


def _watch(pid: int, folder: str | None, can_watch: bool, limits: dict[str, Any]) -> dict[str, Any]:
    """Wait for the program's end, or until its processes together go over a limit.

    Args:
        pid: the program's process.
        folder: its folder, where the kernel does not limit what all its files hold together.
        can_watch: whether processes can be seen.
        limits: see `rollwright.grade.sandbox.program.Limits`.
    """
    while True:
        signal.sigtimedwait({signal.SIGCHLD}, _WATCH_S)
        while True:
            done, status = os.waitpid(-1, os.WNOHANG)
            if done == pid:
                return {"status": status}
            if done == 0:
                break
        hit = _over(folder, limits) if can_watch else None
        if hit:
            return hit


def _over(folder: str | None, limits: dict[str, Any]) -> dict[str, Any] | None:
    """Return the limit that all of a program's processes together are over."""
    pids = processes.others() if folder is None else processes.descendants(os.getpid())
    num_threads, memory = processes.usage(pids)
    if num_threads > limits["num_processes"]:
        return {"hit": "processes", "detail": f"{num_threads} processes and threads at one time"}
    most = limits["memory_mb"] << 20
    if memory > most and (memory := processes.fair_memory(pids)) > most:
        return {"hit": "memory", "detail": f"{memory >> 20} MiB in {len(pids)} processes"}
    if folder is not None and (size := processes.size_of(Path(folder))) > limits["file_mb"] << 20:
        return {"hit": "files", "detail": f"{size >> 20} MiB or too many files"}
    return None
