"""A bare interpreter that runs one program after the other, each in processes that it forks.

    python -m rollwright.grade.sandbox.zygote SETTINGS

It reads jobs from a socket, with the program's descriptors, and says when a program and all its processes
are gone. At the end of its input it ends, and so does what it runs. Standard library only.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import random
import select
import signal
import socket
import sys
from pathlib import Path
from typing import Any

from rollwright.grade.sandbox import init, kernel, landlock, processes, root, wire

_COMMON = (
    "array bisect cmath collections copy dataclasses datetime enum functools heapq io itertools json math"
    " operator queue random re string struct time typing"
)
_NUM_FDS = 5


def main() -> None:
    """Prepare the place, say what it is like, serve until the input ends."""
    settings = json.loads(sys.argv[1])
    control = socket.socket(fileno=settings["fd"])
    try:
        place, lock = _enter(settings)
        _prepare(settings)
    except (OSError, ImportError) as error:
        wire.write(control.fileno(), {"refused": f"{type(error).__name__}: {error}"})
        return
    names = ("uid", "is_private", "landlock", "can_watch")
    facts = {name: getattr(place, name) for name in names}
    wire.write(control.fileno(), facts)
    gc.collect()
    gc.freeze()
    while (received := _receive(control)) is not None:
        if not _serve(place, control, *received):
            break
    del lock


def _enter(settings: dict[str, Any]) -> tuple[init.Place, socket.socket | None]:
    """Go where programs run; return also what holds the private user's number."""
    base, lock, own_processes, can_watch = Path(settings["folder"]), None, -1, True
    uid, gid, is_root = os.getuid(), os.getgid(), os.geteuid() == 0
    kernel.adopt_orphans()
    if is_root:
        uid, lock = _private_user()
        gid = uid
    if settings["namespaces"]:
        flags = kernel.CLONE_NEWNS | kernel.CLONE_NEWNET | kernel.CLONE_NEWIPC | kernel.CLONE_NEWUTS
        flags |= kernel.CLONE_NEWPID
        if is_root:
            kernel.unshare(flags)
        else:
            kernel.unshare(flags | kernel.CLONE_NEWUSER)
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
            Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
        own_processes = _become_first()
        can_watch = root.enter(base)
    elif is_root and not _can_read(uid, gid):
        raise OSError(
            f"the interpreter in {sys.base_prefix} cannot be read by another user than root; without"
            " namespaces programs run as such a user, and their imports would fail"
        )
    number = landlock.version() if settings["landlock"] else 0
    release = tuple(int(part) for part in os.uname().release.split(".")[:2])
    old = release < (5, 14)
    return init.Place(own_processes, uid, gid, is_root, base, number, can_watch, old), lock


def _become_first() -> int:
    """Go on as the first process of the new process namespace, so that all that it runs ends with it.

    Returns:
        A descriptor of that namespace: a new one for a program can only be made from there.
    """
    pid = os.fork()
    if pid:
        os.closerange(3, 1024)  # the socket's end must be the other's alone
        os.waitpid(pid, 0)
        os._exit(0)
    kernel.die_with_parent()
    return os.open("/proc/self/ns/pid", os.O_RDONLY)


def _can_read(uid: int, gid: int) -> bool:
    """Whether a user can read the standard library."""
    pid = os.fork()
    if pid == 0:
        try:
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)
            Path(os.__file__).read_bytes()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(pid, 0)[1] == 0


def _private_user() -> tuple[int, socket.socket]:
    """Return a user number that no account and no other sandbox has, and what reserves it.

    A name of an abstract socket is a lock that goes when its holder goes, however it ends.
    """
    import pwd

    taken = {entry.pw_uid for entry in pwd.getpwall()}
    for _ in range(1000):
        uid = random.SystemRandom().randrange(40_000, 60_000)
        lock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        with contextlib.suppress(OSError):
            if uid not in taken:
                lock.bind(f"\0rollwright-sandbox-{uid}")
                return uid, lock
        lock.close()
    raise OSError("no free user number between 40000 and 60000")


def _prepare(settings: dict[str, Any]) -> None:
    """Import what programs often need, and hide where this code was found."""
    for name in (*_COMMON.split(), *settings["preload"]):
        importlib.import_module(name)
    prefixes = {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix}
    kept = [path for path in sys.path if any(path.startswith(prefix + "/") for prefix in prefixes)]
    sys.path[:] = [path for path in kept if settings["packages"] or "-packages" not in path]
    os.environ.pop("PYTHONPATH", None)
    sys.dont_write_bytecode = True


def _receive(control: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Return the next job and its descriptors; None at the end."""
    while True:
        data, fds, _, _ = socket.recv_fds(control, 1, _NUM_FDS)
        if not data:
            return None
        job = wire.read(control.fileno())
        if job is None:
            return None
        if len(fds) == _NUM_FDS:
            return job, fds
        # A "kill" that crossed with the end of its program.


def _serve(place: init.Place, control: socket.socket, job: dict[str, Any], fds: list[int]) -> bool:
    """Run one program to its end; whether there is somebody to go on for."""
    if place.has_namespaces:
        kernel.return_to(place.own_processes, kernel.CLONE_NEWPID)
        kernel.unshare(kernel.CLONE_NEWPID)
    pid = os.fork()
    if pid == 0:
        control.close()
        init.main(place, job, fds[:-1], fds[-1])
    for fd in fds:
        os.close(fd)
    is_wanted = _wait(pid, control)
    problem = _clean(place)
    if is_wanted:
        wire.write(control.fileno(), {"ended": True, "problem": problem})
    return is_wanted


def _wait(pid: int, control: socket.socket) -> bool:
    """Wait for a program's first process; any word from the parent, also its end, kills it."""
    is_wanted = True
    watched = os.pidfd_open(pid)
    try:
        ready, _, _ = select.select([control.fileno(), watched], [], [])
        if control.fileno() in ready:
            is_wanted = socket.recv_fds(control, 1, 0)[0] != b"" and wire.read(control.fileno()) is not None
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    finally:
        os.close(watched)
    return is_wanted


def _clean(place: init.Place) -> str | None:
    """Kill and remove what is left; in a process namespace nothing is. Return what went wrong."""
    if place.has_namespaces:
        return None if processes.reap() else "a child of no program is left"
    if place.is_private:
        processes.kill_user(place.uid, place.gid)
    if not processes.kill_descendants():
        return "processes of the program could not be killed"
    folder = place.folder / "work"
    return None if processes.remove_tree(folder) else f"{folder} could not be removed"


if __name__ == "__main__":
    main()
