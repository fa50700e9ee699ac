"""`rollwright serve`: everything a submit says, everything the engine records."""

from __future__ import annotations

from typing import Any

from rollwright.clients.dialect import Ask, Json, Part
from rollwright.clients.gives import Gives
from rollwright.tree import StopReason

_MAX_LOGPROBS = 20  # the server's default limit


class Rollwright:
    """Speaks to our own server.

    Args:
        client: a word that keeps this client's groups apart from others' in the server's cache.
    """

    name, path = "rollwright", "/v1/completions"

    def __init__(self, client: str) -> None:
        self.client = client

    def gives(self) -> Gives:
        return Gives(
            kept_mass=True, entropy=True, num_top=_MAX_LOGPROBS, first=True, noise=True, version=True
        )

    def body(self, ask: Ask) -> dict[str, Any]:
        command, sampling = ask.command, ask.command.sampling
        is_begun = ask.num_made > 0
        exact = {
            "stream": command.stream,
            "start": command.start + ask.num_made,
            "turn_start": command.start if is_begun and command.turn_start is None else command.turn_start,
            "first": None if is_begun else command.first,
            "num_top": command.num_top,
            "chunk": ask.chunk,
            "group": f"{self.client}/{command.group}",
            "text": False,  # nobody reads it here
        }
        return {
            "prompt": list(ask.ids),
            "max_tokens": ask.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k,
            "min_p": sampling.min_p,
            "stop": list(sampling.stop_strings),
            "stop_token_ids": list(sampling.stop_ids),
            "stream": True,
            "priority": command.priority,
            "rollwright": {name: value for name, value in exact.items() if value is not None},
        }

    def reader(self, ask: Ask) -> RecordReader:
        return RecordReader()


class RecordReader:
    """Reads the exact record."""

    def read(self, message: Json) -> list[Part]:
        return [_part(run) for choice in message["choices"] for run in choice["rollwright"]["chunks"]]


def _part(run: Json) -> Part:
    top = run.get("top")
    return Part(
        tokens=tuple(run["tokens"]),
        logprobs=tuple(run["logprobs"]),
        entropies=_tuple(run["entropies"]),
        kept_masses=_tuple(run["kept_masses"]),
        top=None if top is None else tuple(tuple((int(i), p) for i, p in at) for at in top),
        version=run["version"],
        prefilled=run["prefilled"],
        stop=None if run["stop"] is None else StopReason(run["stop"]),
    )


def _tuple(values: list[float] | None) -> tuple[float, ...] | None:
    return None if values is None else tuple(values)
