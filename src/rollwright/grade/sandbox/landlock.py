"""Landlock: what a process may read, write and signal, where there are no namespaces. Standard library only.

Since Linux 5.13 for files, since 6.12 for signals. Nobody needs rights to give up rights.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable

_CREATE, _ADD_RULE, _RESTRICT = 444, 445, 446  # the same numbers on all processors
_VERSION, _PATH_BENEATH = 1, 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | 1 << 14
_NUM_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}  # rights on files, by version; 16 from 5 on
_SCOPE_SOCKETS, _SCOPE_SIGNALS = 1, 2
SIGNALS_SINCE = 6

_libc = ctypes.CDLL(None, use_errno=True)


def version() -> int:
    """Return the version that the kernel offers; 0 if none."""
    found: int = _libc.syscall(_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION))
    return max(0, found)


def restrict(readable: Iterable[str], devices: Iterable[str], writable: Iterable[str]) -> None:
    """Allow only these files and folders, with what is below them; and signals to own descendants only.

    Args:
        readable: to read and to execute.
        devices: to read and to write.
        writable: for everything.

    Raises:
        OSError: the kernel refuses.
    """
    number = version()
    everything = (1 << _NUM_RIGHTS.get(number, 16)) - 1
    attributes = struct.pack("<Q", everything)
    if number >= SIGNALS_SINCE:
        attributes += struct.pack("<QQ", 0, _SCOPE_SOCKETS | _SCOPE_SIGNALS)
    rules = _call(_CREATE, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint32(0))
    try:
        for paths, rights in (
            (readable, _EXECUTE | _READ_FILE | _READ_DIR),
            (devices, _READ_FILE | _WRITE_FILE),
            (writable, everything),
        ):
            for path in paths:
                _allow(rules, path, rights & everything)
        _call(_RESTRICT, ctypes.c_int(rules), ctypes.c_uint32(0))
    finally:
        os.close(rules)


def _allow(rules: int, path: str, rights: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        if not os.path.isdir(path):  # noqa: PTH112 - the same look at the file system, in one call
            rights &= _OF_FILES
        rule = struct.pack("<Qi", rights, fd)
        _call(_ADD_RULE, ctypes.c_int(rules), ctypes.c_int(_PATH_BENEATH), rule, ctypes.c_uint32(0))
    finally:
        os.close(fd)


def _call(number: int, *args: object) -> int:
    result: int = _libc.syscall(number, *args)
    if result < 0:
        raise OSError(ctypes.get_errno(), f"landlock: {os.strerror(ctypes.get_errno())}")
    return result
