"""Drafts from the last epoch's rollouts of the same prompt (SPEC-RL): each sample goes over its forerunner.

The paper checks the old rollout in one pass and keeps what the new policy accepts, with a lenience that bends
the distribution. Here a token is kept if it is the one that the new policy samples with this run's noise, so
nothing bends; what is accepted is less unless the noise of a sample is the same in every epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from rollwright.engine.drafts.api import NO_TOKENS, Tokens
from rollwright.engine.drafts.family import Families
from rollwright.events import Submit


@dataclass(slots=True)
class _Family:
    """Rollouts of a prompt in the order in which they began: of the last epoch, and of this one."""

    old: list[list[int]] = field(default_factory=list)
    new: list[list[int]] = field(default_factory=list)
    group: str = ""


@dataclass(slots=True)
class _Open:
    draft: list[int]
    made: list[int] = field(default_factory=list)
    is_on_course: bool = True


class PreviousDrafter:
    """Proposes the rollout that the last epoch had in this place, as long as it was followed to the letter.

    Args:
        most_prompts: prompts to remember.
    """

    name = "previous"

    def __init__(self, most_prompts: int = 4096) -> None:
        self._families = Families(_Family, most_prompts)
        self._ask_to_open: dict[str, _Open] = {}

    def begin(self, command: Submit, prefix: Tokens) -> None:
        ask, group = command.ask, command.group
        family = self._families.of(group, prefix)
        if family.group != group:  # a new epoch: what the last one made becomes the drafts
            if family.new:
                family.old, family.new = family.new, []
            family.group = group
        number = len(family.new)
        draft = family.old[number % len(family.old)] if family.old else []
        opened = self._ask_to_open[ask] = _Open(draft)
        family.new.append(opened.made)

    def extend(self, ask: str, tokens: Tokens) -> None:
        opened = self._ask_to_open[ask]
        at = len(opened.made)
        opened.made += tokens.tolist()
        opened.is_on_course &= opened.draft[at : len(opened.made)] == opened.made[at:]

    def propose(self, asks: Sequence[str], most: Sequence[int]) -> list[Tokens]:
        return [self._propose(self._ask_to_open[ask], n) for ask, n in zip(asks, most, strict=True)]

    def end(self, ask: str) -> None:
        self._ask_to_open.pop(ask, None)

    def _propose(self, opened: _Open, most: int) -> Tokens:
        at = len(opened.made)
        if not opened.is_on_course or most <= 0 or at >= len(opened.draft):
            return NO_TOKENS
        return np.array(opened.draft[at : at + most], np.int64)
