"""Flights in the air: the client's own thread, retries, and the queue to whoever steps the engine."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

import msgspec

from rollwright.clients.detect import Found
from rollwright.clients.dialect import Part, Passing
from rollwright.clients.flight import Flight
from rollwright.clients.wire import Wire
from rollwright.errors import EngineError
from rollwright.events import Failed, Sampled
from rollwright.tree import StopReason

_GLANCE = 1.0  # seconds between looks at whether the thread still lives


class Fleet:
    """All asks of a client. What is shared between the threads is touched under the lock only.

    Args:
        wire, found: the way to the server, and how to talk to it.
        retries: how often a request is sent again after a failure that may pass.
        backoff: seconds before the first retry; doubles each time, with jitter.
        max_in_flight: requests on their way at once; the others wait for a place.
    """

    def __init__(self, wire: Wire, found: Found, retries: int, backoff: float, max_in_flight: int) -> None:
        self._wire, self._dialect, self._waits = wire, found.dialect, wire.waits
        self._tells_version = found.gives.version
        self._retries, self._backoff = retries, backoff
        self._slots = asyncio.Semaphore(max_in_flight)
        self._jitter = random.Random()  # of waiting times only
        self._tasks: dict[str, Future[None]] = {}
        self.version = found.version
        self._changed = threading.Condition()
        self._flights: dict[str, Flight] = {}
        self._ready: deque[Sampled | Failed] = deque()
        self._is_held = False
        self.num_retries = self.num_dropped = 0

    # ------------------------------------------------------------------ for the engine's owner

    @property
    def num_live(self) -> int:
        """Asks whose end was not returned yet."""
        return len(self._flights)

    def has(self, ask: str) -> bool:
        return ask in self._flights

    def add(self, flight: Flight) -> None:
        """Take a flight; it starts at once unless the fleet is held."""
        with self._changed:
            self._flights[flight.command.ask] = flight
            self._send(flight)

    def abort(self, ask: str) -> Sampled:
        """Close a flight's stream and return what was not reported of it, with its end if it came to one."""
        with self._changed:
            flight = self._flights.pop(ask, None)
            if flight is None:
                raise EngineError(f"no ask {ask!r} is in flight; it ended before or was never submitted")
            self._cancel(flight)
            earlier = [e for e in self._ready if e.ask == ask and isinstance(e, Sampled)]
            self._ready = deque(e for e in self._ready if e.ask != ask)
            if flight.stop is None:
                flight.flush(StopReason.INTERRUPTED, self.version)
            return self._as_one([*earlier, *flight.events])

    def step(self) -> list[Sampled | Failed]:
        """Wait until something is due and return all that is; [] when idle."""
        with self._changed:
            while not self._ready:
                if not self._flights:
                    return []
                self._changed.wait(_GLANCE)
                if not self._wire.is_alive:
                    raise EngineError(f"the client of {self._wire.root} was closed with asks in flight")
            events, self._ready = list(self._ready), deque()
            for event in events:
                if isinstance(event, Failed) or event.stop is not None:
                    self._flights.pop(event.ask, None)
                    self._tasks.pop(event.ask, None)
            return events

    def hold(self) -> None:
        """Close every stream and report what it brought, under the version so far."""
        with self._changed:
            self._is_held = True
            for flight in self._flights.values():
                self._cancel(flight)
                if flight.num_unreported and flight.stop is None:
                    flight.flush(None, self.version)
                self._collect(flight)

    def publish(self, version: int) -> None:
        """Go on under a new version; what nobody can label is dropped and sampled again."""
        with self._changed:
            must_restart = self._is_held or not self._tells_version
            self.version, self._is_held = version, False
            for flight in self._flights.values():
                if flight.stop is None and must_restart:
                    self._cancel(flight)
                    self.num_dropped += flight.forget()
                    self._send(flight)

    def _as_one(self, events: Sequence[Sampled]) -> Sampled:
        """Join the events of an aborted ask. One event holds one version: what later ones made is dropped."""
        first = next((e.version for e in events if e.tokens), events[-1].version)
        mine = [e for e in events if e.version == first or not e.tokens]
        self.num_dropped += sum(len(e.tokens) for e in events if e not in mine)
        return msgspec.structs.replace(
            events[-1],
            version=first,
            stop=events[-1].stop if len(mine) == len(events) else StopReason.INTERRUPTED,
            prefilled=sum(e.prefilled for e in events),
            **{
                name: _joined(mine, name)
                for name in ("tokens", "logprobs", "entropies", "kept_masses", "top")
            },
        )

    # ------------------------------------------------------------------ on the client's thread

    def _send(self, flight: Flight) -> None:
        if not self._is_held:
            self._tasks[flight.command.ask] = self._wire.start(self._fly(flight, flight.epoch))

    def _cancel(self, flight: Flight) -> None:
        """Close a flight's stream; what still arrives on it is of an older epoch and not taken."""
        flight.epoch += 1
        task = self._tasks.pop(flight.command.ask, None)
        if task is not None:
            task.cancel()

    async def _fly(self, flight: Flight, epoch: int) -> None:
        """Bring a flight to its end, over retries."""
        async with self._slots:
            until = time.monotonic() + self._waits.total
            for attempt in itertools.count(1):
                try:
                    await self._stream(flight, epoch, until)
                    return
                except Passing as error:
                    if attempt > self._retries:
                        self._fail(flight, epoch, f"{error} (tried {attempt} times)")
                        return
                    self.num_retries += 1
                    await asyncio.sleep(self._pause(attempt, error.retry_after))
                except EngineError as error:
                    self._fail(flight, epoch, str(error))
                    return
                except Exception as error:  # a bug, or an answer of a shape that nobody knows
                    self._fail(flight, epoch, f"{self._wire.root}: {type(error).__name__}: {error}")
                    return

    async def _stream(self, flight: Flight, epoch: int, until: float) -> None:
        """Send one request and take its answer to the end.

        Raises:
            Passing: it failed in a way that may pass, or ended before the answer did.
        """
        ask = flight.ask()
        if ask.max_tokens < 1:  # all came before the stream was cut
            self._change(flight, epoch, partial(flight.flush, StopReason.LENGTH, self.version))
            return
        reader = self._dialect.reader(ask)
        messages = self._wire.stream(self._dialect.path, self._dialect.body(ask), until)
        async with contextlib.aclosing(messages):
            async for message in messages:
                parts = reader.read(message)
                self._change(flight, epoch, partial(self._take, flight, parts))
                if flight.stop is not None:
                    return
        raise Passing(f"{self._wire.root}: a stream ended before its answer did")

    def _take(self, flight: Flight, parts: Sequence[Part]) -> None:
        for part in parts:
            if flight.stop is None:
                flight.take(part, self.version)

    def _change(self, flight: Flight, epoch: int, change: Callable[[], None]) -> None:
        """Change a flight, unless it was aborted or held meanwhile, and tell what is due."""
        with self._changed:
            if flight.epoch != epoch:
                raise asyncio.CancelledError
            change()
            self._collect(flight)

    def _collect(self, flight: Flight) -> None:
        if flight.events:
            self._ready += flight.events
            flight.events = []
            self._changed.notify_all()

    def _fail(self, flight: Flight, epoch: int, message: str) -> None:
        with self._changed:
            if flight.epoch != epoch:
                return
            if flight.num_unreported:
                flight.flush(None, self.version)
            self._collect(flight)
            self._ready.append(Failed(ask=flight.command.ask, kind="engine", message=message))
            self._changed.notify_all()

    def _pause(self, attempts: int, retry_after: float | None) -> float:
        seconds = min(self._backoff * 2.0 ** (attempts - 1), 30.0)
        return max(retry_after or 0.0, seconds * self._jitter.uniform(0.5, 1.5))


def _joined(events: Sequence[Sampled], name: str) -> Any:
    """Return a column of several events as one; None where one has none."""
    parts = [getattr(event, name) for event in events]
    return None if any(part is None for part in parts) else tuple(v for part in parts for v in part)
