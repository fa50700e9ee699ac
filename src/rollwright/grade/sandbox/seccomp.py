"""A filter of system calls: no sockets but local ones, no new namespaces, no tracing, no kernel interfaces.

Standard library only. What is refused gives EPERM (or ENOSYS, where the C library then takes an older call),
so a program sees an exception.
"""

from __future__ import annotations

import ctypes
import errno
import os

# name -> number on x86_64 and on aarch64
_REFUSED = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "unshare": (272, 97),
    "setns": (308, 268),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsmount": (432, 432),
    "mount_setattr": (442, 442),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "kexec_load": (246, 104),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "open_by_handle_at": (304, 265),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "syslog": (103, 116),
    "quotactl": (179, 60),
    "acct": (163, 89),
    "pidfd_getfd": (438, 438),
}
_CLONE, _CLONE3, _SOCKET = (56, 220), (435, 435), (41, 198)
# Calls whose first argument is a process.
_SIGNALS = {"kill": (62, 129), "tkill": (200, 130), "tgkill": (234, 131)}
_QUEUED = {"rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240), "pidfd_send_signal": (424, 424)}
_OF_PROCESSES = {
    "prlimit64": (302, 261),
    "sched_setaffinity": (203, 122),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "sched_setattr": (314, 274),
}
_SETPRIORITY = (141, 140)
_NEW_NAMESPACES = 0x7E020000
_AF_UNIX = 1
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}

_LOAD, _JUMP_EQUAL, _JUMP_SET, _JUMP_GREATER_EQUAL, _RETURN = 0x20, 0x15, 0x45, 0x35, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER, _ARCH, _FIRST_ARGUMENT = 0, 4, 16  # places in struct seccomp_data, little endian
_X32_BIT = 0x40000000

Instruction = tuple[int, int, int, int]  # code, jump if true, jump if false, operand


def is_known() -> bool:
    """Whether there is a filter for this machine's processor."""
    return os.uname().machine in _MACHINES


def program(
    local_sockets: bool = True, own_pid: int | None = None, signals: bool = True
) -> list[Instruction]:
    """Return the filter's instructions for this machine.

    Args:
        local_sockets: whether sockets with names in the file system are allowed; pairs always are.
        own_pid: if given, no other process may be limited or scheduled: for a user who has others.
        signals: whether other processes than ``own_pid`` may be signalled.
    """
    column, arch = _MACHINES[os.uname().machine]
    refuse = _ERRNO | errno.EPERM
    code: list[Instruction] = [
        (_LOAD, 0, 0, _ARCH),
        (_JUMP_EQUAL, 1, 0, arch),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        (_JUMP_GREATER_EQUAL, 0, 1, _X32_BIT),
        (_RETURN, 0, 0, _KILL),
    ]
    refused, of_processes = list(_REFUSED.values()), list[tuple[int, int]]()
    if own_pid is not None:
        refused.append(_SETPRIORITY)
        of_processes += _OF_PROCESSES.values()
        if not signals:
            refused += _QUEUED.values()
            of_processes += _SIGNALS.values()
    for numbers in refused:
        code += [(_JUMP_EQUAL, 0, 1, numbers[column]), (_RETURN, 0, 0, refuse)]
    code += [(_JUMP_EQUAL, 0, 1, _CLONE3[column]), (_RETURN, 0, 0, _ERRNO | errno.ENOSYS)]
    for numbers in of_processes:
        code += [
            (_JUMP_EQUAL, 0, 5, numbers[column]),
            (_LOAD, 0, 0, _FIRST_ARGUMENT),
            (_JUMP_EQUAL, 2, 0, 0),
            (_JUMP_EQUAL, 1, 0, own_pid or 0),
            (_RETURN, 0, 0, refuse),
            (_RETURN, 0, 0, _ALLOW),
        ]
    code += [
        (_JUMP_EQUAL, 0, 4, _CLONE[column]),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_JUMP_SET, 0, 1, _NEW_NAMESPACES),
        (_RETURN, 0, 0, refuse),
        (_RETURN, 0, 0, _ALLOW),
        (_JUMP_EQUAL, 0, 3, _SOCKET[column]),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_JUMP_EQUAL, int(local_sockets), 0, _AF_UNIX),
        (_RETURN, 0, 0, refuse),
        (_RETURN, 0, 0, _ALLOW),
    ]
    return code


class _Filter(ctypes.Structure):
    _fields_ = [
        ("code", ctypes.c_uint16),
        ("jt", ctypes.c_uint8),
        ("jf", ctypes.c_uint8),
        ("k", ctypes.c_uint32),
    ]


class _Program(ctypes.Structure):
    _fields_ = [("len", ctypes.c_uint16), ("filter", ctypes.POINTER(_Filter))]


def install(local_sockets: bool = True, own_pid: int | None = None, signals: bool = True) -> None:
    """Put the filter on this process and all that it starts; needs `kernel.no_new_privileges` before.

    Args:
        local_sockets, own_pid, signals: see `program`.

    Raises:
        OSError: the kernel has none.
    """
    lines = program(local_sockets, own_pid, signals)
    array = (_Filter * len(lines))(*(_Filter(*line) for line in lines))
    libc = ctypes.CDLL(None, use_errno=True)
    zero = ctypes.c_ulong(0)
    if libc.prctl(22, ctypes.c_ulong(2), ctypes.byref(_Program(len(lines), array)), zero, zero) < 0:
        raise OSError(ctypes.get_errno(), "seccomp: " + os.strerror(ctypes.get_errno()))
