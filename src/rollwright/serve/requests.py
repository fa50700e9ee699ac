"""What clients may ask for: OpenAI's fields, vLLM's names where OpenAI has none, and our own record.

A field that is known but cannot be honoured is refused unless it has the value that changes nothing: a
setting that is accepted and ignored is worse than one that is refused.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, TypeVar

import msgspec

from rollwright.serve.refusals import Refused
from rollwright.tree import Sampling

# Fields that change nothing about what is sampled or answered here.
_HARMLESS = frozenset({"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"})
# Fields that change what is sampled in ways that this server does not have, with the values that do not.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "repetition_penalty": (1,),
    "logit_bias": ({},),
    "best_of": (1,),
    "suffix": ("",),
    "echo": (False,),
    "ignore_eos": (False,),
    "min_tokens": (0,),
    "prompt_logprobs": (),
    "include_stop_str_in_output": (False,),
    "response_format": ({"type": "text"},),
    "tool_choice": ("auto", "none"),
    "parallel_tool_calls": (True, False),
    "reasoning_effort": (),
    "modalities": (["text"],),
    "functions": ([],),
}


Token = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
Position = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
Priority = Annotated[int, msgspec.Meta(ge=-(1 << 31), lt=1 << 31)]


class StreamOptions(msgspec.Struct, forbid_unknown_fields=True):
    include_usage: bool = False


class Exact(msgspec.Struct, forbid_unknown_fields=True):
    """What a submit of ours says and no other protocol does (`rollwright.events.Submit`).

    Its presence asks for the exact record in the answer.
    """

    stream: Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)] | None = None
    start: Position | None = None
    turn_start: Position | None = None
    first: Token | None = None
    num_top: Position = 0
    chunk: Annotated[int, msgspec.Meta(ge=1, lt=1 << 31)] | None = None
    group: str | None = None
    text: bool = True


class Common(msgspec.Struct, kw_only=True):
    """Fields of both protocols."""

    model: str | None = None
    n: int = 1
    temperature: float | None = None
    top_p: float | None = None
    top_k: Annotated[int, msgspec.Meta(ge=-1, lt=1 << 31)] | None = None
    min_p: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[Token] | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    skip_special_tokens: bool = True
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None
    priority: Priority = 0
    rollwright: Exact | bool | None = None

    @property
    def exact(self) -> Exact:
        return self.rollwright if isinstance(self.rollwright, Exact) else Exact()

    @property
    def wants_record(self) -> bool:
        return self.rollwright is not None and self.rollwright is not False

    def sampling(self) -> Sampling:
        """Return how to sample.

        Raises:
            Refused: a number is outside of its range.
        """
        temperature = _number("temperature", self.temperature, 1.0, 0.0, math.inf)
        top_p = _number("top_p", self.top_p, 1.0, 0.0, 1.0)
        min_p = _number("min_p", self.min_p, 0.0, 0.0, 1.0)
        top_k = 0 if self.top_k is None else max(self.top_k, 0)
        if top_p == 0:
            raise Refused("top_p is 0; expected 0 < top_p ≤ 1 (temperature 0 is greedy)", param="top_p")
        stops = [self.stop] if isinstance(self.stop, str) else self.stop or []
        if not all(stops):
            raise Refused("stop holds an empty string; every stop string needs a character", param="stop")
        return Sampling(temperature, top_p, top_k, min_p, tuple(self.stop_token_ids or ()), tuple(stops))


class CompletionRequest(Common, kw_only=True):
    """Body of ``POST /v1/completions``."""

    prompt: str | list[str | Token | list[Token]]
    max_tokens: int | None = 16
    logprobs: int | None = None
    add_special_tokens: bool = True


class ChatRequest(Common, kw_only=True):
    """Body of ``POST /v1/chat/completions``."""

    messages: list[dict[str, Any]]
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    logprobs: bool = False
    top_logprobs: int | None = None
    tools: list[dict[str, Any]] | None = None
    chat_template_kwargs: dict[str, Any] | None = None


R = TypeVar("R", bound=Common)


def parse(body: bytes, kind: type[R]) -> R:
    """Read a request.

    Raises:
        Refused: it is no JSON object, a field is unknown or of the wrong type, or cannot be honoured.
    """
    try:
        values = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refused(f"the body is not JSON: {error}") from error
    if not isinstance(values, dict):
        raise Refused(
            f"the body is a JSON {type(values).__name__}; expected an object with the request's fields"
        )
    known = _names(kind)
    values = {name: value for name, value in values.items() if not _is_neutral(name, value, known)}
    values = {name: value for name, value in values.items() if value is not None}
    try:
        request = msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        raise Refused(_in_words(str(error)), param=_param(str(error))) from error
    if not 1 <= request.n <= 128:
        raise Refused(f"n is {request.n}; expected 1 to 128", param="n")
    if request.stream_options is not None and not request.stream:
        raise Refused("stream_options is for stream: true only", param="stream_options")
    return request


@cache
def _names(kind: type[Common]) -> frozenset[str]:
    return frozenset(field.name for field in msgspec.structs.fields(kind))


def _is_neutral(name: str, value: Any, known: frozenset[str]) -> bool:
    """Whether a field may be left out; one that is neither known nor neutral is refused."""
    if name in known:
        return False
    if name in _HARMLESS or (name in _NEUTRAL and (value is None or value in _NEUTRAL[name])):
        return True
    if name in _NEUTRAL:
        allowed = " or ".join(map(repr, _NEUTRAL[name])) or "null"
        raise Refused(
            f"{name} is {value!r}, which this server cannot do; leave it out, or give {allowed}", param=name
        )
    close = difflib.get_close_matches(name, known | _NEUTRAL.keys(), n=1, cutoff=0.6)
    hint = f", did you mean {close[0]!r}?" if close else ""
    raise Refused(f"unknown field {name!r}{hint}", param=name)


def _in_words(message: str) -> str:
    """Turn "Expected `int`, got `str` - at `$.n`" into a sentence that names the field first."""
    what, _, where = message.partition(" - at ")
    return f"{where.strip('`').removeprefix('$.')}: {what[0].lower()}{what[1:]}" if where else what


def _param(message: str) -> str | None:
    where = message.partition(" - at ")[2].strip("`").removeprefix("$.")
    return where.partition(".")[0].partition("[")[0] or None


def _number(name: str, value: float | None, default: float, low: float, high: float) -> float:
    if value is None:
        return default
    if not (low <= value <= high and math.isfinite(value)):
        upto = f" to {high:g}" if math.isfinite(high) else " or more"
        raise Refused(f"{name} is {value}; expected a number from {low:g}{upto}", param=name)
    return float(value)


def content_text(message: Mapping[str, Any], index: int) -> Any:
    """Return a message's content with a list of text parts joined into one text.

    Raises:
        Refused: a part is not text.
    """
    content = message.get("content")
    if not isinstance(content, list):
        return content
    texts = []
    for part in content:
        if not (isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)):
            kind = part.get("type") if isinstance(part, dict) else type(part).__name__
            raise Refused(
                f"messages[{index}] has a part of type {kind!r}; only text can be read", param="messages"
            )
        texts.append(part["text"])
    return "".join(texts)
