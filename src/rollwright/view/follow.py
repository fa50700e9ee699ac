"""Follow a run's journal while it grows: who worked when, and the groups that no shard holds yet."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from rollwright.config import RunConfig
from rollwright.errors import JournalCorrupt, RollwrightError
from rollwright.events import AnyEvent
from rollwright.lab.activity import Activity
from rollwright.lab.records import decoded
from rollwright.store.codec import damage, decode_record
from rollwright.store.journal import read

_BATCH = 500  # records between two breaths: requests are answered on the same interpreter
_BREATH_S = 0.002
_POLL_S = 1.0


class Follower:
    """Reads a journal's whole records, each once, however often it has grown.

    Args:
        path: the journal.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.offset, self.line = path, 0, 1

    def records(self) -> Iterator[tuple[AnyEvent, bytes]]:
        """Yield (event, decision bytes) of the records that came since the last call.

        Raises:
            StoreError: it is no journal, or one that a newer rollwright wrote.
            JournalCorrupt: a record before the end is damaged.
        """
        if self.offset == 0:
            next(read(self.path), None)  # checks the header
        with self.path.open("rb") as file:
            file.seek(self.offset)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                why = damage(line)
                if why:
                    raise JournalCorrupt(f"{self.path}: line {self.line} is damaged: {why}")
                is_header, self.line = self.line == 1, self.line + 1
                self.offset += len(line)
                if not is_header:
                    yield self._decoded(line)

    def _decoded(self, line: bytes) -> tuple[AnyEvent, bytes]:
        try:
            return decode_record(line)
        except msgspec.MsgspecError as error:
            raise JournalCorrupt(
                f"{self.path}: line {self.line - 1} holds no known event: {error}"
            ) from error


@dataclass
class Followed:
    """What the journal told so far.

    Args:
        activity: who worked when; None until it was asked for.
        closed: groups of steps that no shard held when they were read, with their fates, by step.
        num_records: records read; size: bytes read, of size_wanted.
        is_whole: whether the journal was read to its end at least once.
        error: why it goes no further; empty while nothing is wrong.
        generation: grows whenever ``closed`` does.
    """

    activity: Activity = field(default_factory=Activity)
    closed: dict[int, list[Any]] = field(default_factory=dict)
    num_records: int = 0
    is_whole: bool = False
    error: str = ""
    fold_error: str = ""
    generation: int = 0


class Watch:
    """A thread that follows a journal until it is closed.

    Args:
        path: the journal.
        config: of the run; None folds no groups, only who worked when.
        skip: steps whose groups are in shards already.
    """

    def __init__(self, path: Path, config: RunConfig | None, skip: frozenset[int]) -> None:
        self.followed = Followed()
        self.lock = threading.Lock()
        self.is_folding = config is not None
        self._follower, self._config, self._skip = Follower(path), config, skip
        self._runner: Any = None
        self._has_ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rollwright-view-journal", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread. Safe to call twice."""
        self._has_ended.set()
        self._thread.join(5)

    def wait(self, timeout_s: float) -> bool:
        """Wait until the journal was read to its end once, and return whether it was, or failed."""
        deadline = time.monotonic() + timeout_s
        while not (self.followed.is_whole or self.followed.error):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)
        return True

    def _run(self) -> None:
        try:
            self._open_runner()
            while not self._has_ended.is_set():
                self._advance()
                self.followed.is_whole = True
                self._has_ended.wait(_POLL_S)
        except (RollwrightError, OSError) as error:
            self.followed.error = str(error)

    def _open_runner(self) -> None:
        if self._config is None:
            return
        # Its modules import torch, which a finished run needs none of.
        from rollwright.lab.replay import fresh_runner

        try:
            self._runner = fresh_runner(self._config)
        except RollwrightError as error:
            self._stop_folding(error)

    def _advance(self) -> None:
        for event, decisions in self._follower.records():
            with self.lock:
                self.followed.activity.take(event, decoded(decisions))
                self.followed.num_records += 1
                if self._runner is not None:
                    self._fold(event, decisions)
            if self.followed.num_records % _BATCH == 0:
                if self._has_ended.is_set():
                    return
                time.sleep(_BREATH_S)

    def _fold(self, event: AnyEvent, decisions: bytes) -> None:
        from rollwright.store.replay import compare

        difference, _ = compare(self._runner, self.followed.num_records, event, decisions)
        if difference is not None:
            self._stop_folding(difference)
            return
        for closed in self._runner.take_closed():
            if closed.step not in self._skip:
                self.followed.closed.setdefault(closed.step, []).append(closed)
                self.followed.generation += 1

    def _stop_folding(self, why: object) -> None:
        self._runner = None
        self.followed.fold_error = (
            f"rollouts that no shard holds yet are left out, for the journal cannot be folded: {why}"
        )
