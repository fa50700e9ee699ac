"""What the routes do: from requests to asks of the engine, from what was sampled to answers."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from rollwright.chat import ChatTemplate
from rollwright.engine.checkpoint import Tokenizer
from rollwright.events import Sampled, Submit
from rollwright.rng import stream_key
from rollwright.serve.answers import Answer, ChatAnswer, CompletionAnswer
from rollwright.serve.choices import Choice
from rollwright.serve.jobs import Limits, Recorder
from rollwright.serve.prompts import Prompt, Prompts
from rollwright.serve.refusals import Refused
from rollwright.serve.requests import ChatRequest, Common, CompletionRequest
from rollwright.serve.rollouts import Recorded, Rollouts, need
from rollwright.serve.text import TextStream

T = TypeVar("T")
_QUIET_CHUNK = 16  # tokens between reports of a request that does not stream: how late an abort may come


@dataclass(frozen=True, slots=True)
class _Asked:
    max_tokens: int
    num_top: int


@dataclass(slots=True)
class Work:
    """One request, ready to be sampled."""

    request: Common
    answer: Answer
    asks: list[tuple[Submit, Choice]]
    recorder: Recorder | None

    @property
    def choices(self) -> list[Choice]:
        return [choice for _, choice in self.asks]


class Service:
    """Turns requests into work.

    Args:
        name: the model's name in requests and answers.
        tokenizer, template: the model's own; a model without a template serves completions only.
        context: tokens that a prompt and its answer may have.
        vocab_size: of the model.
        limits: what is taken on.
    """

    def __init__(
        self,
        name: str,
        tokenizer: Tokenizer,
        template: ChatTemplate | None,
        context: int,
        vocab_size: int,
        limits: Limits,
    ) -> None:
        self.name, self.tokenizer, self.template = name, tokenizer, template
        self.context, self.vocab_size, self.limits = context, vocab_size, limits
        self.prompts = Prompts(tokenizer, template, context, vocab_size)
        self.rollouts = Rollouts(template, tokenizer, limits.max_rollouts)

    async def completion(
        self, request: CompletionRequest, rollout_id: str | None, is_large: bool = False
    ) -> Work:
        """Prepare a text completion.

        Args:
            request: what is wanted.
            rollout_id: the rollout that records it, if any.
            is_large: encode on another thread, since others wait for this one.

        Raises:
            Refused: the request cannot be served.
        """
        num_top = self._num_top("logprobs", request.logprobs)
        recorded = None if rollout_id is None else self.rollouts.open(rollout_id)
        given = _prompts(request.prompt)

        def encode() -> list[Prompt]:
            return [self.prompts.of_text(prompt, request.add_special_tokens, recorded) for prompt in given]

        prompts = await _off(recorded, is_large, encode)
        answer = CompletionAnswer(self.name, self.tokenizer, num_top, *_wishes(request))
        max_tokens = 16 if request.max_tokens is None else request.max_tokens
        return self._work(request, answer, prompts, _Asked(max_tokens, num_top or 0), rollout_id)

    async def chat(self, request: ChatRequest, rollout_id: str | None, is_large: bool = False) -> Work:
        """Prepare an answer in a dialogue. Arguments as for `completion`.

        Raises:
            Refused: the request cannot be served.
        """
        need(self.template)
        if request.top_logprobs is not None and not request.logprobs:
            raise Refused("top_logprobs needs logprobs: true", param="top_logprobs")
        num_top = self._num_top("top_logprobs", request.top_logprobs or 0) if request.logprobs else None
        recorded = None if rollout_id is None else self.rollouts.open(rollout_id)
        prompt = await _off(recorded, is_large, lambda: self.prompts.of_chat(request, recorded))
        answer = ChatAnswer(self.name, self.tokenizer, num_top, *_wishes(request))
        given = (request.max_completion_tokens, request.max_tokens)
        max_tokens = next((num for num in given if num is not None), self.context - len(prompt.ids))
        return self._work(request, answer, [prompt], _Asked(max_tokens, num_top or 0), rollout_id)

    # ------------------------------------------------------------------ asks

    def _work(
        self,
        request: Common,
        answer: Answer,
        prompts: Sequence[Prompt],
        asked: _Asked,
        rollout_id: str | None,
    ) -> Work:
        if request.model not in (None, self.name):
            raise Refused(
                f"no model {request.model!r}; this server has {self.name!r}", status=404, param="model"
            )
        if asked.max_tokens < 1:
            raise Refused(f"max_tokens is {asked.max_tokens}; expected at least 1", param="max_tokens")
        exact = request.exact
        if exact.stream is not None and len(prompts) * request.n != 1:
            raise Refused("rollwright.stream names the noise of one completion; give one prompt and n: 1")
        if exact.num_top > self.limits.max_logprobs:
            raise Refused(
                f"num_top is {exact.num_top}; at most {self.limits.max_logprobs}", param="rollwright"
            )
        recorded = None if rollout_id is None else self.rollouts.open(rollout_id)
        number = 0 if recorded is None else len(recorded.rollout.calls)
        seed = secrets.randbits(63) if request.seed is None else request.seed
        scope = "serve" if rollout_id is None else f"rollout/{rollout_id}/{number}"
        base = self._submit(request, asked)
        asks: list[tuple[Submit, Choice]] = []
        for i, prompt in enumerate(prompts):
            for k in range(request.n):
                sampling = base.sampling
                stops = (sampling.stop_strings, sampling.stop_ids)
                text = TextStream(self.tokenizer, *stops, request.skip_special_tokens)
                choice = Choice(i * request.n + k, prompt.ids, text if exact.text else None)
                submit = msgspec.structs.replace(
                    base,
                    ask=f"{answer.id}/{choice.index}",
                    group=exact.group or _group(prompt.ids, rollout_id),
                    at=len(prompt.ids),
                    stream=stream_key(seed, scope, f"{i}/{k}") if exact.stream is None else exact.stream,
                    start=len(prompt.ids) if exact.start is None else exact.start,
                )
                asks.append((submit, choice))
        recorder = None if recorded is None else _recorder(recorded, prompts, base, request.n)
        return Work(request, answer, asks, recorder)

    def _submit(self, request: Common, asked: _Asked) -> Submit:
        """Return what the asks of a request share."""
        exact, sampling = request.exact, request.sampling()
        for name, ids in (("stop_token_ids", sampling.stop_ids), ("rollwright.first", (exact.first or 0,))):
            if max(ids, default=0) >= self.vocab_size:
                raise Refused(
                    f"{name}: {max(ids)} is outside the vocabulary of {self.vocab_size}", param=name
                )
        return Submit(
            ask="",
            group="",
            parent="prompt",
            at=0,
            stream=0,
            start=0,
            max_tokens=min(asked.max_tokens, self.context),
            sampling=msgspec.structs.replace(sampling, top_k=min(sampling.top_k, self.vocab_size)),
            first=exact.first,
            num_top=max(asked.num_top, exact.num_top),
            chunk=self._chunk(request),
            turn_start=exact.turn_start,
            priority=request.priority,
        )

    def _chunk(self, request: Common) -> int:
        if request.exact.chunk:
            return request.exact.chunk
        return self.limits.stream_interval if request.stream else _QUIET_CHUNK

    def _num_top(self, name: str, num: int | None) -> int | None:
        if num is not None and not 0 <= num <= self.limits.max_logprobs:
            raise Refused(f"{name} is {num}; expected 0 to {self.limits.max_logprobs}", param=name)
        return num


async def _off(recorded: Recorded | None, is_large: bool, work: Callable[[], T]) -> T:
    """Do work for a rollout, one at a time for each; large work on another thread."""
    async with contextlib.nullcontext() if recorded is None else recorded.lock:
        return await asyncio.to_thread(work) if is_large else work()


def _prompts(prompt: str | list[Any]) -> list[str | list[int]]:
    """Return the prompts of a request: one text, one list of ids, or a list of either."""
    if isinstance(prompt, str):
        return [prompt]
    if not prompt:
        raise Refused("prompt is empty; give a text, token ids, or a list of either", param="prompt")
    kinds = {type(item) for item in prompt}
    if len(kinds) > 1:
        raise Refused("prompt mixes texts, ids and lists; give one kind", param="prompt")
    return [prompt] if kinds == {int} else prompt


def _wishes(request: Common) -> tuple[bool, bool, bool]:
    return bool(request.return_token_ids), bool(request.return_tokens_as_token_ids), request.wants_record


def _group(ids: Sequence[int], rollout_id: str | None) -> str:
    """Return which asks share a cache: those of a rollout, or all with the same beginning."""
    return f"rollout/{rollout_id}" if rollout_id is not None else f"prompt/{hash(tuple(ids[:64])):x}"


def _recorder(recorded: Recorded, prompts: Sequence[Prompt], base: Submit, num: int) -> Recorder:
    """Note a call for each prompt and return what takes their events."""
    calls = []
    for prompt in prompts:
        rewrite = None if prompt.turn is None or prompt.turn.rewrite is None else str(prompt.turn.rewrite)
        calls.append(recorded.rollout.begin(prompt.asked, prompt.ids, base.sampling, num, rewrite))

    def take(choice: Choice, event: Sampled) -> None:
        place, number = divmod(choice.index, num)
        prompt = prompts[place]
        recorded.rollout.take(calls[place], number, event)
        if event.stop is not None and prompt.dialogue is not None and prompt.turn is not None:
            ids = [token for e in choice.events for token in e.tokens]
            if ids:
                message = {"role": "assistant", "content": choice.whole().text}
                prompt.dialogue.record(prompt.turn, ids, message=message)

    return take
