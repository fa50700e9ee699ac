"""Replay of other runs' rollouts: some groups of this run, some of the swarm's, in every batch."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rollwright.errors import ConfigError
from rollwright.tree import Group, GroupId

State = tuple[Group, ...]


@dataclass(frozen=True, slots=True)
class Swarm:
    """Train on ``own`` = I groups of this run and ``external`` = J groups that other runs shared.

    batch = I of the fresh ∪ J of the pool, each drawn uniformly without replacement

    The pool holds what arrived (`rollwright.events.Received`), groups without spread left out: they teach
    nothing. A foreign group is trained once. Where there are fewer than J, the batch is smaller: nobody is
    waited for. With ``external=0`` nothing of others is trained.

    Args:
        external: J, groups of other runs in a batch, ≥ 0.
        own: I, groups of this run in a batch, ≥ 1; None is all. What is not drawn is dropped.
        max_pool: groups kept, ≥ 1; the newest stay.

    Source: SAPO (2509.08721); docs/methods/sapo.md says what differs.
    """

    external: int = 4
    own: int | None = None
    max_pool: int = 512

    def __post_init__(self) -> None:
        if self.external < 0 or self.max_pool < 1 or (self.own is not None and self.own < 1):
            raise ConfigError(
                f"Swarm: external = {self.external}, own = {self.own}, max_pool = {self.max_pool}; expected"
                " external ≥ 0, own ≥ 1 or None, max_pool ≥ 1"
            )

    def init(self) -> State:
        return ()

    def receive(self, state: State, groups: Sequence[Group]) -> tuple[State, Mapping[str, int]]:
        """Take groups that arrived; those without spread, and the oldest beyond the limit, are left out."""
        useful = [group for group in groups if _has_spread(group)]
        num_flat = len(groups) - len(useful)
        return (*state, *useful)[-self.max_pool :], {"zero_variance": num_flat} if num_flat else {}

    def exchange(
        self, state: State, fresh: Sequence[Group], version: int, rng: np.random.Generator, num_tasks: int
    ) -> tuple[State, Sequence[Group]]:
        own = fresh if self.own is None else [fresh[i] for i in _draw(len(fresh), self.own, rng)]
        drawn = _draw(len(state), self.external, rng)
        left = tuple(group for i, group in enumerate(state) if i not in set(drawn))
        return left, (*own, *(state[i] for i in drawn))

    def holds(self, state: State) -> Collection[GroupId]:
        """Return nothing: what the pool keeps was sampled elsewhere, and is in no ledger of this run."""
        return ()


def _draw(num: int, wanted: int, rng: np.random.Generator) -> list[int]:
    """Return ``wanted`` of ``num`` numbers in order; all where there are fewer."""
    if num <= wanted:
        return list(range(num))
    return sorted(rng.choice(num, wanted, replace=False).tolist())


def _has_spread(group: Group) -> bool:
    rewards = [t.reward for t in group.trajectories if t.reward is not None]
    return bool(rewards) and min(rewards) < max(rewards)
