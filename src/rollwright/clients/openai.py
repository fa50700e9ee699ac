"""A server somewhere else as the engine: any of those that give token ids and logprobs over HTTP."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from rollwright.clients.detect import find
from rollwright.clients.dialect import Passing
from rollwright.clients.fleet import Fleet
from rollwright.clients.flight import Flight
from rollwright.clients.wire import Waits, Wire
from rollwright.engine.stops import TextDecoder
from rollwright.errors import EngineError
from rollwright.events import Failed, Sampled, Submit

T = TypeVar("T")


class OpenAIEngine:
    """Samples from a server. Implements `rollwright.engine.api.Engine`.

    Args:
        base_url: the server's address, with or without ``/v1``.
        model: the served model's name; None takes the only one.
        tokenizer: finds stop strings in ids; needed for stop strings with servers that are not ours.
        server: ``vllm``, ``sglang``, ``llama.cpp``, ``rollwright``; None asks the server.
        api_key: sent as a bearer token.
        version: of the weights that it serves, where it does not say.
        waits: timers of every wait.
        max_in_flight: requests at once; further asks wait here.
        retries: how often a request is sent again after a failure that may pass.
        backoff: seconds before the first retry; doubles each time, with jitter.
        has_priority: the server schedules by priority (vLLM and SGLang when started so; ours always).
        trust_env: use the environment's proxies.

    What a server cannot give is refused by `submit`, before anything is sampled; `require` refuses a whole
    method. An ask that fails for good is answered by a `Failed` of kind ``engine`` from `step`; tokens that
    came before it are reported first.

    Raises:
        EngineError: the server cannot be reached, or gives no token ids or logprobs.
    """

    def __init__(
        self,
        base_url: str,
        model: str | None = None,
        tokenizer: TextDecoder | None = None,
        *,
        server: str | None = None,
        api_key: str | None = None,
        version: int = 0,
        waits: Waits | None = None,
        max_in_flight: int = 256,
        retries: int = 4,
        backoff: float = 0.5,
        has_priority: bool = False,
        trust_env: bool = False,
    ) -> None:
        root = base_url.rstrip("/").removesuffix("/v1")
        headers = {} if api_key is None else {"authorization": f"Bearer {api_key}"}
        self.waits = waits or Waits()
        self._tokenizer = tokenizer
        self._wire = Wire(root, headers, self.waits, max_in_flight, trust_env)
        try:
            client = f"c{uuid.uuid4().hex[:12]}"
            work = find(self._wire, server, model, client, has_priority, version)
            self.found = self._wire.start(work).result(4 * self.waits.first)
        except BaseException:
            self._wire.close()
            raise
        self.dialect, self.gives = self.found.dialect, self.found.gives
        self._fleet = Fleet(self._wire, self.found, retries, backoff, max_in_flight)

    @property
    def version(self) -> int:
        """The version of the weights; the label of what a server samples that does not say its own."""
        return self._fleet.version

    @version.setter
    def version(self, version: int) -> None:
        self._fleet.version = version

    @property
    def report(self) -> dict[str, int]:
        """What went wrong so far: requests sent again, and tokens dropped because nobody could label them."""
        return {"num_retries": self._fleet.num_retries, "num_dropped": self._fleet.num_dropped}

    def close(self) -> None:
        """Close every connection."""
        self._wire.close()

    def require(self, needs: frozenset[str]) -> None:
        """Refuse a method that needs what this server cannot give.

        Args:
            needs: `rollwright.method.Method.engine_needs`.

        Raises:
            EngineError: it names what is missing.
        """
        missing = sorted(needs - self.gives.names)
        if missing:
            given = ", ".join(sorted(self.gives.names)) or "none of them"
            raise EngineError(
                f"the {self.dialect.name} server at {self._wire.root} cannot give {', '.join(missing)}, "
                f"which the method needs (it gives: {given}); use another method, or `rollwright serve`"
            )

    # ------------------------------------------------------------------ the Engine protocol

    @property
    def num_live(self) -> int:
        """Asks whose end was not returned by `step` yet."""
        return self._fleet.num_live

    def submit(self, command: Submit, prefix: Sequence[int]) -> None:
        """Take an ask; ``prefix`` is the whole path of token ids before its first new token.

        Raises:
            EngineError: it needs what the server cannot give.
        """
        name = f"ask {command.ask!r}"
        if self._fleet.has(command.ask):
            raise EngineError(f"{name} is in flight already; every ask needs a name of its own")
        if not prefix or command.max_tokens < 1:
            raise EngineError(
                f"{name} needs a prefix and room for a token; given {len(prefix)}, {command.max_tokens}"
            )
        lack = self.gives.lack(command)
        if not lack and command.sampling.stop_strings and not self.gives.noise and self._tokenizer is None:
            lack = "the exact place of a stop string in ids without a tokenizer; give one to the client"
        if lack:
            raise EngineError(
                f"{name}: the {self.dialect.name} server at {self._wire.root} cannot give {lack}"
            )
        flight = Flight(command, list(prefix), self._tokenizer, self.gives)
        self._fleet.add(flight)

    def abort(self, ask: str) -> Sampled:
        """Stop the ask now and return the tokens not reported yet, with stop INTERRUPTED.

        An ask that came to its end meanwhile is answered with its real end.

        Raises:
            EngineError: no such ask is in flight.
        """
        return self._fleet.abort(ask)

    def step(self) -> list[Sampled | Failed]:
        """Wait until at least one chunk is due and return every chunk that is; [] when idle.

        Raises:
            EngineError: the client's thread has ended.
        """
        return self._fleet.step()

    def retire(self, group: str) -> None:
        """Nothing to do: a server's cache forgets by itself."""

    def hold(self) -> None:
        """Stop all sampling, before the server's weights change; `publish` lets it go on.

        Needed for servers that do not say which version sampled a chunk: what came until now is labelled
        with the old version.
        """
        self._fleet.hold()

    def publish(self, version: int) -> None:
        """The server has new weights, whole, under this version.

        A server that says its version must say this one. One that does not is taken at the caller's word:
        what is in flight goes on from its last report; tokens that came since then are dropped and counted
        in `report` unless `hold` was called before the weights changed, since nobody can say which weights
        sampled them.

        Raises:
            EngineError: the version does not move up, or the server says another one.
        """
        if version < self.version or (version == self.version and self.num_live):
            raise EngineError(f"publish({version}) after version {self.version}; a version only moves up")
        told = version if self.found.ask_version is None else self._call(self.found.ask_version)
        if told != version:
            raise EngineError(
                f"publish({version}): the server at {self._wire.root} serves version {told}; give it the new "
                "weights first (`update_weights`)"
            )
        self._fleet.publish(version)

    def update_weights(self, path: Path | str, version: int) -> None:
        """Let the server load a checkpoint from its own disk, then publish the version.

        Raises:
            EngineError: the server has no such request, or refuses it; the old weights serve on.
        """
        if self.found.load_weights is None:
            raise EngineError(
                f"the {self.dialect.name} server at {self._wire.root} loads no weights over HTTP; change "
                "them in its own way between hold() and publish()"
            )
        if not self.gives.version:
            self.hold()
        self._call(partial(self.found.load_weights, str(path), version))
        self.publish(version)

    def _call(self, work: Callable[[], Awaitable[T]]) -> T:
        async def run() -> T:
            return await work()

        try:
            return self._wire.start(run()).result(self.waits.first + self.waits.connect)
        except Passing as error:
            raise EngineError(str(error)) from error
