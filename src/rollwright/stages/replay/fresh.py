"""No replay: train on what was just made."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from rollwright.tree import Group, GroupId


@dataclass(frozen=True, slots=True)
class Fresh:
    """Return the fresh groups unchanged."""

    def init(self) -> None:
        return None

    def exchange(
        self, state: None, fresh: Sequence[Group], version: int, rng: np.random.Generator, num_tasks: int
    ) -> tuple[None, Sequence[Group]]:
        return None, fresh

    def holds(self, state: None) -> Collection[GroupId]:
        return ()
