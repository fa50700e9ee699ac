"""llama.cpp's native ``/completion``.

Probabilities of the sampled token come with ``n_probs``: before any sampler, or with
``post_sampling_probs`` after all of them, which is what temperatures other than 1 need. The order of
samplers is set to temperature alone, since the server's own order cuts before it cools. A token that leaves
a character unfinished is not sent at all; ``tokens_predicted`` at the end shows it, and such an answer is
refused, since ids are missing from it. Sources: llama.cpp's ``tools/server/README.md``,
``server-context.cpp`` (``process_token``, ``populate_token_probs``) and ``server-task.cpp``.
"""

from __future__ import annotations

import math
from typing import Any

from rollwright.clients.dialect import Ask, Json, Part, best, need
from rollwright.clients.gives import Gives
from rollwright.errors import EngineError
from rollwright.tree import StopReason

_SEED = 0x7FFFFFFF
_MAX_TOP = 20
_STOPS = {"eos": StopReason.EOS, "word": StopReason.STOP, "limit": StopReason.LENGTH}


class LlamaCpp:
    """Speaks to llama.cpp's server."""

    name, path = "llama.cpp", "/completion"

    def gives(self) -> Gives:
        return Gives(num_top=_MAX_TOP)

    def body(self, ask: Ask) -> dict[str, Any]:
        sampling = ask.command.sampling
        return {
            "prompt": list(ask.ids),
            "n_predict": ask.max_tokens,
            "temperature": sampling.temperature,
            "samplers": ["temperature"],
            "dynatemp_range": 0.0,
            "mirostat": 0,
            "repeat_penalty": 1.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "stop": list(sampling.stop_strings),
            "seed": (ask.command.stream + ask.num_made) & _SEED,
            "n_probs": max(1, ask.command.num_top),
            "post_sampling_probs": _is_cooled(ask),
            "return_tokens": True,
            "cache_prompt": True,
            "stream": True,
        }

    def reader(self, ask: Ask) -> LlamaCppReader:
        return LlamaCppReader(ask)


def _is_cooled(ask: Ask) -> bool:
    return ask.command.sampling.temperature not in (0, 1)


class LlamaCppReader:
    """Reads one token a message, and the end."""

    def __init__(self, ask: Ask) -> None:
        self.ask, self.num_read = ask, 0
        self.value, self.others = ("prob", "top_probs") if _is_cooled(ask) else ("logprob", "top_logprobs")

    def read(self, message: Json) -> list[Part]:
        tokens = tuple(map(int, message.get("tokens") or ()))
        entries = message.get("completion_probabilities") or ()
        self.num_read += len(tokens)
        if [entry.get("id") for entry in entries] != list(tokens):
            raise EngineError(
                f"llama.cpp: probabilities of {len(entries)} tokens came with {len(tokens)} ids that differ"
            )
        stop = self._end(message) if message.get("stop") else None
        if not tokens and stop is None:
            return []
        part = Part(
            tokens=tokens,
            logprobs=tuple(self._logprob(entry) for entry in entries),
            top=tuple(self._top(entry) for entry in entries) if self.ask.command.num_top else None,
            stop=stop,
        )
        return [part]

    def _end(self, message: Json) -> StopReason:
        num_made = need(message, "tokens_predicted", "llama.cpp")
        if num_made != self.num_read:
            raise EngineError(
                f"llama.cpp sampled {num_made} tokens and sent {self.num_read}: it leaves out those that end "
                "within a character, so this answer cannot be recorded exactly"
            )
        kind = message.get("stop_type")
        if kind not in _STOPS:
            raise EngineError(f"llama.cpp: stop_type is {kind!r}; expected one of {', '.join(_STOPS)}")
        return StopReason.CONTEXT if kind == "limit" and message.get("truncated") else _STOPS[kind]

    def _logprob(self, entry: Json) -> float:
        value = float(need(entry, self.value, "llama.cpp"))
        if self.value == "logprob":
            return value
        return math.log(value) if value > 0 else -math.inf

    def _top(self, entry: Json) -> tuple[tuple[int, float], ...]:
        rows = entry.get(self.others) or ()
        return best([(int(row["id"]), self._logprob(row)) for row in rows], self.ask.command.num_top)
