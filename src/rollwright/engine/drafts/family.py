"""Which sequences tell something about each other: those that began with the same prompt."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from rollwright.engine.drafts.api import Tokens

F = TypeVar("F")


class Families(Generic[F]):
    """What is kept for each prompt, the least recently used prompts forgotten first.

    A group belongs to the prompt of its first ask; asks that branch off or go on later stay with it. Groups
    of later epochs find what earlier ones left by the prompt's tokens.

    Args:
        new: makes what is kept for a prompt.
        most: prompts to keep.
    """

    def __init__(self, new: Callable[[], F], most: int = 4096) -> None:
        self._new, self._most = new, most
        self._prompt_to_family: OrderedDict[bytes, F] = OrderedDict()
        self._group_to_prompt: OrderedDict[str, bytes] = OrderedDict()

    def of(self, group: str, prefix: Tokens) -> F:
        """Return what is kept for a group, whose first ask has this prefix."""
        prompt = self._group_to_prompt.setdefault(group, prefix.tobytes())
        if len(self._group_to_prompt) > self._most:
            self._group_to_prompt.popitem(last=False)
        if prompt not in self._prompt_to_family:
            self._prompt_to_family[prompt] = self._new()
            if len(self._prompt_to_family) > self._most:
                self._prompt_to_family.popitem(last=False)
        self._prompt_to_family.move_to_end(prompt)
        return self._prompt_to_family[prompt]

    def __iter__(self) -> Iterator[F]:
        return iter(self._prompt_to_family.values())

    def forget(self) -> None:
        """Forget the prompt that was least recently used."""
        self._prompt_to_family.popitem(last=False)
