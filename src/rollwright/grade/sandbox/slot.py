"""The parent's side of one zygote: gives it programs, reads what comes back, holds the clock."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import socket
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import rollwright
from rollwright.grade.sandbox import processes, values, wire
from rollwright.grade.sandbox.ended import Run, outcome_of
from rollwright.grade.sandbox.program import Limits, Outcome, Program

SETUP_S = 30.0  # to prepare a program's surroundings: not its own time
CLEANUP_S = 15.0
_ZYGOTE = "rollwright.grade.sandbox.zygote"
_ENV = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "PYTHONHASHSEED": "0",  # the same program gives the same verdict
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}


class Refused(Exception):
    """The kernel does not allow what was asked for."""


class Lost(Exception):
    """The zygote ended, or does not answer."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What a zygote is started with."""

    namespaces: bool
    preload: tuple[str, ...] = ()
    packages: bool = True
    landlock: bool = True  # where the kernel has it


class Slot:
    """One zygote. It runs one program at a time.

    Raises:
        Refused: the kernel does not allow the namespaces that were asked for.
        Lost: the zygote does not start.
    """

    def __init__(self, settings: Settings) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=f"rollwright-sandbox-{os.getpid()}-"))
        self.folder.chmod(0o711)
        self._control, theirs = socket.socketpair()
        self._in_use = threading.Lock()
        told = {**asdict(settings), "folder": str(self.folder), "fd": theirs.fileno()}
        command = [
            sys.executable,
            "-s",
            "-P",
            "-m",
            "rollwright.grade.sandbox.zygote",
            json.dumps(told),
        ]
        package = str(Path(rollwright.__file__).resolve().parents[1])
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env={**_ENV, "PYTHONPATH": package},
            cwd="/",
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
        theirs.close()
        self.facts = self._first_word()

    def _first_word(self) -> dict[str, Any]:
        word = None
        if select.select([self._control], [], [], SETUP_S)[0]:
            with contextlib.suppress(OSError):
                word = wire.read(self._control.fileno())
        if word is None or "refused" in word:
            self.close()
            raise Refused(word["refused"]) if word else Lost("the sandbox's process does not start")
        return word

    def close(self) -> None:
        """End the zygote and all that it runs, and remove its folder. A `run` in another thread is lost."""
        with contextlib.suppress(OSError):
            self._control.shutdown(
                socket.SHUT_RDWR
            )  # seen by both sides; the number must stay ours till then
        try:
            self.process.wait(2.0)  # it ends by itself, after cleaning up
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        with self._in_use:
            self._control.close()
        processes.remove_tree(self.folder)

    def run(self, program: Program, limits: Limits) -> Outcome:
        """Run one program to its end.

        Raises:
            Lost: the zygote ended or does not answer; the slot can only be closed.
        """
        with self._in_use:
            return self._run(Run(program, limits))

    def _run(self, run: Run) -> Outcome:
        ours, theirs = _descriptors(run.program.stdin)
        try:
            try:
                self._send(_job(run.program, run.limits), list(theirs))
            finally:
                for fd in theirs:
                    os.close(fd)
            report, problem = self._follow(run, *ours)
        finally:
            for fd in ours:
                os.close(fd)
        if problem:
            raise Lost(problem)
        return outcome_of(run, report)

    def _send(self, job: dict[str, Any], fds: list[int]) -> None:
        try:
            socket.send_fds(self._control, [b"j"], fds)
            self._control.sendall(wire.pack(job))
        except OSError as error:
            raise Lost(f"the sandbox's process is gone: {error}") from error

    def _kill(self, run: Run) -> None:
        if not run.is_killed:
            run.is_killed = True
            with contextlib.suppress(OSError):
                self._control.sendall(b"k" + wire.pack({}))

    def _follow(
        self, run: Run, output: int, errors: int, channel: int, report: int
    ) -> tuple[dict[str, Any], str | None]:
        """Read until the program is gone; return its first process's last word, and what went wrong."""
        control, inbox = self._control.fileno(), wire.Inbox((run.limits.output_kb << 10) + 4096)
        poll = select.poll()
        for fd in (output, errors, channel, control):
            poll.register(fd, select.POLLIN)
        start = time.monotonic()
        end = start + SETUP_S
        while True:
            left = end - time.monotonic()
            if left <= 0:
                if run.is_killed:
                    raise Lost("a program could not be killed")
                word = "timeout" if run.began else "failed"
                run.result = {"kind": word, "detail": f"not ready to run within {SETUP_S:g} s"}
            if run.result and not run.is_killed:
                self._kill(run)
                end = time.monotonic() + CLEANUP_S
            for fd, _ in poll.poll(max(0.0, end - time.monotonic()) * 1000):
                if fd == control:
                    done = self._last_word()
                    _drain(run, output, errors, channel, inbox)
                    return _last_report(report), done.get("problem")
                if not _take(run, fd, output, errors, channel, inbox):
                    poll.unregister(fd)
            if run.began and not run.is_killed:
                end = run.began + run.limits.timeout_s

    def _last_word(self) -> dict[str, Any]:
        try:
            word = wire.read(self._control.fileno())
        except OSError as error:
            raise Lost(f"the sandbox's process is gone: {error}") from error
        if word is None:
            raise Lost(f"the sandbox's process ended, exit code {self.process.poll()}")
        return word


def _descriptors(stdin: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return our ends (output, errors, channel, report) and theirs (input first)."""
    memory = os.memfd_create("stdin")
    with os.fdopen(memory, "wb", closefd=True) as file:
        file.write(stdin.encode("utf-8", "surrogatepass"))
        file.flush()
        readable = os.open(f"/proc/self/fd/{memory}", os.O_RDONLY)  # theirs cannot write
    output, errors, report = os.pipe(), os.pipe(), os.pipe()
    channel = [end.detach() for end in socket.socketpair()]
    ours = (output[0], errors[0], channel[0], report[0])
    for fd in ours:
        os.set_blocking(fd, False)
    return ours, (readable, output[1], errors[1], channel[1], report[1])


def _job(program: Program, limits: Limits) -> dict[str, Any]:
    return {
        "limits": asdict(limits),
        "code": program.code,
        "files": dict(program.files),
        "is_call": program.call is not None,
    }


def _take(run: Run, fd: int, output: int, errors: int, channel: int, inbox: wire.Inbox) -> bool:
    """Read once from one of the descriptors; whether there may be more."""
    try:
        data = os.read(fd, 1 << 16)
    except BlockingIOError:
        return True
    except OSError:
        return False
    if fd == channel:
        try:
            for message in inbox.add(data):
                _hear(run, message, channel)
        except wire.Broken as error:
            run.result = run.result or {"kind": "broken", "detail": str(error)}
            return False
        return bool(data)
    kept = run.output if fd == output else run.errors
    kept += data
    if len(kept) > run.limits.output_kb << 10:
        name = "standard output" if fd == output else "standard error"
        run.result = run.result or {
            "kind": "output",
            "detail": f"more than {run.limits.output_kb} KiB on {name}",
        }
        del kept[run.limits.output_kb << 10 :]
        return False
    return bool(data)


def _hear(run: Run, message: dict[str, Any], channel: int) -> None:
    """Take a message of the program's process. It may be forged: only a value with our number counts."""
    kind = message.get("kind")
    if kind == "begin":
        run.began = run.began or time.monotonic()
    elif kind == "loaded" and run.program.call and not run.number:
        run.number = secrets.token_hex(16)
        call = run.program.call
        args = [values.encode(one) for one in call.args]
        kwargs = {name: values.encode(one) for name, one in call.kwargs.items()}
        asked = {"number": run.number, "function": call.function, "args": args, "kwargs": kwargs}
        os.set_blocking(channel, True)
        with contextlib.suppress(OSError):
            wire.write(channel, asked)
        os.set_blocking(channel, False)
    elif kind == "value" and not (run.number and message.get("number") == run.number):
        run.result = run.result or {"kind": "broken", "detail": "a value without the number that was given"}
    else:
        run.result = run.result or message


def _drain(run: Run, output: int, errors: int, channel: int, inbox: wire.Inbox) -> None:
    """Read what is left in the pipes of a program that is gone."""
    for fd in (channel, output, errors):
        while True:
            try:
                more = bool(select.select([fd], [], [], 0)[0]) and _take(
                    run, fd, output, errors, channel, inbox
                )
            except OSError:
                more = False
            if not more:
                break


def _last_report(report: int) -> dict[str, Any]:
    try:
        return wire.read(report) or {}
    except (OSError, ValueError):
        return {}
