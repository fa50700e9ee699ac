"""The rollouts that a server records now, each with its dialogues."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from rollwright.chat import ChatTemplate, Dialogue, Message, Turn
from rollwright.chat.dialogue import Encoder
from rollwright.errors import DataError
from rollwright.serve.capture import Rollout
from rollwright.serve.refusals import Refused

# A completion's prompt is a dialogue of one message that is written as it stands.
_PLAIN = ChatTemplate("{{ messages[0].content }}")


class Recorded:
    """One rollout: its calls as trees, and what it said, so that it is not encoded again."""

    def __init__(self, id: str, template: ChatTemplate | None, tokenizer: Encoder) -> None:
        self.rollout = Rollout(id)
        self.lock = asyncio.Lock()  # one prompt at a time: encoding may happen on another thread
        self._chat = None if template is None else Dialogue(template, tokenizer)
        self._plain = Dialogue(_PLAIN, tokenizer)

    def chat_turn(
        self, messages: Sequence[Message], tools: Sequence[dict[str, Any]] | None, variables: dict[str, Any]
    ) -> tuple[Dialogue, Turn]:
        """Return the prompt of a chat call: ids of what was said before as sampled, the rest encoded."""
        assert self._chat is not None
        self._chat.tools, self._chat.variables = tools, variables
        return self._chat, self._chat.prompt(messages)

    def plain_turn(self, prompt: str) -> tuple[Dialogue, Turn]:
        """Return the prompt of a text completion in the same way."""
        return self._plain, self._plain.prompt([{"role": "user", "content": prompt}])


class Rollouts:
    """All recorded rollouts by name.

    Args:
        template, tokenizer: of the model.
        max_num: how many are kept; they go when they are deleted.
    """

    def __init__(self, template: ChatTemplate | None, tokenizer: Encoder, max_num: int) -> None:
        self._template, self._tokenizer, self._max_num = template, tokenizer, max_num
        self._id_to_recorded: dict[str, Recorded] = {}

    def __len__(self) -> int:
        return len(self._id_to_recorded)

    def open(self, id: str) -> Recorded:
        """Return the rollout of this name; a new one begins with its first call.

        Raises:
            Refused: too many are kept already.
        """
        found = self._id_to_recorded.get(id)
        if found is None:
            if len(self) >= self._max_num:
                raise Refused(
                    f"{len(self)} rollouts are recorded already, the limit of this server; free some with "
                    "DELETE /rollout/<id>",
                    status=429,
                    code="too_many_rollouts",
                )
            found = self._id_to_recorded[id] = Recorded(id, self._template, self._tokenizer)
        return found

    def get(self, id: str) -> Recorded:
        """Return a rollout.

        Raises:
            Refused: there is none of this name.
        """
        if id not in self._id_to_recorded:
            raise Refused(
                f"no rollout {id!r}; it begins with its first call to /rollout/{id}/v1/...", status=404
            )
        return self._id_to_recorded[id]

    def delete(self, id: str) -> None:
        """Forget a rollout."""
        self.get(id)
        del self._id_to_recorded[id]


def render(
    template: ChatTemplate | None,
    messages: Sequence[Message],
    tools: Sequence[dict[str, Any]] | None,
    variables: dict[str, Any],
) -> str:
    """Return a dialogue's text up to the assistant's next turn.

    Raises:
        Refused: the model has no template, or it refuses the messages.
    """
    try:
        return need(template).render(messages, tools, add_generation_prompt=True, **variables)
    except DataError as error:
        raise Refused(str(error), param="messages") from error


def need(template: ChatTemplate | None) -> ChatTemplate:
    """Return the template, or refuse."""
    if template is None:
        raise Refused(
            "this model has no chat template, so messages cannot be turned into a prompt; use "
            "/v1/completions, or serve a folder with a chat_template.jinja"
        )
    return template
