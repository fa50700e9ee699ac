"""A worker of `rollwright.grade.pool`: reads jobs from its input, writes outcomes to its output.

It limits itself: its address space, no core file, and an alarm that ends it when a job takes longer than its
pool waits, so that it does not run on if the pool's process is gone.
"""

from __future__ import annotations

import importlib
import os
import pickle
import resource
import signal
import struct
import sys
from functools import cache
from typing import Any, BinaryIO

GRACE_S = 2.0  # the pool's own clock comes first


def main() -> None:
    """Serve until the input ends."""
    memory = int(sys.argv[1]) << 20
    # What a library prints must not get between the answers, and nothing that it starts may read jobs.
    jobs, out = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    for name in sys.argv[2:]:
        _function(name)()
    _write(out, "ready")
    while (job := _read(jobs)) is not None:
        function, arguments, timeout_s = job
        signal.setitimer(signal.ITIMER_REAL, timeout_s + GRACE_S)
        outcome = _done(function, arguments)
        signal.setitimer(signal.ITIMER_REAL, 0)
        _write(out, outcome)


def _done(function: str, arguments: tuple[Any, ...]) -> tuple[str, Any, str]:
    try:
        return "done", _function(function)(*arguments), ""
    except MemoryError:
        return "memory", None, "over the worker's memory limit"
    except Exception as error:  # a grader's bug is reported as one; it is never a reward
        return "raised", None, f"{type(error).__name__}: {error}"


@cache
def _function(name: str) -> Any:
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


def _read(stream: BinaryIO) -> Any:
    head = stream.read(4)
    if len(head) < 4:
        return None
    (size,) = struct.unpack("<I", head)
    return pickle.loads(stream.read(size))


def _write(stream: BinaryIO, value: Any) -> None:
    data = pickle.dumps(value)
    stream.write(struct.pack("<I", len(data)) + data)
    stream.flush()


if __name__ == "__main__":
    main()
