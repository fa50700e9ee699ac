"""Calls in threads, each with a hard deadline: one that overruns is given up and its thread replaced."""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Done:
    """A call came back.

    Args:
        pool: the pool's name.
        key: what the caller named the call.
        result: what it returned.
        error: what it raised, or None.
    """

    pool: str
    key: Any
    result: Any
    error: BaseException | None = None


class Pool:
    """Threads that make blocking calls.

    A thread cannot be stopped from outside. So a call that overruns is given up: nobody hears its answer
    any more, a new thread takes the place of its own, and the old one ends when the call does.

    Args:
        name: for messages.
        num: calls at once, ≥ 1.
        seconds: until a call is given up, counted from its start; None never.
        post: takes each `Done`, in the thread of the call.
        clock: seconds, monotonic.

    Attributes:
        num_abandoned: threads that were given up so far.
    """

    def __init__(
        self,
        name: str,
        num: int,
        seconds: float | None,
        post: Callable[[Done], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name, self.num, self.seconds, self.clock = name, num, seconds, clock
        self.num_abandoned = 0
        self._post = post
        self._waiting: deque[tuple[Any, Callable[[], Any]]] = deque()
        self._running: dict[int, tuple[float, Any]] = {}  # (since, key) by thread
        self._changed = threading.Condition()
        self._numbers = itertools.count()
        self._threads: set[int] = set()
        self._is_closed = False

    @property
    def num_open(self) -> int:
        """Calls that run or wait."""
        with self._changed:
            return len(self._waiting) + len(self._running)

    def call(self, key: Any, work: Callable[[], Any]) -> None:
        """Have ``work()`` called by the next free thread."""
        with self._changed:
            self._waiting.append((key, work))
            if len(self._threads) < self.num and len(self._threads) - len(self._running) < len(self._waiting):
                self._hire()
            self._changed.notify()

    def expire(self) -> list[Any]:
        """Give up the calls that overran, replace their threads, and return their keys."""
        if self.seconds is None:
            return []
        with self._changed:
            limit = self.clock() - self.seconds
            overrun = [thread for thread, (since, _) in self._running.items() if since <= limit]
            keys = [self._running.pop(thread)[1] for thread in overrun]
            for thread in overrun:
                self._threads.discard(thread)
                self.num_abandoned += 1
                if self._waiting:
                    self._hire()
        return keys

    def next_expiry(self) -> float | None:
        """Return when the next running call is given up, by the clock; None if none is."""
        if self.seconds is None:
            return None
        with self._changed:
            oldest = min((since for since, _ in self._running.values()), default=None)
        return None if oldest is None else oldest + self.seconds

    def close(self) -> None:
        """Take no more calls; threads end when they are free."""
        with self._changed:
            self._is_closed = True
            self._waiting.clear()
            self._changed.notify_all()

    # ------------------------------------------------------------ threads

    def _hire(self) -> None:
        number = next(self._numbers)
        self._threads.add(number)
        # A daemon: one that hangs for ever must not keep the process from ending.
        threading.Thread(target=self._work, args=(number,), name=f"{self.name}-{number}", daemon=True).start()

    def _work(self, number: int) -> None:
        while True:
            with self._changed:
                while not self._waiting:
                    if self._is_closed:
                        return
                    self._changed.wait()
                key, work = self._waiting.popleft()
                self._running[number] = (self.clock(), key)
            result, error = None, None
            try:
                result = work()
            except BaseException as raised:  # KeyboardInterrupt and SystemExit are for the main thread
                error = raised
            with self._changed:
                if self._running.pop(number, None) is None:
                    return  # it was given up: its place is taken
                self._post(Done(self.name, key, result, error))
