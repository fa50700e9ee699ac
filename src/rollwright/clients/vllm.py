"""vLLM's OpenAI server, and others that answer ``return_token_ids`` in its way.

Token ids come with ``return_token_ids``. Logprobs are before temperature unless the server runs with
``--logprobs-mode processed_logprobs``; which of the two it is, the engine finds out by asking. Sources:
vLLM's ``entrypoints/openai/completion/protocol.py`` and its ``--logprobs-mode`` option.
"""

from __future__ import annotations

from typing import Any

from rollwright.clients.dialect import Ask, Json, Part, Passing, best, need
from rollwright.clients.gives import Gives
from rollwright.errors import EngineError
from rollwright.tree import StopReason

_SEED = 0x7FFFFFFF


class VLLM:
    """Speaks to vLLM.

    Args:
        model: the served model's name.
        has_priority: the server schedules by priority; otherwise it refuses requests that have one.
    """

    name, path = "vllm", "/v1/completions"

    def __init__(self, model: str, has_priority: bool = False) -> None:
        self.model, self.has_priority = model, has_priority

    def gives(self) -> Gives:
        return Gives(num_top=20)

    def body(self, ask: Ask) -> dict[str, Any]:
        sampling = ask.command.sampling
        body = {
            "model": self.model,
            "prompt": list(ask.ids),
            "max_tokens": ask.max_tokens,
            "temperature": sampling.temperature,
            # The model's generation_config.json may hold others, which would apply where nothing is said.
            "top_p": 1.0,
            "top_k": -1,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "stop": list(sampling.stop_strings),
            "stop_token_ids": list(sampling.stop_ids),
            "skip_special_tokens": False,
            "seed": (ask.command.stream + ask.num_made) & _SEED,
            "logprobs": ask.command.num_top,
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
            "stream": True,
        }
        if self.has_priority and ask.command.priority:
            body["priority"] = -ask.command.priority  # theirs: lower goes first
        return body

    def reader(self, ask: Ask) -> VLLMReader:
        return VLLMReader(ask)


class VLLMReader:
    """Reads a stream of ``text_completion`` messages with token ids."""

    def __init__(self, ask: Ask) -> None:
        self.ask = ask

    def read(self, message: Json) -> list[Part]:
        choices = message.get("choices") or []
        return [part for choice in choices if (part := self._part(choice)) is not None]

    def _part(self, choice: Json) -> Part | None:
        why = choice.get("finish_reason")
        if not choice.get("token_ids") and not choice.get("text") and not why:
            return None
        tokens = tuple(need(choice, "token_ids", "vLLM"))
        prompt = choice.get("prompt_token_ids")
        if prompt is not None and list(prompt) != list(self.ask.ids):
            raise EngineError(
                f"vLLM answered a prompt of {len(prompt)} ids, not the one of {len(self.ask.ids)} it was sent"
            )
        logprobs = choice.get("logprobs") or {}
        if tokens and not logprobs:
            raise EngineError("vLLM: an answer lacks 'logprobs'; its tokens cannot be used without them")
        return Part(
            tokens=tokens,
            logprobs=tuple(map(float, logprobs.get("token_logprobs") or ())),
            top=self._top(logprobs) if self.ask.command.num_top else None,
            stop=_stop(why, choice.get("stop_reason")),
        )

    def _top(self, logprobs: Json) -> tuple[tuple[tuple[int, float], ...], ...]:
        num = self.ask.command.num_top
        rows = logprobs.get("top_logprobs") or ()
        return tuple(best([(_id(name), float(p)) for name, p in (row or {}).items()], num) for row in rows)


def _id(name: str) -> int:
    word, _, number = name.partition(":")
    if word != "token_id" or not number.isdigit():
        raise EngineError(f"vLLM: {name!r} among the alternatives; expected 'token_id:<number>'")
    return int(number)


def _stop(why: str | None, reason: int | str | None) -> StopReason | None:
    if why is None:
        return None
    if why == "length":
        return StopReason.LENGTH
    if why == "stop":
        return StopReason.EOS if reason is None else StopReason.STOP
    raise Passing(f"vLLM ended an answer with finish_reason {why!r}")
