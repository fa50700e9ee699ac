"""Does a chat template leave what it wrote before as it was?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rollwright.chat.template import ChatTemplate, Message
from rollwright.errors import DataError

_AROUND = 30  # characters shown on both sides of a difference


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A place where a later prompt does not go on from an earlier one.

    Args:
        what: the situation.
        before: the text so far: the earlier prompt and the answer to it.
        after: the later prompt.
        at: the first character that differs.
    """

    what: str
    before: str
    after: str

    @property
    def at(self) -> int:
        return first_difference(self.before, self.after)

    def __str__(self) -> str:
        return (
            f"{self.what}: the next prompt does not go on from the last one; at character {self.at}"
            f" {_window(self.before, self.at)} became {_window(self.after, self.at)}"
        )


def first_difference(before: str, after: str) -> int:
    """Return the first index at which the texts differ; the shorter one's length if it is a prefix."""
    pairs = zip(before, after, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(before), len(after)))


def _window(text: str, at: int) -> str:
    start, end = max(0, at - _AROUND), at + _AROUND
    return repr(("…" if start else "") + text[start:end] + ("…" if end < len(text) else ""))


_TOOL = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Look a word up.",
        "parameters": {"type": "object", "properties": {"word": {"type": "string"}}},
    },
}
_SYSTEM = {"role": "system", "content": "Answer in one word."}
_ASK = {"role": "user", "content": "What is the opposite of up?"}
_NEXT = {"role": "user", "content": "And of left?"}
_RESULT = {"role": "tool", "content": "down", "name": "look_up", "tool_call_id": "abcdefghi"}
_CALL = '<tool_call>\n{"name": "look_up", "arguments": {"b":1, "a":"\\u00e9"}}\n</tool_call>'
_THOUGHT = "<think>\nUp and down.\n</think>\n\n"
# what happens: (messages before, what the model says, messages after, are tools given)
_PROBES: dict[str, tuple[list[Message], str, list[Message], bool]] = {
    "a second question": ([_ASK], "Down.", [_NEXT], False),
    "a second question under a system prompt": ([_SYSTEM, _ASK], "Down.", [_NEXT], False),
    "a second question with tools": ([_ASK], "Down.", [_NEXT], True),
    "an answer with space around it": ([_ASK], " Down.\n", [_NEXT], False),
    "a thought before the answer": ([_ASK], f"{_THOUGHT}Down.", [_NEXT], False),
    "a tool call": ([_ASK], _CALL, [_RESULT], True),
    "a thought before a tool call": ([_ASK], _THOUGHT + _CALL, [_RESULT], True),
}


def check_append_only(template: ChatTemplate, **variables: Any) -> tuple[Rewrite, ...]:
    """Return where the template rewrites history; nothing means that dialogues stay one row each.

    A few dialogues are rendered before and after the model's answer: with a second question, a system
    prompt, tools, thoughts, a tool's result, and space around the answer. A situation that the template
    refuses is left out.

    Args:
        template: the template.
        variables: as for `ChatTemplate.render`.
    """
    found = []
    for what, (messages, said, more, has_tools) in _PROBES.items():
        answer = {"role": "assistant", "content": said}
        tools = [_TOOL] if has_tools else None
        try:
            before = template.render(messages, tools, add_generation_prompt=True, **variables) + said
            later = [*messages, answer, *more]
            after = template.render(later, tools, add_generation_prompt=True, **variables)
        except DataError:
            continue
        if not after.startswith(before):
            found.append(Rewrite(what, before, after))
    return tuple(found)


def inserted_system(template: ChatTemplate, **variables: Any) -> str:
    """Return what the template writes before the first user's turn by itself.

    That is a begin token, a default system prompt, or both; a dialogue that begins with a system message
    of its own may have another beginning. It shows why new turns must not be rendered alone: they would
    begin with it again.
    """

    def text(messages: Sequence[Mapping[str, Any]]) -> str:
        return template.render(messages, **variables)

    answer = {"role": "assistant", "content": "Down."}
    try:
        first = text([_NEXT])
        before, after = text([_ASK, answer]), text([_ASK, answer, _NEXT])
    except DataError:
        return ""
    turn = after[len(before) :] if after.startswith(before) else ""
    return first.removesuffix(turn) if turn and first.endswith(turn) else ""
