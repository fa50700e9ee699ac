"""Advantages against a constant: for rollouts that have no siblings."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import msgspec

from rollwright.errors import ConfigError
from rollwright.stages.credit.group_norm import with_advantage
from rollwright.tree import Group


@dataclass(frozen=True, slots=True)
class FixedBaseline:
    """Give every sampled step of a rollout its reward above a constant.

    A_i = r_i − baseline

    Any constant leaves the expected gradient as it is; the nearer it is to the mean reward, the less the
    estimate varies. A rollout's credit does not depend on its siblings, so nobody waits for them.

    Args:
        baseline: the constant, in units of reward.

    Edge cases: equal rewards move the policy (it is declared); an unscored rollout gets exactly zero.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward"})
    gives: ClassVar[frozenset[str]] = frozenset({"advantage"})
    declares: ClassVar[frozenset[str]] = frozenset({"equal_rewards_move"})

    baseline: float = 0.0

    def __post_init__(self) -> None:
        if not math.isfinite(self.baseline):
            raise ConfigError(f"FixedBaseline: baseline={self.baseline}; expected a finite number")

    def __call__(self, group: Group) -> Group:
        values = [0.0 if t.score is None else t.score - self.baseline for t in group.trajectories]
        credited = [with_advantage(group, t, v) for t, v in zip(group.trajectories, values, strict=True)]
        return msgspec.structs.replace(group, trajectories=tuple(credited))
