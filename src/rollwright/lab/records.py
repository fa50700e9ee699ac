"""A journal's records with the decisions as plain values: what reports need of them, without a runner."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from rollwright.events import AnyEvent
from rollwright.store.journal import read


class Emitted(msgspec.Struct, frozen=True):
    """A trajectory of a batch, as the journal writes it."""

    leaf: str
    replayed: bool = False


class EmittedGroup(msgspec.Struct, frozen=True):
    """A group of a batch, as the journal writes it."""

    id: str
    trajectories: list[Emitted] = []


class Decision(msgspec.Struct, frozen=True):
    """A recorded command of any type: the fields that a report needs, each at its default if absent."""

    type: str
    ask: str = ""
    group: str = ""
    task: str = ""
    parent: str = ""
    policy: str = "policy"
    start: int = 0
    attempt: int = 0
    step: int = -1
    version: int = 0
    groups: list[EmittedGroup] = []
    timer: str = ""
    seconds: float = 0.0
    what: str = ""
    reason: str = ""
    metrics: dict[str, float | None] = {}
    notes: list[str] = []


_decoder = msgspec.json.Decoder(list[Decision])


def decoded(decisions: bytes) -> Sequence[Decision]:
    """Return the decisions of a record (`rollwright.store.journal.read`) as values."""
    return () if decisions == b"[]" else _decoder.decode(decisions)


def records(path: str | Path) -> Iterator[tuple[AnyEvent, Sequence[Decision]]]:
    """Yield (event, decisions) of every whole record of a journal; as `rollwright.store.journal.read`.

    Raises:
        StoreError: there is no such file, or a newer rollwright wrote it.
        JournalCorrupt: a record before the end is damaged.
    """
    for event, decisions in read(path):
        yield event, decoded(decisions)
