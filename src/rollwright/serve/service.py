"""What the routes do: from requests to asks of the engine, from what was sampled to answers."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from rollwright.chat import ChatTemplate, Dialogue, Turn
from rollwright.engine.checkpoint import Tokenizer
from rollwright.errors import DataError
from rollwright.events import Sampled, Submit
from rollwright.rng import stream_key
from rollwright.serve.answers import Answer, ChatAnswer, CompletionAnswer
from rollwright.serve.choices import Choice
from rollwright.serve.jobs import Limits, Recorder
from rollwright.serve.refusals import Refused
from rollwright.serve.requests import ChatRequest, Common, CompletionRequest, content_text
from rollwright.serve.rollouts import Recorded, Rollouts, need, render
from rollwright.serve.text import TextStream

_QUIET_CHUNK = 4  # tokens between reports of a request that does not stream: how late an abort may come


@dataclass(frozen=True, slots=True)
class Prompt:
    """Ids to continue, and the dialogue they belong to in a recorded rollout."""

    ids: tuple[int, ...]
    asked: Mapping[str, Any]
    dialogue: Dialogue | None = None
    turn: Turn | None = None


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
        self.rollouts = Rollouts(template, tokenizer, limits.max_rollouts)
        self._begin = self._begin_ids()

    def completion(self, request: CompletionRequest, rollout_id: str | None) -> Work:
        """Prepare a text completion.

        Raises:
            Refused: the request cannot be served.
        """
        num_top = self._num_top("logprobs", request.logprobs)
        recorded = None if rollout_id is None else self.rollouts.open(rollout_id)
        prompts = [self._prompt(p, request.add_special_tokens, recorded) for p in _prompts(request.prompt)]
        if recorded is not None and len(prompts) > 1:
            raise Refused(
                f"prompt has {len(prompts)} prompts; a rollout records one prompt a call", param="prompt"
            )
        answer = CompletionAnswer(self.name, self.tokenizer, num_top, *_wishes(request))
        max_tokens = 16 if request.max_tokens is None else request.max_tokens
        return self._work(request, answer, prompts, _Asked(max_tokens, num_top or 0), rollout_id)

    def chat(self, request: ChatRequest, rollout_id: str | None) -> Work:
        """Prepare an answer in a dialogue.

        Raises:
            Refused: the request cannot be served.
        """
        need(self.template)
        if request.top_logprobs is not None and not request.logprobs:
            raise Refused("top_logprobs needs logprobs: true", param="top_logprobs")
        num_top = self._num_top("top_logprobs", request.top_logprobs or 0) if request.logprobs else None
        recorded = None if rollout_id is None else self.rollouts.open(rollout_id)
        prompt = self._chat_prompt(request, recorded)
        answer = ChatAnswer(self.name, self.tokenizer, num_top, *_wishes(request))
        given = (request.max_completion_tokens, request.max_tokens)
        max_tokens = next((num for num in given if num is not None), self.context - len(prompt.ids))
        return self._work(request, answer, [prompt], _Asked(max_tokens, num_top or 0), rollout_id)

    # ------------------------------------------------------------------ prompts

    def _prompt(self, prompt: str | Sequence[int], has_specials: bool, recorded: Recorded | None) -> Prompt:
        asked = {"protocol": "completions", "prompt": prompt if isinstance(prompt, str) else list(prompt)}
        if not isinstance(prompt, str):
            return self._checked(Prompt(tuple(prompt), asked))
        begin = self._begin if has_specials else ()
        if recorded is None:
            return self._checked(Prompt((*begin, *self.tokenizer.encode(prompt)), asked))
        dialogue, turn = recorded.plain_turn(prompt)
        return self._checked(Prompt((*begin, *turn.ids), asked, dialogue, turn))

    def _chat_prompt(self, request: ChatRequest, recorded: Recorded | None) -> Prompt:
        messages = [{**m, "content": content_text(m, i)} for i, m in enumerate(request.messages)]
        if not messages:
            raise Refused("messages is empty; give at least one", param="messages")
        variables = dict(request.chat_template_kwargs or {})
        asked: dict[str, Any] = {"protocol": "chat", "messages": request.messages}
        if request.tools:
            asked["tools"] = request.tools
        if recorded is None:
            text = render(self.template, messages, request.tools, variables)
            return self._checked(Prompt(tuple(self.tokenizer.encode(text)), asked))
        try:
            dialogue, turn = recorded.chat_turn(messages, request.tools, variables)
        except DataError as error:
            raise Refused(str(error), param="messages") from error
        return self._checked(Prompt(turn.ids, asked, dialogue, turn))

    def _checked(self, prompt: Prompt) -> Prompt:
        if max(prompt.ids, default=0) >= self.vocab_size:
            outside = max(prompt.ids)
            raise Refused(
                f"prompt: id {outside} is outside the vocabulary of {self.vocab_size}", param="prompt"
            )
        if not prompt.ids:
            raise Refused("the prompt has no tokens; give at least one", param="prompt")
        if len(prompt.ids) >= self.context:
            raise Refused(
                f"the prompt has {len(prompt.ids)} tokens; a context of {self.context} leaves no room",
                param="prompt",
                code="context_length_exceeded",
            )
        return prompt

    def _begin_ids(self) -> tuple[int, ...]:
        """Return what the tokenizer's own rule puts before a text: a begin token, or nothing."""
        plain = self.tokenizer.encode("a")
        ruled = list(self.tokenizer.inner.encode("a", add_special_tokens=True).ids)
        num = len(ruled) - len(plain)
        return tuple(ruled[:num]) if num > 0 and ruled[num:] == plain else ()

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
                text = TextStream(
                    self.tokenizer, sampling.stop_strings, sampling.stop_ids, request.skip_special_tokens
                )
                choice = Choice(i * request.n + k, prompt.ids, text)
                submit = msgspec.structs.replace(
                    base,
                    ask=f"{answer.id}/{choice.index}",
                    group=exact.group or _group(prompt.ids, rollout_id),
                    at=len(prompt.ids),
                    stream=stream_key(seed, scope, f"{i}/{k}") if exact.stream is None else exact.stream,
                    start=len(prompt.ids) if exact.start is None else exact.start,
                )
                asks.append((submit, choice))
        recorder = None if recorded is None else _recorder(recorded, prompts[0], asks)
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


def _recorder(recorded: Recorded, prompt: Prompt, asks: Sequence[tuple[Submit, Choice]]) -> Recorder:
    """Note the call and return what takes its events."""
    rewrite = None if prompt.turn is None or prompt.turn.rewrite is None else str(prompt.turn.rewrite)
    sampling = asks[0][0].sampling
    call = recorded.rollout.begin(prompt.asked, prompt.ids, sampling, len(asks), rewrite)

    def take(choice: Choice, event: Sampled) -> None:
        recorded.rollout.take(call, choice.index, event)
        if event.stop is not None and prompt.dialogue is not None and prompt.turn is not None:
            ids = [token for e in choice.events for token in e.tokens]
            if ids:
                message = {"role": "assistant", "content": choice.whole().text}
                prompt.dialogue.record(prompt.turn, ids, message=message)

    return take
