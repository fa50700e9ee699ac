"""Each rollout against the baseline that a stage before fixed for its group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import msgspec

from rollwright.stages.credit.group_norm import with_advantage
from rollwright.tree import Group


@dataclass(frozen=True, slots=True)
class GroupBaseline:
    """Give every sampled step of a rollout its reward above the group's baseline.

    A_i = r_i − b, b = `Group.baseline`

    A baseline that does not depend on the group's own rewards leaves the expected gradient as it is.

    Edge cases: a group without a baseline has b = 0; an unscored rollout gets exactly zero. Equal rewards
    move the policy (it is declared).
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward", "baseline"})
    gives: ClassVar[frozenset[str]] = frozenset({"advantage"})
    declares: ClassVar[frozenset[str]] = frozenset({"equal_rewards_move"})

    def __call__(self, group: Group) -> Group:
        b = group.baseline or 0.0
        values = [0.0 if t.score is None else t.score - b for t in group.trajectories]
        credited = [with_advantage(group, t, v) for t, v in zip(group.trajectories, values, strict=True)]
        return msgspec.structs.replace(group, trajectories=tuple(credited))
