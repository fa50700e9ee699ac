"""Worker processes with hard limits: one that goes over is killed and replaced, and the others go on.

A worker is a fresh interpreter (`rollwright.grade.worker`), not a fork, so it works under any threads. It
dies by its own alarm and at the end of its input, so none outlives this process.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import pickle
import queue
import select
import signal
import struct
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rollwright.errors import ConfigError, GraderError

CHUNK = 16  # jobs that are written to a worker before its first answer is read
_MB = 1 << 20


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a job.

    Args:
        kind: ``done`` (value), ``timeout``, ``memory`` (over the limit), ``raised`` (the job's function did),
            ``died`` (the worker did, twice, without a word).
        value: what the function returned.
        detail: for people.
    """

    kind: Literal["done", "timeout", "memory", "raised", "died"]
    value: Any = None
    detail: str = ""


class _Gone(Exception):
    """The worker ended."""


class _Slow(Exception):
    """No answer came in time."""


class _Worker:
    """One process and its two pipes."""

    def __init__(self, memory_mb: int, start_s: float, warm_up: tuple[str, ...]) -> None:
        command = [sys.executable, "-m", "rollwright.grade.worker", str(memory_mb), *warm_up]
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=env,
            bufsize=0,
            start_new_session=True,  # so that what it starts can be ended with it
        )
        assert self.process.stdin and self.process.stdout
        self._in, self._out = self.process.stdin.fileno(), self.process.stdout.fileno()
        try:
            self.receive(start_s)  # it says that it is ready
        except (_Gone, _Slow) as error:
            self.kill()
            raise GraderError(
                f"a grading worker did not start within {start_s:.0f} s (exit code"
                f" {self.process.returncode}); its error output stands above"
            ) from error

    def send(self, jobs: list[tuple[str, tuple[Any, ...], float]]) -> None:
        """Write jobs; a worker that is gone is noticed when its answer is read."""
        data = b"".join(_framed(pickle.dumps(job)) for job in jobs)
        try:
            while data:
                data = data[os.write(self._in, data) :]
        except BrokenPipeError:
            pass

    def receive(self, timeout_s: float) -> Any:
        """Return the next answer.

        Raises:
            _Slow: it did not come in time.
            _Gone: the worker ended.
        """
        deadline = time.monotonic() + timeout_s
        (size,) = struct.unpack("<I", self._read(4, deadline))
        return pickle.loads(self._read(size, deadline))

    def _read(self, num: int, deadline: float) -> bytes:
        parts = []
        while num:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._out], [], [], left)[0]:
                raise _Slow
            data = os.read(self._out, num)
            if not data:
                raise _Gone
            parts.append(data)
            num -= len(data)
        return b"".join(parts)

    def kill(self) -> None:
        """End the process and what it started, whatever they do, and wait for it."""
        with contextlib.suppress(ProcessLookupError):  # the group goes with its last member
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe:
                pipe.close()


def _framed(data: bytes) -> bytes:
    return struct.pack("<I", len(data)) + data


class Pool:
    """Warm worker processes. `map` may be called from several threads at once; they share the workers.

    Args:
        num_workers: processes; None is one for each core.
        memory_mb: the limit of each on its address space, in MiB.
        start_s: how long a new worker may take to say that it is ready.
        warm_up: functions, "module:function", that each worker calls before it is ready: what they load is
            no job's time.

    Raises:
        ConfigError: a number below 1.
    """

    def __init__(
        self,
        num_workers: int | None = None,
        memory_mb: int = 2048,
        start_s: float = 60.0,
        warm_up: tuple[str, ...] = ("rollwright.grade.math.library:warm_up",),
    ) -> None:
        num = num_workers if num_workers is not None else len(os.sched_getaffinity(0))
        if num < 1 or memory_mb < 1:
            raise ConfigError(
                f"a pool of {num} workers with {memory_mb} MiB each; expected at least 1 of both"
            )
        self.num_workers, self._memory_mb, self._start_s, self._warm_up = num, memory_mb, start_s, warm_up
        self._idle: queue.Queue[_Worker | None] = queue.Queue()
        for _ in range(num):
            self._idle.put(None)  # started when first needed
        self._alive: set[_Worker] = set()
        self._lock = threading.Lock()
        self._is_closed = False

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def num_alive(self) -> int:
        """How many worker processes run now."""
        with self._lock:
            return sum(worker.process.poll() is None for worker in self._alive)

    def warm(self) -> None:
        """Start all workers now, instead of when they are first needed."""
        workers = [self._idle.get() for _ in range(self.num_workers)]
        for worker in workers:
            self._idle.put(worker or self._start())

    def map(self, function: str, jobs: Sequence[tuple[Any, ...]], timeout_s: float) -> list[Outcome]:
        """Call ``"module:function"`` with each job's arguments; outcomes come in the order of the jobs.

        Args:
            function: named, because a worker imports it.
            jobs: arguments, picklable.
            timeout_s: for each job, seconds.

        Raises:
            ConfigError: the timeout is not positive, or the pool is closed.
            GraderError: no worker can be started.
        """
        if timeout_s <= 0 or self._is_closed:
            raise ConfigError(
                f"map with timeout_s={timeout_s} on a pool that is {'closed' if self._is_closed else 'open'}"
            )
        call = _Call(function, list(jobs), timeout_s)
        num = min(self.num_workers, len(jobs))
        threads = [threading.Thread(target=self._serve, args=(call,), daemon=True) for _ in range(num)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if call.errors:
            raise call.errors[0]
        return [outcome for outcome in call.outcomes if outcome is not None]

    def close(self) -> None:
        """End all workers."""
        self._is_closed = True
        with self._lock:
            workers, self._alive = self._alive, set()
        for worker in workers:
            worker.kill()

    def _serve(self, call: _Call) -> None:
        """Work on a call with one worker until its jobs are used up."""
        worker = self._idle.get()
        try:
            while chunk := call.take():
                worker = self._work(worker, call, chunk)
        except BaseException as error:
            call.errors.append(error)
        finally:
            self._idle.put(worker)

    def _work(self, worker: _Worker | None, call: _Call, chunk: list[int]) -> _Worker | None:
        """Do a chunk of jobs; a job that costs its worker's life is answered, the rest goes to a new one."""
        while chunk:
            worker = worker or self._start()
            worker.send([(call.function, call.jobs[index], call.timeout_s) for index in chunk])
            try:
                while chunk:
                    kind, value, detail = worker.receive(call.timeout_s)
                    call.outcomes[chunk.pop(0)] = Outcome(kind, value, detail)
            except _Slow:
                call.outcomes[chunk.pop(0)] = Outcome(
                    "timeout", None, f"no verdict after {call.timeout_s:g} s"
                )
                self._end(worker)
                worker = None
            except _Gone:
                code = worker.process.wait()
                self._end(worker)
                worker = None
                index = chunk[0]
                if index in call.lost:
                    chunk.pop(0)
                    call.outcomes[index] = Outcome("died", None, f"the worker ended twice, exit code {code}")
                call.lost.add(index)
        return worker

    def _start(self) -> _Worker:
        worker = _Worker(self._memory_mb, self._start_s, self._warm_up)
        with self._lock:
            if self._is_closed:
                worker.kill()
                raise ConfigError("the pool was closed while it worked")
            self._alive.add(worker)
        return worker

    def _end(self, worker: _Worker) -> None:
        worker.kill()
        with self._lock:
            self._alive.discard(worker)


class _Call:
    """One call of map: what is left to do, and what came of the rest."""

    def __init__(self, function: str, jobs: list[tuple[Any, ...]], timeout_s: float) -> None:
        self.function, self.jobs, self.timeout_s = function, jobs, timeout_s
        self.outcomes: list[Outcome | None] = [None] * len(jobs)
        self.errors: list[BaseException] = []
        self.lost: set[int] = set()
        self._left = deque(range(len(jobs)))
        self._lock = threading.Lock()

    def take(self) -> list[int]:
        with self._lock:
            if self.errors:
                return []
            return [self._left.popleft() for _ in range(min(CHUNK, len(self._left)))]


_shared: Pool | None = None
_shared_lock = threading.Lock()


def shared_pool() -> Pool:
    """Return this process's own pool, one worker for each core; it stays warm until the process ends."""
    global _shared
    with _shared_lock:
        if _shared is None or _shared._is_closed:
            _shared = Pool()
            atexit.register(_shared.close)
        return _shared
