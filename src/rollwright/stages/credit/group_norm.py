"""Group-relative advantages: each rollout against the mean of its own task's rollouts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import msgspec

from rollwright.tree import Group, Origin, Trajectory


@dataclass(frozen=True, slots=True)
class GroupNorm:
    """Give every sampled step of a rollout its group-relative advantage.

    A_i = (r_i - mean(r)) / (std(r) + eps), over the scored rollouts of the group, with the sample
    standard deviation (n - 1). Without ``scale`` the division is left out.

    Args:
        scale: divide by the standard deviation (GRPO) or not (Dr. GRPO).
        eps: added to the standard deviation; not a clamp of the variance.

    Edge cases: equal scores give exactly zero; an unscored rollout gets exactly zero and moves no
    baseline; a group with fewer than two scored rollouts gets zero.
    Source: GRPO (DeepSeekMath, 2024), equation 3's outcome supervision.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward"})
    gives: ClassVar[frozenset[str]] = frozenset({"advantage"})

    scale: bool = True
    eps: float = 1e-6

    def __call__(self, group: Group) -> Group:
        scores = [t.score for t in group.trajectories if t.score is not None]
        if len(scores) < 2 or max(scores) == min(scores):
            mean, spread = 0.0, None
        else:
            # fsum: the result must not depend on the order of the group.
            mean = math.fsum(scores) / len(scores)
            variance = math.fsum((score - mean) ** 2 for score in scores) / (len(scores) - 1)
            spread = math.sqrt(variance) + self.eps if self.scale else 1.0
        credited = []
        for t in group.trajectories:
            value = 0.0 if spread is None or t.score is None else (t.score - mean) / spread
            credited.append(with_advantage(group, t, value))
        return msgspec.structs.replace(group, trajectories=tuple(credited))


def with_advantage(group: Group, trajectory: Trajectory, value: float) -> Trajectory:
    """Return the trajectory with ``value`` on its sampled steps and 0 on all others."""
    advantages: list[float] = []
    for node, num in group.path(trajectory.leaf)[1:]:
        advantages += [value if node.origin is Origin.SAMPLED else 0.0] * num
    return msgspec.structs.replace(trajectory, advantages=tuple(advantages))
