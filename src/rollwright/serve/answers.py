"""Answers in the shape of OpenAI's two protocols, whole and in pieces."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Protocol

from rollwright.events import Sampled
from rollwright.serve.choices import Choice, Json, Piece


class TokenTexts(Protocol):
    def decode(self, ids: Sequence[int]) -> str: ...


class Answer:
    """What both protocols share.

    Args:
        model: the name to answer with.
        tokenizer: gives single tokens their text, for logprobs.
        num_top: alternatives to list at each token; None leaves logprobs out.
        with_ids: list token ids (vLLM's ``return_token_ids``).
        ids_as_tokens: write tokens as ``token_id:7`` (vLLM's ``return_tokens_as_token_ids``).
        with_record: add the exact record.
    """

    prefix, whole_object, piece_object = "", "", ""

    def __init__(
        self,
        model: str,
        tokenizer: TokenTexts,
        num_top: int | None,
        with_ids: bool,
        ids_as_tokens: bool,
        with_record: bool,
    ) -> None:
        self.id = f"{self.prefix}-{uuid.uuid4().hex}"
        self.created = int(time.time())
        self.model, self.tokenizer, self.num_top = model, tokenizer, num_top
        self.with_ids, self.ids_as_tokens, self.with_record = with_ids, ids_as_tokens, with_record

    def whole(self, choices: Sequence[Choice]) -> Json:
        """Return the answer to a request that does not stream."""
        events = [event for choice in choices for event in choice.events]
        answer = self._frame(self.whole_object, events) | {"usage": usage(choices)}
        answer["choices"] = [
            self._whole_choice(choice) | self._extras(choice, choice.whole()) for choice in choices
        ]
        if self.with_ids:
            self._add_prompts(answer, choices)
        return answer

    def piece(self, choice: Choice, piece: Piece) -> Json:
        """Return one message of a stream."""
        answer = self._frame(self.piece_object, piece.events)
        answer["choices"] = [self._piece_choice(choice, piece) | self._extras(choice, piece)]
        if self.with_ids and not choice.is_begun:
            self._add_prompts(answer, [choice])
        choice.is_begun = True
        return answer

    def last(self, choices: Sequence[Choice]) -> Json:
        """Return the message with the usage that ends a stream."""
        return self._frame(self.piece_object, ()) | {"usage": usage(choices)}

    def _frame(self, kind: str, events: Sequence[Sampled]) -> Json:
        versions = sorted({event.version for event in events})
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "choices": [],
            "rollwright": {"versions": versions},
        }

    def _extras(self, choice: Choice, piece: Piece) -> Json:
        extras: Json = {}
        if self.with_ids:
            extras["token_ids"] = piece.tokens
        if self.with_record:
            extras["rollwright"] = {"chunks": piece.record()}
        return extras

    def _text_of(self, token: int) -> str:
        return f"token_id:{token}" if self.ids_as_tokens else self.tokenizer.decode([token])

    def _tops(self, piece: Piece) -> list[list[tuple[int, float]]]:
        num = self.num_top or 0
        return [list(at[:num]) for event in piece.events for at in event.top or ((),) * len(event.tokens)]

    def _whole_choice(self, choice: Choice) -> Json:
        raise NotImplementedError

    def _piece_choice(self, choice: Choice, piece: Piece) -> Json:
        raise NotImplementedError

    def _add_prompts(self, answer: Json, choices: Sequence[Choice]) -> None:
        raise NotImplementedError


class CompletionAnswer(Answer):
    """``text_completion``."""

    prefix, whole_object, piece_object = "cmpl", "text_completion", "text_completion"

    def _whole_choice(self, choice: Choice) -> Json:
        return self._piece_choice(choice, choice.whole())

    def _piece_choice(self, choice: Choice, piece: Piece) -> Json:
        return {
            "index": choice.index,
            "text": piece.text,
            "finish_reason": piece.finish_reason,
            "logprobs": None if self.num_top is None else self._logprobs(choice, piece),
        }

    def _logprobs(self, choice: Choice, piece: Piece) -> Json:
        texts = [self._text_of(token) for token in piece.tokens]
        logps = [logp for event in piece.events for logp in event.logprobs]
        offsets = list(accumulate(map(len, texts), initial=choice.num_told))[:-1]
        choice.num_told += sum(map(len, texts))
        tops = [{self._text_of(token): logp for token, logp in at} for at in self._tops(piece)]
        return {
            "tokens": texts,
            "token_logprobs": logps,
            "top_logprobs": [at or None for at in tops],
            "text_offset": offsets,
        }

    def _add_prompts(self, answer: Json, choices: Sequence[Choice]) -> None:
        for entry, choice in zip(answer["choices"], choices, strict=True):
            entry["prompt_token_ids"] = list(choice.prompt)


class ChatAnswer(Answer):
    """``chat.completion``."""

    prefix, whole_object, piece_object = "chatcmpl", "chat.completion", "chat.completion.chunk"

    def _whole_choice(self, choice: Choice) -> Json:
        piece = choice.whole()
        return {
            "index": choice.index,
            "message": {"role": "assistant", "content": piece.text, "refusal": None},
            "finish_reason": piece.finish_reason,
            "logprobs": self._logprobs(piece),
        }

    def _piece_choice(self, choice: Choice, piece: Piece) -> Json:
        delta: Json = {} if choice.is_begun else {"role": "assistant"}
        if piece.text or not choice.is_begun:
            delta["content"] = piece.text
        return {
            "index": choice.index,
            "delta": delta,
            "finish_reason": piece.finish_reason,
            "logprobs": self._logprobs(piece),
        }

    def _logprobs(self, piece: Piece) -> Json | None:
        if self.num_top is None:
            return None
        logps = [logp for event in piece.events for logp in event.logprobs]
        rows = zip(piece.tokens, logps, self._tops(piece), strict=True)
        content = [
            self._entry(token, logp) | {"top_logprobs": [self._entry(t, p) for t, p in top]}
            for token, logp, top in rows
        ]
        return {"content": content, "refusal": None}

    def _entry(self, token: int, logp: float) -> dict[str, Any]:
        text = self._text_of(token)
        return {"token": text, "logprob": logp, "bytes": list(text.encode())}

    def _add_prompts(self, answer: Json, choices: Sequence[Choice]) -> None:
        answer["prompt_token_ids"] = list(choices[0].prompt)


def usage(choices: Sequence[Choice]) -> Json:
    """Return OpenAI's count: a prompt counts once, however many completions it has."""
    prompts = {id(choice.prompt): len(choice.prompt) for choice in choices}
    num_prompt, num_sampled = sum(prompts.values()), sum(choice.num_sampled for choice in choices)
    return {
        "prompt_tokens": num_prompt,
        "completion_tokens": num_sampled,
        "total_tokens": num_prompt + num_sampled,
    }
