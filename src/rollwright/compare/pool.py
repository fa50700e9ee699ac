"""Runs side by side, each in a process of its own; one that dies takes no other with it."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rollwright.store.strict import dumps

Row = dict[str, Any]
COMMAND = (sys.executable, "-m", "rollwright.compare.worker")


@dataclass(frozen=True, slots=True)
class Job:
    """One run to make.

    Args:
        name: for people.
        values: what the worker is told: ``folder``, ``config``, ``unit``, ``points``.
        log: file for what the run says beside its rows.
        threads: cores that it uses.
    """

    name: str
    values: Mapping[str, Any]
    log: Path
    threads: int = 1


@dataclass
class _Running:
    job: Job
    process: subprocess.Popen[str]
    seen: float
    end: Row | None = None


class Pool:
    """Keeps up to ``num`` runs going, from a source of jobs that may look at what came out so far.

    Args:
        num: runs at once, ≥ 1.
        next_job: called whenever there is room; None is none at the moment, or no more when nothing runs.
        on_row: called with (job, row) for every row of metrics of a run, on the thread of `run`.
        on_end: called with (job, end) for every run that ended: ``{"done": reason}``, ``{"failed": message}``
            or ``{"stopped": True}``.
        silent_s: a run that says nothing for so many seconds is ended, and failed.
        command: starts a worker.
    """

    def __init__(
        self,
        num: int,
        next_job: Callable[[], Job | None],
        on_row: Callable[[Job, Row], None],
        on_end: Callable[[Job, Row], None],
        silent_s: float = 3600.0,
        command: tuple[str, ...] = COMMAND,
    ) -> None:
        self.num, self.next_job, self.on_row, self.on_end = num, next_job, on_row, on_end
        self.silent_s, self.command = silent_s, command
        self._said: queue.Queue[tuple[_Running, str | None]] = queue.Queue()
        self._running: list[_Running] = []
        self.is_stopping = False

    def run(self) -> None:
        """Make all runs. On an exception (Ctrl-C too) every run is stopped cleanly first."""
        try:
            self._fill()
            while self._running:
                self._take(1.0)
                self._end_silent()
                self._fill()
        finally:
            self.stop()

    def stop(self, patience_s: float = 60.0) -> None:
        """Ask every run to stop, wait, and end what does not; what was acknowledged is kept either way."""
        self.is_stopping = True
        for running in self._running:
            _close(running.process)
        limit = time.monotonic() + patience_s
        try:
            while self._running and time.monotonic() < limit:
                self._take(0.2)
        finally:  # a second Ctrl-C, too, leaves nothing running
            for running in list(self._running):
                running.process.kill()
        while self._running:
            self._take(1.0)

    def _fill(self) -> None:
        while not self.is_stopping and len(self._running) < self.num:
            job = self.next_job()
            if job is None:
                return
            self._running.append(self._start(job))

    def _start(self, job: Job) -> _Running:
        job.log.parent.mkdir(parents=True, exist_ok=True)
        threads = str(job.threads)
        names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
        with job.log.open("a") as log:
            process = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, **dict.fromkeys(names, threads)},
                start_new_session=True,  # Ctrl-C reaches us, and we stop them one by one
            )
        running = _Running(job, process, time.monotonic())
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(dumps(dict(job.values))[0] + "\n")
            process.stdin.flush()
        threading.Thread(target=self._listen, args=(running,), daemon=True).start()
        return running

    def _listen(self, running: _Running) -> None:
        assert running.process.stdout is not None
        for line in running.process.stdout:
            self._said.put((running, line))
        self._said.put((running, None))

    def _take(self, timeout: float) -> None:
        try:
            running, line = self._said.get(timeout=timeout)
        except queue.Empty:
            return
        running.seen = time.monotonic()
        if line is None:
            code = running.process.wait()
            _close(running.process)
            self._running.remove(running)
            self.on_end(running.job, running.end or {"failed": _why(running.job, code)})
            return
        row = json.loads(line)
        if "kind" in row:
            if not self.is_stopping:
                self.on_row(running.job, row)
        else:
            running.end = row

    def _end_silent(self) -> None:
        for running in self._running:
            if time.monotonic() - running.seen > self.silent_s:
                running.end = {"failed": f"it said nothing for {self.silent_s:.0f} s, and was ended"}
                running.process.kill()
                running.seen = time.monotonic()


def _close(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()


def _why(job: Job, code: int) -> str:
    """Return why a run died that could not say so itself."""
    lines: list[str] = []
    with contextlib.suppress(OSError):
        lines = [line.strip() for line in job.log.read_text(errors="replace").splitlines() if line.strip()]
    last = f": {lines[-1]}" if lines else ""
    return f"its process ended with code {code}{last} (see {job.log})"
