"""Prompts and observations of tasks as a chat model expects them."""

from __future__ import annotations

from collections.abc import Sequence

from rollwright.chat.dialogue import Dialogue, Encoder
from rollwright.chat.template import ChatTemplate
from rollwright.errors import DataError


class ChatFormat:
    """Puts a task's texts into a user's turns and begins the assistant's.

    Args:
        template: the model's.
        tokenizer: the model's.
    """

    def __init__(self, template: ChatTemplate, tokenizer: Encoder) -> None:
        self.template, self.tokenizer = template, tokenizer

    def prompt(self, text: str) -> tuple[int, ...]:
        """Return the ids of a dialogue that begins with ``text``."""
        return Dialogue(self.template, self.tokenizer).prompt([_user(text)]).ids

    def reply(self, prompt: str, said: Sequence[int], text: str) -> tuple[int, ...]:
        """Return the ids that stand between the model's answer and its next turn.

        Args:
            prompt: the text that the dialogue began with.
            said: ids of the answer; without an end token among them, the template's end comes first.
            text: what the model is told.

        Raises:
            DataError: the template would change what came before, so no ids can follow.
        """
        dialogue = Dialogue(self.template, self.tokenizer)
        messages = [_user(prompt)]
        messages += [dialogue.record(dialogue.prompt(messages), said), _user(text)]
        turn = dialogue.prompt(messages)
        if turn.rewrite is not None:
            raise DataError(f"the chat template cannot go on with this dialogue in one row. {turn.rewrite}")
        return turn.pieces[-1].ids


def _user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}
