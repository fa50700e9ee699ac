"""Calls of the Linux kernel that Python's library lacks. Standard library only."""

from __future__ import annotations

import ctypes
import os
import signal

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x20000, 0x4000000, 0x8000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 32, 4096, 16384, 1 << 18
_LOCKED = {"ST_NOEXEC": MS_NOEXEC, "ST_NOATIME": 1024, "ST_NODIRATIME": 2048, "ST_RELATIME": 1 << 21}
MNT_DETACH = 2

_PR_SET_PDEATHSIG, _PR_CAPBSET_DROP, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 24, 36, 38
_CAPABILITY_VERSION_3 = 0x20080522
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def unshare(flags: int) -> None:
    """Leave the namespaces that ``flags`` names for new ones."""
    _check(_libc.unshare(flags), f"unshare({flags:#x})")


def return_to(namespace: int, kind: int) -> None:
    """Go back into the namespace that a descriptor stands for."""
    _check(_libc.setns(namespace, kind), "setns")


def mount(source: str, target: str, kind: str | None, flags: int, data: str = "") -> None:
    """Mount a file system, or bind one again."""
    words = [word.encode() if word is not None else None for word in (source, target, kind, data)]
    result = _libc.mount(words[0], words[1], words[2], ctypes.c_ulong(flags), words[3])
    _check(result, f"mount {kind or source} on {target}")


def bind_read_only(source: str, target: str) -> None:
    """Show a file or folder at ``target``, without the right to change it or to use devices or setuid in it.

    The flags that the mount has already are kept: a user namespace may not take them off.
    """
    mount(source, target, None, MS_BIND | MS_REC)
    flags = os.statvfs(target).f_flag
    kept = sum(ms for name, ms in _LOCKED.items() if flags & getattr(os, name))
    mount("none", target, None, MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV | kept)


def enter_root(folder: str) -> None:
    """Make ``folder``, a mount point, the root of this mount namespace, and put the old one away."""
    os.chdir(folder)
    number = _PIVOT_ROOT.get(os.uname().machine)
    if number is None:
        raise OSError(f"pivot_root is not known on {os.uname().machine}")
    _check(_libc.syscall(number, b".", b"."), "pivot_root")
    _check(_libc.umount2(b".", MNT_DETACH), "umount of the old root")
    os.chdir("/")


def die_with_parent() -> None:
    """Have this process killed when the thread that made it ends."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def no_new_privileges() -> None:
    """Give up what a setuid program could give."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def _prctl(option: int, value: int) -> None:
    zero = ctypes.c_ulong(0)
    _check(_libc.prctl(option, ctypes.c_ulong(value), zero, zero, zero), f"prctl({option})")


def drop_bounding_set() -> None:
    """Give up the right to ever gain a capability."""
    zero = ctypes.c_ulong(0)
    for number in range(64):
        if _libc.prctl(_PR_CAPBSET_DROP, ctypes.c_ulong(number), zero, zero, zero) < 0:
            break  # the kernel has no more of them


def drop_capabilities() -> None:
    """Give up the capabilities that this process has."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    _check(_libc.capset(header, (ctypes.c_uint32 * 6)()), "capset")
