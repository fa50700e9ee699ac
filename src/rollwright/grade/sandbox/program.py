"""What is run in the sandbox, within which limits, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from rollwright.errors import ConfigError, DataError
from rollwright.grade.sandbox.values import is_plain


@dataclass(frozen=True, slots=True)
class Limits:
    """What one program may use.

    Args:
        timeout_s: from the moment that its code begins to run, by the parent's clock, seconds.
        memory_mb: of all its processes together, and of each one's address space, MiB.
        output_kb: of standard output, and as much again of standard error and of its result, KiB.
        num_processes: processes and threads at one time, its own included.
        file_mb: of all the files that it has written, and of each of them, MiB.
        num_open: open files of one process.

    Raises:
        ConfigError: a limit that is not positive.
    """

    timeout_s: float = 5.0
    memory_mb: int = 512
    output_kb: int = 1024
    num_processes: int = 32
    file_mb: int = 32
    num_open: int = 64

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if not value > 0:
                raise ConfigError(f"the sandbox's limit {name} is {value}; expected more than 0")
        if self.memory_mb < 64 or self.num_open < 16:
            raise ConfigError(
                f"memory_mb={self.memory_mb}, num_open={self.num_open}: an interpreter alone needs 64 MiB"
                " and 16 files; give at least that"
            )


@dataclass(frozen=True, slots=True)
class Call:
    """A call whose value is wanted.

    Args:
        function: a name in the program (``solve``), in a file beside it (``package.module:solve``), or a
            method (``Solution.solve``, of an instance that is made without arguments).
        args, kwargs: plain values: None, numbers, text, bytes, lists, tuples, sets, dicts.

    Raises:
        DataError: a value is not plain.
    """

    function: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for value in (*self.args, *self.kwargs.values()):
            if not is_plain(value):
                raise DataError(
                    f"{self.function}: {repr(value)[:200]} is not made of plain values only (None, numbers,"
                    " text, bytes, lists, tuples, sets, dicts); nothing else goes into the sandbox"
                )


@dataclass(frozen=True, slots=True)
class Program:
    """Python code for the sandbox.

    Args:
        code: the program; with ``call`` it is run under another name than ``__main__`` first.
        stdin: what it can read, text.
        call: what to call after that.
        files: path below the working folder -> text.
    """

    code: str
    stdin: str = ""
    call: Call | None = None
    files: Mapping[str, str] = field(default_factory=dict)


class Ending(StrEnum):
    """How a program ended. Each limit has its own; only ``infrastructure`` is our side's failure."""

    DONE = "done"  # it came to its end, or its call returned
    RAISED = "raised"  # an exception that nobody caught
    EXITED = "exited"  # it left before its end, whatever the exit code
    CRASHED = "crashed"  # a signal ended it
    TIMEOUT = "timeout"
    MEMORY = "memory"
    OUTPUT = "output"
    PROCESSES = "processes"
    FILES = "files"
    INFRASTRUCTURE = "infrastructure"

    @property
    def is_limit(self) -> bool:
        """Whether a limit other than time ended it."""
        return self in (Ending.MEMORY, Ending.OUTPUT, Ending.PROCESSES, Ending.FILES)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a program.

    Args:
        ending: how it ended.
        detail: for people.
        stdout, stderr: what it wrote, with U+FFFD for what is not UTF-8; cut at the limit.
        value: what its call returned, where ``ending`` is ``done`` and there was a call.
        exit_code: of ``exited``: -1 if it is not known.
        wall_s: from the start of its code to its end.
    """

    ending: Ending
    detail: str = ""
    stdout: str = ""
    stderr: str = ""
    value: Any = None
    exit_code: int | None = None
    wall_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Protection:
    """One protection: whether it is on, and how (or why it is not)."""

    is_on: bool
    how: str
