"""From what clients send to ids: text encoded once, what was sampled never again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rollwright.chat import ChatTemplate, Dialogue, Turn
from rollwright.engine.checkpoint import Tokenizer
from rollwright.errors import DataError
from rollwright.serve.refusals import Refused
from rollwright.serve.requests import ChatRequest, content_text
from rollwright.serve.rollouts import Recorded, render


@dataclass(frozen=True, slots=True)
class Prompt:
    """Ids to continue, and the dialogue they belong to in a recorded rollout."""

    ids: tuple[int, ...]
    asked: Mapping[str, Any]
    dialogue: Dialogue | None = None
    turn: Turn | None = None


class Prompts:
    """Makes prompts.

    Args:
        tokenizer, template: the model's own; without a template there are no chats.
        context: tokens that a prompt and its answer may have.
        vocab_size: of the model.
    """

    def __init__(
        self, tokenizer: Tokenizer, template: ChatTemplate | None, context: int, vocab_size: int
    ) -> None:
        self.tokenizer, self.template = tokenizer, template
        self.context, self.vocab_size = context, vocab_size
        self._begin = self._begin_ids()

    def of_text(self, prompt: str | Sequence[int], has_specials: bool, recorded: Recorded | None) -> Prompt:
        """Return the prompt of a completion: ids as they are, or text, in a rollout as it was sampled.

        Raises:
            Refused: it is empty, too long or holds ids that the model does not have.
        """
        asked = {"protocol": "completions", "prompt": prompt if isinstance(prompt, str) else list(prompt)}
        if not isinstance(prompt, str):
            return self._checked(Prompt(tuple(prompt), asked))
        begin = self._begin if has_specials else ()
        if recorded is None:
            return self._checked(Prompt((*begin, *self.tokenizer.encode(prompt)), asked))
        dialogue, turn = recorded.plain_turn(prompt)
        return self._checked(Prompt((*begin, *turn.ids), asked, dialogue, turn))

    def of_chat(self, request: ChatRequest, recorded: Recorded | None) -> Prompt:
        """Return the prompt of a chat.

        Raises:
            Refused: the template refuses the messages, or as for `of_text`.
        """
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
