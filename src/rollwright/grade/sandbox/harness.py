"""The program's own process: gives up its rights, runs the code, reports on a channel of its own.

Nothing here is secret from the program, and nothing needs to be: it holds no expected value, and the number
that a result must carry arrives when the code has been loaded. Standard library only.
"""

from __future__ import annotations

import atexit
import errno
import importlib
import linecache
import os
import resource
import sys
import threading
import traceback
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from rollwright.grade.sandbox import kernel, landlock, root, seccomp, values, wire

_CHANNEL = 3
_NAME = "program.py"
_STACK = 64 << 20
_STREAMS = (("stdin", "r", "replace"), ("stdout", "w", "strict"), ("stderr", "w", "backslashreplace"))


@dataclass(frozen=True, slots=True)
class Cage:
    """What the program's process is held by.

    Args:
        folder: its working folder.
        uid, gid: whom it runs as.
        process_cap: the kernel's limit on the user's processes, or None.
        has_namespaces: whether it has its own files and processes; otherwise Landlock must hide others'.
        is_private: whether nobody else runs as that user.
        landlock: the version to use, 0 for none.
    """

    folder: str
    uid: int
    gid: int
    process_cap: int | None
    has_namespaces: bool
    is_private: bool
    landlock: int


def main(job: dict[str, Any], fds: list[int], cage: Cage) -> NoReturn:
    """Confine this process, run the program, report; never returns."""
    try:
        _take(fds)
        _confine(job["limits"], cage)
        for path, text in job["files"].items():
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).write_text(text, encoding="utf-8")
        _refresh(cage.folder)
        wire.write(_CHANNEL, {"kind": "begin"})
    except BaseException as error:
        wire.write(_CHANNEL, {"kind": "failed", "detail": f"{type(error).__name__}: {error}"})
        os._exit(70)
    _report(job, os.getpid())


def _take(fds: list[int]) -> None:
    """Put the descriptors in their places and close all others."""
    for place, fd in enumerate(fds):
        os.dup2(fd, place)
    os.closerange(len(fds), resource.getrlimit(resource.RLIMIT_NOFILE)[1])


def _confine(limits: dict[str, Any], cage: Cage) -> None:
    """Set the limits, become nobody, give up all rights, in this order."""
    os.setsid()
    os.umask(0o077)
    os.chdir(cage.folder)
    memory, size = limits["memory_mb"] << 20, limits["file_mb"] << 20
    seconds = int(limits["timeout_s"]) + 2  # if all clocks outside were gone, it would still end
    for kind, value in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_FSIZE, size),
        (resource.RLIMIT_NOFILE, limits["num_open"]),
        (resource.RLIMIT_STACK, _STACK),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_NPROC, cage.process_cap),
    ):
        if value is not None:
            hard = resource.getrlimit(kind)[1]
            value = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(kind, (value, value))
    if os.geteuid() == 0 and cage.uid != 0:
        kernel.drop_bounding_set()
        os.setgroups([])
        os.setresgid(cage.gid, cage.gid, cage.gid)
        os.setresuid(cage.uid, cage.uid, cage.uid)
    kernel.drop_capabilities()
    kernel.no_new_privileges()
    kernel.die_with_parent()
    if cage.landlock and not cage.has_namespaces:
        landlock.restrict(root.readable(), root.devices(), [cage.folder])
    if seccomp.is_known():
        is_shared = not cage.has_namespaces and not cage.is_private
        own_pid = os.getpid() if is_shared else None
        seccomp.install(cage.has_namespaces, own_pid, cage.landlock >= landlock.SIGNALS_SINCE)


def _refresh(folder: str) -> None:
    """Give the interpreter the look of one that has just started in ``folder``."""
    os.environ.update(HOME=folder, TMPDIR=folder)
    sys.argv = [_NAME]
    sys.path.insert(0, folder)
    for number, (name, mode, errors) in enumerate(_STREAMS):
        lines = 1 if name == "stderr" else -1
        stream = os.fdopen(number, mode, lines, encoding="utf-8", errors=errors, closefd=False)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _report(job: dict[str, Any], pid: int) -> NoReturn:
    """Run the code and say what came of it; only the first process speaks, not those that it forks."""
    try:
        message = _called(job) if job["is_call"] else _run(job)
    except SystemExit as error:
        message = {"kind": "exited", "code": _exit_code(error)}
    except BaseException as error:  # decided: nothing waits for the threads that are left
        message = _raised(error)
    if not job["is_call"] and message["kind"] != "raised":
        message = _finish() or message
    if os.getpid() == pid:
        wire.write(_CHANNEL, message)
    os._exit(message.get("code", 0) & 255)


def _run(job: dict[str, Any]) -> dict[str, Any]:
    """Run the code as a program."""
    _load(job["code"], "__main__")
    return {"kind": "done"}


def _called(job: dict[str, Any]) -> dict[str, Any]:
    """Load the code, then ask for the call; the number that comes with it goes back with its value."""
    space = _load(job["code"], "program")
    wire.write(_CHANNEL, {"kind": "loaded"})
    call = wire.read(_CHANNEL)
    if call is None:
        os._exit(0)
    args = [values.decode(one) for one in call["args"]]
    kwargs = {name: values.decode(one) for name, one in call["kwargs"].items()}
    value = _find(call["function"], space)(*args, **kwargs)
    return {"kind": "value", "number": call["number"], "value": values.encode(value)}


def _load(code: str, name: str) -> dict[str, Any]:
    module = types.ModuleType(name)
    module.__file__ = _NAME
    sys.modules[name] = module
    if name != "__main__":
        sys.modules["__main__"] = module
    linecache.cache[_NAME] = (len(code), None, code.splitlines(keepends=True), _NAME)
    exec(compile(code, _NAME, "exec", dont_inherit=True), module.__dict__)
    return module.__dict__


def _find(name: str, space: dict[str, Any]) -> Any:
    """Return what a name means: in the program, in a module, of an instance of a class."""
    module, colon, path = name.rpartition(":")
    first, *rest = path.split(".")
    if colon:
        found = getattr(importlib.import_module(module), first)
    elif first in space:
        found = space[first]
    else:
        raise NameError(f"the program defines no {first!r}")
    for part in rest:
        found = getattr(found() if isinstance(found, type) else found, part)
    return found


def _finish() -> dict[str, Any] | None:
    """End as an interpreter does: threads, exit handlers, what is left to write; return what went wrong."""
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and not stream.closed:
                stream.flush()
    except BaseException as error:
        return _raised(error)
    return None


def _exit_code(error: SystemExit) -> int:
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code
    print(error.code, file=sys.stderr)
    return 1


def _raised(error: BaseException) -> dict[str, Any]:
    """Describe an exception, and print it as the interpreter would."""
    message: dict[str, Any] = {"kind": "raised", "type": "Exception", "text": "", "limit": None}
    try:
        message["limit"] = _limit_of(error)
        message["type"] = type(error).__name__
        message["text"] = "".join(traceback.format_exception_only(error)).strip()[-500:]
        lines = [
            frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == _NAME
        ]
        message["line"] = lines[-1] if lines else None
        traceback.print_exception(error.with_traceback(_own_part(error.__traceback__)))
        sys.stdout.flush()
    except BaseException:  # the exception's own methods may do anything
        pass
    return message


def _own_part(trace: types.TracebackType | None) -> types.TracebackType | None:
    while trace is not None and trace.tb_frame.f_code.co_filename != _NAME:
        trace = trace.tb_next
    return trace


def _limit_of(error: BaseException) -> str | None:
    """Return the limit that an exception comes from, if it does."""
    if isinstance(error, MemoryError):
        return "memory"
    if isinstance(error, OSError):
        if error.errno in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EMFILE, errno.ENFILE):
            return "files"
        if error.errno == errno.ENOMEM:
            return "memory"
        if error.errno == errno.EAGAIN and isinstance(error, BlockingIOError):
            return "processes"
    if isinstance(error, RuntimeError) and "can't start new thread" in str(error):
        return "processes"
    return None
