"""SGLang's native ``/generate``.

``output_token_logprobs`` holds (logprob, id, text) for every sampled token, after temperature and over the
full vocabulary (older versions: over the top-p set), unless the server was started with
SGLANG_RETURN_ORIGINAL_LOGPROB, which the engine finds out by asking. Streams repeat everything so far, or
with ``--incremental-streaming-output`` only what is new; ``completion_tokens`` tells which. Each message
carries the ``weight_version`` that the server was told last. Sources: SGLang's sampling parameters page,
``layers/sampler.py``, ``managers/tokenizer_manager.py``.
"""

from __future__ import annotations

from typing import Any

from rollwright.clients.dialect import Ask, Json, Part, Passing, best, need
from rollwright.clients.gives import Gives
from rollwright.errors import EngineError
from rollwright.tree import StopReason

_SEED = 0x7FFFFFFF
_MAX_TOP = 20


class SGLang:
    """Speaks to SGLang.

    Args:
        has_priority: the server schedules by priority.
        has_version: its weight_version is a number that moves with the weights.
    """

    name, path = "sglang", "/generate"

    def __init__(self, has_priority: bool = False, has_version: bool = False) -> None:
        self.has_priority, self.has_version = has_priority, has_version

    def gives(self) -> Gives:
        return Gives(num_top=_MAX_TOP, version=self.has_version)

    def body(self, ask: Ask) -> dict[str, Any]:
        sampling = ask.command.sampling
        body = {
            "input_ids": list(ask.ids),
            "sampling_params": {
                "max_new_tokens": ask.max_tokens,
                "temperature": sampling.temperature,
                # The model's generation_config.json may hold others, which apply where nothing is said.
                "top_p": 1.0,
                "top_k": -1,
                "min_p": 0.0,
                "repetition_penalty": 1.0,
                "presence_penalty": 0.0,
                "frequency_penalty": 0.0,
                "stop": list(sampling.stop_strings),
                "stop_token_ids": list(sampling.stop_ids),
                "skip_special_tokens": False,
                "no_stop_trim": True,
                "sampling_seed": (ask.command.stream + ask.num_made) & _SEED,
            },
            "return_logprob": True,
            "logprob_start_len": -1,
            "top_logprobs_num": ask.command.num_top,
            "stream": True,
        }
        if self.has_priority and ask.command.priority:
            body["priority"] = ask.command.priority
        return body

    def reader(self, ask: Ask) -> SGLangReader:
        return SGLangReader(ask, self.has_version)


class SGLangReader:
    """Reads messages that are cumulative or incremental."""

    def __init__(self, ask: Ask, has_version: bool) -> None:
        self.ask, self.has_version = ask, has_version
        self.num_read = 0

    def read(self, message: Json) -> list[Part]:
        meta = need(message, "meta_info", "SGLang")
        num_new = need(meta, "completion_tokens", "SGLang") - self.num_read
        entries = meta.get("output_token_logprobs") or []
        if num_new < 0 or len(entries) < num_new:
            raise EngineError(
                f"SGLang: {len(entries)} entries in output_token_logprobs where {num_new} tokens are new"
            )
        entries = entries[len(entries) - num_new :]
        tops = (meta.get("output_top_logprobs") or [])[-num_new:] if num_new else []
        stop = _stop(meta.get("finish_reason"))
        is_first, self.num_read = self.num_read == 0, self.num_read + num_new
        if not num_new and stop is None:
            return []
        cached = meta.get("cached_tokens")
        part = Part(
            tokens=tuple(int(entry[1]) for entry in entries),
            logprobs=tuple(float(entry[0]) for entry in entries),
            top=self._top(tops) if self.ask.command.num_top else None,
            version=_version(meta) if self.has_version else None,
            prefilled=max(0, len(self.ask.ids) - 1 - cached) if is_first and cached is not None else None,
            stop=stop,
        )
        return [part]

    def _top(self, rows: list[Any]) -> tuple[tuple[tuple[int, float], ...], ...]:
        num = self.ask.command.num_top
        return tuple(best([(int(entry[1]), float(entry[0])) for entry in row or ()], num) for row in rows)


def _version(meta: Json) -> int:
    value = meta.get("weight_version")
    try:
        return int(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise EngineError(
            f"SGLang: weight_version is {value!r}; expected a number, as given to its weight updates"
        ) from None


def _stop(why: Json | None) -> StopReason | None:
    if why is None:
        return None
    kind, matched = why.get("type"), why.get("matched")
    if kind == "length":
        return StopReason.LENGTH
    if kind == "stop":
        return StopReason.STOP if isinstance(matched, str) else StopReason.EOS
    message = f"SGLang ended an answer: {why.get('message') or kind}"
    if why.get("status_code") == 400:
        raise EngineError(message)
    raise Passing(message)
