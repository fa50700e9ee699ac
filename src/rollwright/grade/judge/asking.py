"""Ask a model until its reply can be read, and count what that costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rollwright.grade.judge.chat import Chat, Message, user
from rollwright.grade.judge.words import AGAIN, Unreadable
from rollwright.grade.verdict import Status


@dataclass(slots=True)
class Found:
    """What came of one question to a model.

    Args:
        value: what was read; None where nothing was.
        status: empty, or why there is no value: ``unreadable``, ``infrastructure_error``.
        why: likewise, in words.
        said: the reply that was read.
        tokens: what it cost: (prompt, completion), all replies together.
    """

    value: Any = None
    status: str = Status.GRADER_ERROR
    why: str = ""
    said: str = ""
    tokens: tuple[int, int] = (0, 0)

    @property
    def detail(self) -> str:
        cost = f"{self.tokens[0]}+{self.tokens[1]} tokens"
        return f"{self.why}; {cost}" if self.status else cost


def ask_until_read(chat: Chat, attempts: int, asks: Sequence[str], read: Callable[[str], Any]) -> list[Found]:
    """Ask a model all questions at once; ask again, with the reason, what cannot be read.

    Args:
        chat: the model.
        attempts: replies to one question, ≥ 1.
        asks: the questions.
        read: returns the value of a reply's text, or raises `Unreadable`.
    """
    talks: list[list[Message]] = [user(text) for text in asks]
    found = [Found() for _ in asks]
    left = list(range(len(asks)))
    for _ in range(attempts):
        replies = chat.ask_many([talks[place] for place in left])
        unread = []
        for place, reply in zip(left, replies, strict=True):
            one = found[place]
            one.tokens = (one.tokens[0] + reply.prompt_tokens, one.tokens[1] + reply.completion_tokens)
            if reply.error:
                one.status, one.why = Status.INFRASTRUCTURE_ERROR, reply.error
                continue
            try:
                if reply.is_cut:
                    raise Unreadable("it was cut by its limit of tokens")
                one.value, one.status, one.said = read(reply.text), "", reply.text
            except Unreadable as error:
                one.status, one.why = Status.UNREADABLE, str(error)
                again = AGAIN.format(why=error)
                talks[place] += [{"role": "assistant", "content": reply.text}, *user(again)]
                unread.append(place)
        left = unread
        if not left:
            break
    return found
