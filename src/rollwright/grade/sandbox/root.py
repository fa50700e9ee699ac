"""A small root: the system's programs and libraries and this interpreter, read-only, and nothing else.

Standard library only.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from rollwright.grade.sandbox import kernel

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_FILES = ("/etc/ld.so.cache", "/etc/localtime", "/etc/alternatives")
_DEVICES = ("null", "zero", "full", "random", "urandom")
_KEPT = ".kept"  # where what lies below /tmp is seen too
_NO = kernel.MS_NOSUID | kernel.MS_NODEV


def readable() -> list[str]:
    """Return the files and folders that a program may read: the system's and this interpreter's."""
    interpreter = Path(sys.executable).resolve().parent
    prefixes = (sys.base_prefix, sys.base_exec_prefix, sys.prefix, str(interpreter))
    return [*_SYSTEM, *_FILES, *prefixes]


def below_tmp() -> list[Path]:
    """Return the interpreter's folders that a program's own ``/tmp`` would hide."""
    found: list[Path] = []
    for name in sorted({sys.base_prefix, sys.base_exec_prefix, sys.prefix}):
        path = Path(name)
        if path.is_relative_to("/tmp") and not any(path.is_relative_to(other) for other in found):
            found.append(path)
    return found


def devices() -> list[str]:
    """Return the devices that a program may use."""
    return [f"/dev/{name}" for name in _DEVICES]


def enter(base: Path) -> bool:
    """Build the root at ``base``, an empty folder, and make it this process's.

    Needs namespaces of mounts and processes of its own.

    Returns:
        Whether there can be a ``/proc``; some containers allow none. In a user namespace one may be mounted
        only where one is seen already, so this one must be there before the old root goes.

    Raises:
        OSError: the kernel does not allow it.
    """
    kernel.mount("none", "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
    kernel.mount("tmpfs", str(base), "tmpfs", _NO, "mode=755,size=1m")
    shown: list[Path] = []
    for name in readable():
        _show(Path(name), base, shown)
    for name in ("proc", "tmp", "dev", "dev/shm"):
        (base / name).mkdir(exist_ok=True)
    for number, path in enumerate(below_tmp()):
        (base / _KEPT / str(number)).mkdir(parents=True)
        kernel.bind_read_only(str(path), str(base / _KEPT / str(number)))
    for device in devices():
        (base / device[1:]).touch()
        kernel.mount(device, str(base / device[1:]), None, kernel.MS_BIND)
    has_processes = _mount_processes(base / "proc")
    kernel.mount("none", str(base), None, kernel.MS_REMOUNT | kernel.MS_BIND | kernel.MS_RDONLY | _NO)
    kernel.enter_root(str(base))
    return has_processes


def _show(source: Path, base: Path, shown: list[Path]) -> None:
    """Show one file, folder or link at the same path below ``base``, unless it is seen there already."""
    target = base / source.relative_to("/")
    if source.is_symlink() and source.parent == Path("/"):
        target.symlink_to(source.readlink())
        return
    if not source.exists() or any(source.is_relative_to(other) for other in shown):
        return
    if source.is_dir():
        target.mkdir(parents=True, exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
    kernel.bind_read_only(str(source), str(target))
    shown.append(source)


def private_mounts(limits: dict[str, Any], uid: int, gid: int) -> bool:
    """Mount what one program has for itself: its folder, shared memory, and its processes.

    Returns:
        Whether it has a ``/proc``.
    """
    size = f"size={limits['file_mb']}m,nr_inodes=4096,uid={uid},gid={gid}"
    kernel.mount("tmpfs", "/tmp", "tmpfs", _NO, f"{size},mode=700")
    for number, path in enumerate(below_tmp()):
        path.mkdir(parents=True, exist_ok=True)
        kernel.bind_read_only(f"/{_KEPT}/{number}", str(path))
    kernel.mount("tmpfs", "/dev/shm", "tmpfs", _NO | kernel.MS_NOEXEC, f"{size},mode=700")
    return _mount_processes(Path("/proc"))


def _mount_processes(folder: Path) -> bool:
    try:
        kernel.mount("proc", str(folder), "proc", _NO | kernel.MS_NOEXEC)
    except OSError:
        return False
    return True
