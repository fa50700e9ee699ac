"""A soft penalty on answers that come close to the limit of length."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rollwright.errors import ConfigError
from rollwright.stage import Verdict
from rollwright.tree import Group, Origin, Trajectory


@dataclass(frozen=True, slots=True)
class Overlong:
    """Lower the score of a rollout linearly over the last ``buffer`` tokens before the limit.

    score = reward + factor · min(0, (max_tokens − buffer − n) / buffer), n = sampled tokens

    It shapes scores and keeps every group; the raw reward stays as the grader gave it.

    Args:
        max_tokens: sampled tokens that a whole rollout may have, ≥ 1.
        buffer: tokens before the limit over which the penalty grows, in [1, max_tokens].
        factor: penalty at the limit, ≥ 0.

    Edge cases: an unscored rollout stays unscored. In a dialogue n counts the sampled tokens of all turns
    and no observation.
    Source: soft overlong punishment of DAPO (2503.14476), equation 13.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward", "length"})

    max_tokens: int
    buffer: int
    factor: float = 1.0

    def __post_init__(self) -> None:
        if not 1 <= self.buffer <= self.max_tokens:
            raise ConfigError(
                f"Overlong: buffer = {self.buffer}, max_tokens = {self.max_tokens};"
                " expected 1 ≤ buffer ≤ max_tokens"
            )
        if not self.factor >= 0:
            raise ConfigError(f"Overlong: factor = {self.factor}; expected a number ≥ 0")

    def __call__(self, group: Group) -> Verdict:
        scores = {
            t.leaf: t.score + self.penalty(num_sampled(group, t))
            for t in group.trajectories
            if t.score is not None
        }
        return Verdict(True, scores=scores)

    def penalty(self, num_tokens: int) -> float:
        """Return the penalty, ≤ 0, of a rollout with so many sampled tokens."""
        return self.factor * min(0.0, (self.max_tokens - self.buffer - num_tokens) / self.buffer)


def num_sampled(group: Group, trajectory: Trajectory) -> int:
    """Return the number of sampled tokens on the trajectory's path."""
    return sum(num for node, num in group.path(trajectory.leaf) if node.origin is Origin.SAMPLED)
