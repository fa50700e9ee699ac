"""Fold a journal again through a fresh runner, and say where its decisions first differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from rollwright.errors import LawBroken, RollwrightError, StoreError
from rollwright.events import AnyCommand, AnyEvent, Report
from rollwright.method import Method
from rollwright.runner import Runner, Settings
from rollwright.store.codec import decision_bytes
from rollwright.store.journal import read
from rollwright.store.layout import JOURNAL

_SHOWN = 60  # bytes shown on either side of a difference


@dataclass(frozen=True, slots=True)
class Difference:
    """The first record whose decisions did not come out again.

    Args:
        record: its number, from 1.
        event: the event's kind and what it is about, for example ``"Sampled t/0#0/0:0"``.
        command: number of the first differing command, from 1; 0 when the runner refused the event.
        recorded, now: the bytes around the first difference. ``now`` is the error if it refused.
    """

    record: int
    event: str
    command: int
    recorded: str
    now: str

    def __str__(self) -> str:
        where = f"command {self.command}" if self.command else "the event itself"
        return (
            f"record {self.record} ({self.event}): {where} differs\n"
            f"  recorded: {self.recorded}\n  now:      {self.now}"
        )


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """What a replay found.

    Args:
        num_records: records whose decisions came out byte for byte.
        num_commands: the commands in them.
        difference: the first record that differs; the replay stopped there. None: all are the same.
        runner: the runner behind the last record that was folded.
        until: the number of finished steps at which it was told to stop; None is the journal's end.
        has_reached: whether it got there.
    """

    num_records: int
    num_commands: int
    difference: Difference | None
    runner: Runner
    until: int | None = None
    has_reached: bool = True

    @property
    def is_same(self) -> bool:
        return self.difference is None

    def require(self) -> ReplayReport:
        """Return the report itself.

        Raises:
            LawBroken: a record differs.
        """
        if self.difference is not None:
            raise LawBroken(f"the journal does not replay: {self.difference}")
        return self

    def __str__(self) -> str:
        whole = f"{self.num_records} records with {self.num_commands} decisions replay to the same bytes"
        return whole if self.difference is None else f"{whole}; then {self.difference}"


def replay(
    source: str | Path,
    method: Method,
    settings: Settings,
    version: int = 0,
    progress: Callable[[int], None] | None = None,
    until: int | None = None,
) -> ReplayReport:
    """Fold a journal's events through a fresh runner and compare the decisions record by record.

    A changed decision is found at its own record; a changed event at the first record whose decisions
    depend on what was changed. A torn last line, as a crash leaves it, is passed over.

    Args:
        source: a run folder, or a journal.
        method, settings, version: what the run was started with.
        progress: called with the number of records, every thousand of them.
        until: stop behind the record that reports step ``until``, counted from 1: so many steps are done
            then. 0 stops behind the first record. None goes to the end.

    Raises:
        StoreError: there is no journal, or ``until`` is negative.
        JournalCorrupt: a record before the end is damaged (its checksum is wrong).
    """
    if until is not None and until < 0:
        raise StoreError(f"until = {until}; expected 0 or more finished steps")
    path = Path(source)
    path = path / JOURNAL if path.is_dir() else path
    runner = Runner(method, settings, version)
    num_records = num_commands = 0
    for event, recorded in read(path):
        found, commands = compare(runner, num_records + 1, event, recorded)
        if found is not None:
            return ReplayReport(num_records, num_commands, found, runner, until, False)
        runner.take_closed()  # the record of closed groups would grow for as long as the run did
        num_records += 1
        num_commands += len(commands)
        if progress is not None and num_records % 1000 == 0:
            progress(num_records)
        if until is not None and (until == 0 or _ends(commands, until - 1)):
            return ReplayReport(num_records, num_commands, None, runner, until)
    return ReplayReport(num_records, num_commands, None, runner, until, until is None)


def compare(
    runner: Runner, number: int, event: AnyEvent, recorded: bytes
) -> tuple[Difference | None, Sequence[AnyCommand]]:
    """Give one recorded event to a runner; return where its commands differ from the recorded, and them.

    Args:
        number: the record's, from 1.
        recorded: the decision bytes of the record.
    """
    try:
        commands = runner.step(event)
    except (RollwrightError, LookupError, TypeError, ValueError, AssertionError) as error:
        # A runner that was given what cannot be has no defined way to refuse it.
        refused = f"refused: {type(error).__name__}: {error}"
        return Difference(number, _about(event), 0, _cut(recorded, 0), refused), ()
    now = decision_bytes(commands)
    return (None if now == recorded else _difference(number, _about(event), recorded, now)), commands


def _ends(commands: Sequence[AnyCommand], step: int) -> bool:
    return any(isinstance(command, Report) and command.step == step for command in commands)


def _difference(record: int, event: str, recorded: bytes, now: bytes) -> Difference:
    was, got = (msgspec.json.decode(data, type=list[msgspec.Raw]) for data in (recorded, now))
    shared = zip(was, got, strict=False)
    place = next((k for k, (a, b) in enumerate(shared) if bytes(a) != bytes(b)), min(len(was), len(got)))
    a = bytes(was[place]) if place < len(was) else b"no such command"
    b = bytes(got[place]) if place < len(got) else b"no such command"
    same = next((k for k, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    return Difference(record, event, place + 1, _cut(a, same), _cut(b, same))


def _cut(data: bytes, at: int) -> str:
    left, right = max(0, at - _SHOWN), at + _SHOWN
    text = data[left:right].decode("utf-8", "backslashreplace")
    return ("..." if left else "") + text + ("..." if right < len(data) else "")


def _about(event: object) -> str:
    names = (getattr(event, name, None) for name in ("ask", "timer", "worker", "step"))
    return " ".join([type(event).__name__, *(str(name) for name in names if name is not None)])
