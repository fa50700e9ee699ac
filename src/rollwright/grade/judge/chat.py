"""What a judge asks of a model: messages in, text out, many at once, and what it cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

Message = dict[str, str]


@dataclass(frozen=True, slots=True)
class Reply:
    """What a model said.

    Args:
        text: its words; empty where it failed.
        error: why there is no reply, or empty.
        is_cut: it was ended by its limit of tokens.
        prompt_tokens, completion_tokens: what it cost, all tries together; 0 where the server does not say,
            and for a reply from the cache.
        is_cached: it came from the cache.
    """

    text: str
    error: str = ""
    is_cut: bool = False
    prompt_tokens: int = 0
    completion_tokens: int = 0
    is_cached: bool = False


class Chat(Protocol):
    """A model that replies. `rollwright.grade.judge.Endpoint` is one behind HTTP."""

    @property
    def name(self) -> str: ...

    def ask_many(self, asks: Sequence[Sequence[Message]]) -> list[Reply]:
        """Return one reply for each conversation, in order; what fails is a reply with an error."""
        ...


@dataclass(frozen=True, slots=True)
class Scripted:
    """A model that is a function of the last message's text: a stand-in for tests and rules.

    Args:
        function: returns the reply's text; None is a failure.
        name: for verdicts.
    """

    function: Callable[[str], str | None]
    name: str = "scripted"

    def ask_many(self, asks: Sequence[Sequence[Message]]) -> list[Reply]:
        texts = [self.function(messages[-1]["content"]) for messages in asks]
        return [Reply("", "the script has no reply") if text is None else Reply(text) for text in texts]


def user(text: str) -> list[Message]:
    """Return a conversation of one user's message."""
    return [{"role": "user", "content": text}]
