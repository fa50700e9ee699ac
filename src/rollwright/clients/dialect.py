"""What an adapter of one kind of server must know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rollwright.clients.gives import Gives
from rollwright.errors import EngineError
from rollwright.events import Submit
from rollwright.tree import StopReason

Json = Mapping[str, Any]
Top = tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class Ask:
    """One request to a server: what is left of a submit.

    Args:
        command: the submit.
        ids: the prefix and what was sampled for it already.
        num_made: how many of the ids that is.
        chunk: tokens after which the server should report.
    """

    command: Submit
    ids: Sequence[int]
    num_made: int
    chunk: int

    @property
    def max_tokens(self) -> int:
        return self.command.max_tokens - self.num_made


@dataclass(frozen=True, slots=True)
class Part:
    """What one message of a stream says was sampled; None is not told."""

    tokens: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    entropies: tuple[float, ...] | None = None
    kept_masses: tuple[float, ...] | None = None
    top: tuple[Top, ...] | None = None
    version: int | None = None
    prefilled: int | None = None
    stop: StopReason | None = None


class Reader(Protocol):
    """Reads the messages of one stream."""

    def read(self, message: Json) -> list[Part]:
        """Return what a message says, a part for each version.

        Raises:
            EngineError: it does not say what it must.
            Passing: the server failed in a way that may pass.
        """
        ...


class Dialect(Protocol):
    """How to talk to one kind of server. Paths are below the server's root."""

    name: str
    path: str

    def gives(self) -> Gives:
        """What this kind of server can give at best."""
        ...

    def body(self, ask: Ask) -> dict[str, Any]: ...

    def reader(self, ask: Ask) -> Reader: ...


class Passing(Exception):
    """A failure that may pass: it is tried again."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


def need(message: Json, name: str, server: str) -> Any:
    """Return a field of an answer.

    Raises:
        EngineError: it is not there.
    """
    value = message.get(name)
    if value is None:
        raise EngineError(f"{server}: an answer lacks {name!r}; its tokens cannot be used without it")
    return value


def best(pairs: Sequence[tuple[int, float]], num: int) -> Top:
    """Return the ``num`` most likely alternatives, most likely first."""
    return tuple(sorted(pairs, key=lambda pair: (-pair[1], pair[0]))[:num])
