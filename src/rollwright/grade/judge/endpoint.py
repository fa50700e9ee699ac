"""A judge's model behind an OpenAI-compatible server: every wait has a timer, every token is counted."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import threading
import time
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx

from rollwright.errors import ConfigError
from rollwright.grade.judge.cache import Cache, key_of
from rollwright.grade.judge.chat import Message, Reply

T = TypeVar("T")
_SHOWN = 300  # characters of an error page in a message


@dataclass(slots=True)
class Usage:
    """What was spent so far.

    Args:
        requests: sent, tries again included.
        retries: of them, tries again.
        failures: conversations that got no reply.
        cached: replies from the cache.
        shared: replies that another conversation, equal and in flight, had asked for.
        prompt_tokens, completion_tokens: as the server says.
        unmetered: replies of which it did not say.
    """

    requests: int = 0
    retries: int = 0
    failures: int = 0
    cached: int = 0
    shared: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    unmetered: int = 0


class Endpoint:
    """Replies from ``/v1/chat/completions``. Implements `Chat`; its calls may come from any thread.

    Args:
        base_url: the server's address, with or without ``/v1``.
        model: the model's name there.
        sampling: further fields of each request, for example ``temperature`` (0), ``max_tokens`` (1024),
            ``seed``.
        key_variable: environment variable that holds the key, sent as a bearer token.
        timeout_s: one request, from its start to its last byte.
        total_s: one conversation, with all tries and waits between.
        retries: tries again after what may pass: no connection, a timeout, 408, 425, 429, 5xx, half a body.
        backoff_s: wait before the first of them, doubled each time; a server's ``retry-after`` goes first.
        max_in_flight: requests at once.
        max_bytes: of one reply's body; a longer one is given up.
        cache: keeps replies, by address, model, messages and sampling; failures are never kept.
        trust_env: use the environment's proxies.

    Raises:
        ConfigError: a number out of range, or the key's variable is not set.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        sampling: Mapping[str, Any] | None = None,
        *,
        key_variable: str | None = None,
        timeout_s: float = 60.0,
        total_s: float = 300.0,
        retries: int = 3,
        backoff_s: float = 0.5,
        max_in_flight: int = 8,
        max_bytes: int = 4 << 20,
        cache: Cache | None = None,
        trust_env: bool = False,
    ) -> None:
        if min(timeout_s, total_s, max_in_flight, max_bytes) <= 0 or min(retries, backoff_s) < 0:
            raise ConfigError(
                f"judge at {base_url}: timeout_s={timeout_s}, total_s={total_s}, retries={retries},"
                f" backoff_s={backoff_s}, max_in_flight={max_in_flight}, max_bytes={max_bytes};"
                " expected positive numbers, and retries and backoff_s of at least 0"
            )
        headers = {}
        if key_variable is not None:
            if not os.environ.get(key_variable):
                raise ConfigError(f"judge at {base_url}: set the variable {key_variable}, which has no value")
            headers["authorization"] = f"Bearer {os.environ[key_variable]}"
        self.name, self.usage, self.cache = model, Usage(), cache
        self.url = base_url.rstrip("/").removesuffix("/v1") + "/v1/chat/completions"
        self.sampling = {"temperature": 0, "max_tokens": 1024, **(sampling or {})}
        self.timeout_s, self.total_s, self.retries, self.backoff_s = timeout_s, total_s, retries, backoff_s
        self.max_bytes = max_bytes
        self._slots = asyncio.Semaphore(max_in_flight)
        self._flying: dict[str, asyncio.Task[Reply]] = {}
        self._http = httpx.AsyncClient(
            headers=headers,
            timeout=None,  # our own timers bound the whole request; the library's bound each read
            trust_env=trust_env,
            limits=httpx.Limits(max_connections=max_in_flight),
            verify=not self.url.startswith("http://"),  # reading the certificates takes a while
        )
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="rollwright-judge", daemon=True)
        self._thread.start()

    def ask_many(self, asks: Sequence[Sequence[Message]]) -> list[Reply]:
        """Return a reply for each conversation, in order; one that failed has an error and no text."""

        async def all_of_them() -> list[Reply]:
            return list(await asyncio.gather(*(self._ask(messages) for messages in asks)))

        return self._run(all_of_them())

    def close(self) -> None:
        """Close every connection and end the thread."""
        if self._thread.is_alive():
            self._run(self._http.aclose())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(5)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    # ------------------------------------------------------------ one conversation, on the thread

    async def _ask(self, messages: Sequence[Message]) -> Reply:
        body = {"model": self.name, "messages": list(messages), **self.sampling}
        key = key_of(url=self.url, body=body)
        kept = None if self.cache is None else self.cache.get(key)
        if kept is not None:
            self.usage.cached += 1
            return Reply(**kept, is_cached=True)
        task = self._flying.get(key)
        if task is not None:
            self.usage.shared += 1
            reply = await asyncio.shield(task)
            return dataclasses.replace(reply, prompt_tokens=0, completion_tokens=0)
        self._flying[key] = task = asyncio.ensure_future(self._tried(body))
        try:
            reply = await task
        finally:
            del self._flying[key]
        if self.cache is not None and not reply.error:
            self.cache.put(key, {"text": reply.text, "is_cut": reply.is_cut})
        return reply

    async def _tried(self, body: Mapping[str, Any]) -> Reply:
        """Return the reply after as many tries as it takes, within the total time."""
        until = time.monotonic() + self.total_s
        spent = [0, 0]
        problem = _Problem("was not asked")
        for attempt in range(self.retries + 1):
            try:
                text, is_cut = await self._once(body, until, attempt > 0, spent)
                return Reply(text, "", is_cut, spent[0], spent[1])
            except _Problem as error:
                problem = error
            pause = self.backoff_s * 2.0**attempt if problem.after_s is None else problem.after_s
            if not problem.may_pass or attempt == self.retries or time.monotonic() + pause >= until:
                break
            await asyncio.sleep(pause)
        self.usage.failures += 1
        return Reply("", f"{self.url}: {problem}", False, spent[0], spent[1])

    async def _once(
        self, body: Mapping[str, Any], until: float, is_again: bool, spent: list[int]
    ) -> tuple[str, bool]:
        try:
            # The wait for a slot counts towards the total only: a queue is not the server's slowness.
            async with asyncio.timeout(max(0.0, until - time.monotonic())), self._slots:
                self.usage.requests += 1
                self.usage.retries += is_again
                async with asyncio.timeout(self.timeout_s):
                    answer = await self._posted(body)
        except TimeoutError as error:
            late = f"{self.timeout_s:g} s" if time.monotonic() < until else f"{self.total_s:g} s in total"
            raise _Problem(f"no whole reply within {late}") from error
        except httpx.HTTPError as error:
            raise _Problem(f"{type(error).__name__}{f': {error}' if str(error) else ''}") from error
        except httpx.InvalidURL as error:
            raise _Problem(f"no such address: {error}", may_pass=False) from error
        return self._read(answer, spent)

    async def _posted(self, body: Mapping[str, Any]) -> bytes:
        async with self._http.stream("POST", self.url, json=body) as response:
            data = bytearray()
            async for piece in response.aiter_bytes():
                data += piece
                if len(data) > self.max_bytes:
                    raise _Problem(f"its reply is longer than {self.max_bytes} bytes", may_pass=False)
        if response.status_code != 200:
            status = response.status_code
            words = f"status {status}: {data.decode('utf-8', 'replace')[:_SHOWN]}"
            may_pass = status in (408, 425, 429) or status >= 500
            raise _Problem(words, may_pass, _seconds(response.headers.get("retry-after")))
        return bytes(data)

    def _read(self, data: bytes, spent: list[int]) -> tuple[str, bool]:
        """Return (text, whether it was cut) of a reply's body, and count what it cost."""
        try:
            value = json.loads(data)
            choice = value["choices"][0]
            text = choice["message"]["content"]
        except (ValueError, LookupError, TypeError) as error:
            raise _Problem(f"no chat completion: {data.decode('utf-8', 'replace')[:_SHOWN]}") from error
        usage = value.get("usage")
        usage = usage if isinstance(usage, dict) else {}
        counts: list[Any] = [usage.get(key) for key in ("prompt_tokens", "completion_tokens")]
        if all(type(count) is int and count >= 0 for count in counts):
            spent[0], spent[1] = spent[0] + counts[0], spent[1] + counts[1]
            self.usage.prompt_tokens += counts[0]
            self.usage.completion_tokens += counts[1]
        else:
            self.usage.unmetered += 1
        if not isinstance(text, str):
            raise _Problem(f"its message has no text: {json.dumps(choice)[:_SHOWN]}")
        return text, choice.get("finish_reason") == "length"


class _Problem(Exception):
    """Why a try gave no reply."""

    def __init__(self, words: str, may_pass: bool = True, after_s: float | None = None) -> None:
        super().__init__(words)
        self.may_pass, self.after_s = may_pass, after_s


def _seconds(value: str | None) -> float | None:
    try:
        return None if value is None else max(0.0, float(value))
    except ValueError:  # a date: the usual backoff will do
        return None
