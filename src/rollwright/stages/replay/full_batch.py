"""Batches of one size: cut the surplus, or keep it for the next step."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from rollwright.tree import Group, GroupId

State = tuple[Group, ...]


@dataclass(frozen=True, slots=True)
class FullBatch:
    """Train on the first ``num_tasks`` groups, in the order in which they were opened.

    The order of opening does not depend on lengths or rewards, so the cut selects nothing.

    Args:
        hold: keep the surplus and train on it first in the next step (nothing is wasted, but it is then
            one version old) instead of dropping it.
    """

    hold: bool = False

    def init(self) -> State:
        return ()

    def exchange(
        self, state: State, fresh: Sequence[Group], version: int, rng: np.random.Generator, num_tasks: int
    ) -> tuple[State, Sequence[Group]]:
        groups = (*state, *fresh)
        return groups[num_tasks:] if self.hold else (), groups[:num_tasks]

    def holds(self, state: State) -> Collection[GroupId]:
        return tuple(group.id for group in state)
