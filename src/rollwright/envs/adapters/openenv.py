"""Environments behind OpenEnv servers, over its web socket: a session for each episode.

The protocol is spoken here, because OpenEnv's own client brings its whole server with it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

from rollwright.envs.adapters._need import need
from rollwright.envs.api import Observation
from rollwright.errors import EnvironmentFault

_OURS = {"VALIDATION_ERROR", "INVALID_JSON"}  # what the action, so the model, is to blame for
_BESIDE = {"done", "reward", "metadata", "truncated"}


class OpenEnv:
    """One session with an OpenEnv server.

    The server must allow as many sessions as episodes are open (its ``max_concurrent_envs``). It says only
    that an episode is done; where an observation or its metadata holds ``truncated``, that is kept apart.

    Args:
        url: of the server, ``http://host:port``.
        act: turns a text into an action's fields; without it, ``{field: text}``.
        field: the action's field for the text.
        tell: turns an observation's fields into text; without it, the only field, or all as JSON.
        seconds: until the server must have answered.
    """

    forking = "replay"

    def __init__(
        self,
        url: str,
        act: Callable[[str], Mapping[str, Any]] | None = None,
        field: str = "message",
        tell: Callable[[Mapping[str, Any]], str] | None = None,
        seconds: float = 60.0,
    ) -> None:
        self.url, self.act, self.field, self.tell, self.seconds = url.rstrip("/"), act, field, tell, seconds
        self._socket: Any = None
        self._stack = ExitStack()

    def reset(self, seed: int) -> str:
        return self._text(self._ask("reset", {"seed": seed}).get("observation", {}))

    def step(self, turn: str) -> Observation:
        fields = dict(self.act(turn)) if self.act is not None else {self.field: turn}
        try:
            told = self._ask("step", fields)
        except _Refused as error:
            return Observation(f"error: {error}\n")
        observation, done = told.get("observation", {}), bool(told.get("done"))
        facts = {**(told.get("metadata") or {}), **(observation.get("metadata") or {}), **observation}
        is_cut = done and bool(facts.get("truncated"))
        reward = told.get("reward")
        reward = (
            float(reward) if isinstance(reward, bool) else reward
        )  # the protocol lets a truth value through
        return Observation(self._text(observation), done and not is_cut, is_cut, reward)

    def close(self) -> None:
        self._socket = None
        self._stack.close()

    def _ask(self, kind: str, data: Mapping[str, Any]) -> dict[str, Any]:
        """Send one message and return the data of its answer.

        Raises:
            EnvironmentFault: the server cannot be reached, does not answer in time, or fails.
        """
        sockets = need("websockets.sync.client", "openenv")
        try:
            if self._socket is None:
                address = "ws" + self.url.removeprefix("http") + "/ws"
                opened = sockets.connect(address, open_timeout=self.seconds, max_size=2**27)
                self._socket = self._stack.enter_context(opened)
            self._socket.send(json.dumps({"type": kind, "data": dict(data)}))
            answer = json.loads(self._socket.recv(timeout=self.seconds))
        except Exception as error:  # sockets, time-outs, a connection that was closed
            self.close()  # an answer that comes late must not be taken for the next one's
            said = f"{type(error).__name__} {error}".rstrip()
            raise EnvironmentFault(f"the OpenEnv server {self.url} does not answer {kind}: {said}") from error
        told = answer.get("data", {})
        if answer.get("type") == "error":
            said = f"{told.get('message', 'unknown error')} ({told.get('code', 'no code')})"
            if kind == "step" and told.get("code") in _OURS:
                raise _Refused(said)
            raise EnvironmentFault(f"the OpenEnv server {self.url} fails at {kind}: {said}")
        return dict(told)

    def _text(self, observation: Mapping[str, Any]) -> str:
        if self.tell is not None:
            return self.tell(observation)
        fields = {key: value for key, value in observation.items() if key not in _BESIDE}
        if len(fields) == 1:
            return f"{next(iter(fields.values()))}\n"
        return json.dumps(fields, ensure_ascii=False, sort_keys=True) + "\n"


class _Refused(Exception):
    """The server takes the action for none."""
