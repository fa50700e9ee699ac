"""A request's asks on their way: from the engine's thread to the event loop, with limits and a timer.

The engine's thread only appends to lists; after each step it wakes the event loop once for all of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from rollwright.errors import EngineError
from rollwright.events import Sampled, Submit
from rollwright.serve.choices import Choice, Piece
from rollwright.serve.loop import EngineLoop
from rollwright.serve.metrics import Metrics
from rollwright.serve.refusals import Refused

Recorder = Callable[[Choice, Sampled], None]


@dataclass(frozen=True, slots=True)
class Limits:
    """What one server takes on.

    Args:
        max_open: asks that may decode or wait at once; one more is refused with 429.
        request_timeout_s: a request is given up after so long, with 504.
        max_logprobs: alternatives a request may ask for at each token.
        stream_interval: tokens in one piece of a stream, unless the request says otherwise.
        max_body_bytes: of a request.
        max_rollouts: rollouts that are recorded at once; they go when they are deleted.
    """

    max_open: int = 512
    request_timeout_s: float = 600.0
    max_logprobs: int = 20
    stream_interval: int = 1
    max_body_bytes: int = 16 << 20
    max_rollouts: int = 10_000


@dataclass(eq=False)
class Part:
    """One ask of a job. `rollwright.serve.loop.Owner`; its methods run on the engine's thread."""

    job: Job
    command: Submit
    choice: Choice
    first_at: float | None = None
    is_over: bool = False

    def on_sampled(self, event: Sampled) -> None:
        self.job.jobs.arrived.append((self, event))

    def on_error(self, error: EngineError) -> None:
        self.job.jobs.arrived.append((self, error))


class Jobs:
    """All jobs of a server: admission, and the bridge between the threads.

    Args:
        loop: the engine's thread.
        limits: what is taken on.
        metrics: where is counted.
    """

    def __init__(self, loop: EngineLoop, limits: Limits, metrics: Metrics) -> None:
        self.loop, self.limits, self.metrics = loop, limits, metrics
        self.arrived: deque[tuple[Part, Sampled | EngineError]] = deque()
        self.num_open = 0
        self._aio: asyncio.AbstractEventLoop | None = None
        loop.after_step = self._wake

    def attach(self) -> None:
        """Tell what arrives to the running event loop."""
        self._aio = asyncio.get_running_loop()

    @contextlib.asynccontextmanager
    async def open(
        self, asks: Sequence[tuple[Submit, Choice]], recorder: Recorder | None = None
    ) -> AsyncIterator[Job]:
        """Submit asks; whatever has not ended when the block is left is aborted.

        Args:
            asks: each with the completion that its tokens belong to.
            recorder: told of every event on the event loop's thread, also when nobody reads any more.

        Raises:
            Refused: there are too many asks already.
        """
        if self.num_open + len(asks) > self.limits.max_open:
            self.metrics.refused += 1
            raise Refused(
                f"{self.num_open} completions are decoding or waiting, and {len(asks)} more would exceed the "
                f"limit of {self.limits.max_open}; try again later",
                status=429,
                code="too_many_requests",
                retry_after=1.0,
            )
        job = Job(self, asks, recorder)
        self.num_open += len(asks)
        try:
            for part in job.parts:
                self.loop.submit(part.command, part.choice.prompt, part)
            yield job
        finally:
            for part in job.parts:
                if not part.is_over:
                    with contextlib.suppress(EngineError):  # the server is closing: the loop ends them all
                        self.loop.abort(part.command.ask)

    def _wake(self) -> None:
        if self.arrived and self._aio is not None:
            with contextlib.suppress(RuntimeError):  # the event loop has closed; nobody waits any more
                self._aio.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        """Hand over what arrived, on the event loop's thread."""
        while self.arrived:
            part, what = self.arrived.popleft()
            part.job.take(part, what)


class Job:
    """The asks of one request."""

    def __init__(self, jobs: Jobs, asks: Sequence[tuple[Submit, Choice]], recorder: Recorder | None) -> None:
        self.jobs, self.recorder = jobs, recorder
        self.parts = [Part(self, command, choice) for command, choice in asks]
        self.started = time.monotonic()
        self.error: EngineError | None = None
        self._fresh: list[tuple[Choice, Piece]] = []
        self._signal = asyncio.Event()

    def take(self, part: Part, what: Sampled | EngineError) -> None:
        """Keep an event or an error, count it, and record it."""
        if isinstance(what, Sampled):
            try:
                self._take(part, what)
            except Exception as error:  # whoever waits for the answer must hear of it
                what = EngineError(f"the answer cannot be put together: {type(error).__name__}: {error}")
        if isinstance(what, EngineError):
            self._end(part)
            self.error = self.error or what
        self._signal.set()

    async def pieces(self) -> AsyncIterator[list[tuple[Choice, Piece]]]:
        """Yield what came, all that is there at once, until every ask has ended.

        Raises:
            Refused: the request took longer than the limit.
            EngineError: the engine refused an ask or failed.
        """
        seconds = self.jobs.limits.request_timeout_s
        timer = asyncio.get_running_loop().call_later(seconds, self._time_out, seconds)
        try:
            while True:
                if self.error is not None:
                    raise self.error
                if self._fresh:
                    fresh, self._fresh = self._fresh, []
                    yield _joined(fresh)
                    continue
                if all(part.is_over for part in self.parts):
                    return
                self._signal.clear()
                await self._signal.wait()
        finally:
            timer.cancel()

    def _time_out(self, seconds: float) -> None:
        words = f"not done after {seconds:g} s, the limit of this server"
        self.error = self.error or Refused(words, status=504)
        self._signal.set()

    def _take(self, part: Part, event: Sampled) -> None:
        metrics, now = self.jobs.metrics, time.monotonic()
        metrics.sampled(event)
        if event.tokens and part.first_at is None:
            part.first_at = now
        if event.stop is not None:
            self._end(part)
            to_first = None if part.first_at is None else part.first_at - self.started
            metrics.ended(event.stop, len(part.choice.prompt), now - self.started, to_first)
        self._fresh.append((part.choice, part.choice.take([event])))
        if self.recorder is not None:
            self.recorder(part.choice, event)

    def _end(self, part: Part) -> None:
        if not part.is_over:
            part.is_over = True
            self.jobs.num_open -= 1


def _joined(fresh: Sequence[tuple[Choice, Piece]]) -> list[tuple[Choice, Piece]]:
    """Join the pieces of each completion: one message instead of many where the reader is slower."""
    pieces: dict[int, tuple[Choice, Piece]] = {}
    for choice, piece in fresh:
        before = pieces.get(choice.index)
        if before is not None:
            piece = Piece(before[1].text + piece.text, [*before[1].events, *piece.events])
        pieces[choice.index] = (choice, piece)
    return list(pieces.values())
