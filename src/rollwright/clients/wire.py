"""HTTP below the client engine: one thread with an event loop, timers on every wait, errors by kind."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import httpx
import msgspec

from rollwright.clients.dialect import Json, Passing
from rollwright.errors import EngineError

T = TypeVar("T")
_SPARE = 4  # connections for what is no sampling: versions, weights
_MOST_BODY = 2000  # characters of an error page that are shown


@dataclass(frozen=True, slots=True)
class Waits:
    """How long each wait may take, in seconds; none is without end.

    Args:
        connect: until the server takes the connection.
        first: from the request to the first tokens, queueing at the server included.
        between: from one message of a stream to the next.
        total: one ask, with all its retries, from its first request on.
    """

    connect: float = 10.0
    first: float = 300.0
    between: float = 60.0
    total: float = 1800.0


class Wire:
    """Requests to one server.

    Args:
        root: the server's address.
        headers: sent with every request.
        waits: the timers.
        max_in_flight: connections at once.
        trust_env: use the environment's proxies.
    """

    def __init__(
        self, root: str, headers: dict[str, str], waits: Waits, max_in_flight: int, trust_env: bool
    ) -> None:
        self.root, self.waits = root, waits
        limits = httpx.Limits(max_connections=max_in_flight + _SPARE, max_keepalive_connections=max_in_flight)
        timeout = httpx.Timeout(None, connect=waits.connect)  # every other wait has a timer of ours
        self._loop = asyncio.new_event_loop()
        self._http = httpx.AsyncClient(
            headers=headers,
            timeout=timeout,
            limits=limits,
            trust_env=trust_env,
            verify=not root.startswith("http://"),  # reading the certificates takes a while
        )
        self._thread = threading.Thread(target=self._loop.run_forever, name="rollwright-client", daemon=True)
        self._thread.start()

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin work on the thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def later(self, work: Any, *arguments: Any) -> None:
        """Call something on the thread."""
        self._loop.call_soon_threadsafe(work, *arguments)

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def close(self) -> None:
        """Close every connection and end the thread."""
        if not self._thread.is_alive():
            return
        with contextlib.suppress(TimeoutError):
            self.start(self._close()).result(5)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)

    async def _close(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._http.aclose()
        await asyncio.get_running_loop().shutdown_asyncgens()

    async def ask(self, method: str, path: str, body: Json | None = None) -> tuple[int, Any]:
        """Return (status, JSON or None) of a short request.

        Raises:
            Passing: the server cannot be reached, or not in time.
        """
        try:
            async with asyncio.timeout(self.waits.first):
                response = await self._http.request(method, self.root + path, json=body)
        except (httpx.HTTPError, TimeoutError) as error:
            raise Passing(f"{method} {self.root}{path}: {_words(error)}") from error
        try:
            return response.status_code, msgspec.json.decode(response.content)
        except msgspec.DecodeError:
            return response.status_code, None

    async def stream(self, path: str, body: Json, until: float) -> AsyncGenerator[Json, None]:
        """Yield the messages of an event stream.

        Args:
            path, body: of the request.
            until: when the ask must be done (`time.monotonic`).

        Raises:
            Passing: a failure that may pass: no connection, 429, 5xx, a stall.
            EngineError: the server refuses the request, or the time is up.
        """
        where = f"POST {self.root}{path}"
        async with contextlib.AsyncExitStack() as stack:
            async with self._timer(self.waits.first, until, "to begin its answer", where):
                content = msgspec.json.encode(body)
                headers = {"content-type": "application/json", "accept": "text/event-stream"}
                request = self._http.build_request("POST", self.root + path, content=content, headers=headers)
                response = await self._http.send(request, stream=True)
                stack.push_async_callback(response.aclose)
                if response.status_code != 200:
                    _refuse(response, await response.aread(), where)
                pieces = cast(AsyncGenerator[bytes, None], response.aiter_bytes())
                await stack.enter_async_context(contextlib.aclosing(pieces))
            seconds, rest = self.waits.first, b""
            while True:
                async with self._timer(seconds, until, "to send more", where):
                    try:
                        data = await anext(pieces)
                    except StopAsyncIteration:
                        return
                seconds = self.waits.between
                *events, rest = (rest + data).replace(b"\r\n", b"\n").split(b"\n\n")
                for event in events:
                    message = _message(event, where)
                    if message is not None:
                        yield message

    @contextlib.asynccontextmanager
    async def _timer(self, seconds: float, until: float, what: str, where: str) -> AsyncIterator[None]:
        """Bound a wait, and turn the library's errors into ours."""
        left = until - time.monotonic()
        try:
            async with asyncio.timeout(max(0.0, min(seconds, left))):
                yield
        except TimeoutError as error:
            if left <= seconds:
                raise EngineError(f"{where}: not done within {self.waits.total:g} s in total") from error
            raise Passing(f"{where}: the server took more than {seconds:g} s {what}") from error
        except httpx.HTTPError as error:
            raise Passing(f"{where}: {_words(error)}") from error


def _message(event: bytes, where: str) -> Json | None:
    """Return the JSON of one event; None for comments and the end mark."""
    lines = [line[5:].strip() for line in event.split(b"\n") if line.startswith(b"data:")]
    data = b"\n".join(lines)
    if not data or data == b"[DONE]":
        return None
    try:
        message = msgspec.json.decode(data)
    except msgspec.DecodeError as error:
        raise EngineError(f"{where}: a message is not JSON ({error}): {data[:200]!r}") from error
    if not isinstance(message, dict):
        raise EngineError(f"{where}: a message is no object: {data[:200]!r}")
    if message.get("error"):
        _refuse_in_stream(message["error"], where)
    return message


def _refuse_in_stream(problem: Any, where: str) -> None:
    """Raise for an error that came as a message."""
    fields = problem if isinstance(problem, dict) else {"message": problem}
    words = f"{where}: the server ended the stream: {fields.get('message')}"
    code = fields.get("code")
    if fields.get("type") == "invalid_request_error" or (isinstance(code, int) and 400 <= code < 429):
        raise EngineError(words)
    raise Passing(words)


def _refuse(response: httpx.Response, body: bytes, where: str) -> None:
    status = response.status_code
    words = f"{where}: status {status}: {body.decode('utf-8', 'replace')[:_MOST_BODY]}"
    if status in (408, 425, 429) or status >= 500:
        raise Passing(words, _seconds(response.headers.get("retry-after")))
    raise EngineError(words)


def _seconds(value: str | None) -> float | None:
    try:
        return None if value is None else max(0.0, float(value))
    except ValueError:  # a date: the usual backoff will do
        return None


def _words(error: Exception) -> str:
    return f"{type(error).__name__}{f': {error}' if str(error) else ''}"
