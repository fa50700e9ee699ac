"""Credit for the turns that the policy was least sure of, and none for the others."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import msgspec

from rollwright.errors import ConfigError
from rollwright.tree import Group, Origin, Trajectory

Turn = tuple[float, int, int]  # minus its mean entropy, the rollout's number, the turn's


@dataclass(frozen=True, slots=True)
class TopEntropy:
    """Keep the advantages of the turns with the highest mean entropy; set those of the others to zero.

    kept = the ⌈share·n⌉ turns of highest H̄ = mean entropy of the turn's tokens, of the group's n turns

    It comes after a credit that gives advantages. With ``share=1`` it changes nothing.

    Args:
        share: of the turns, in (0, 1].

    Edge cases: only turns of scored rollouts are ranked, so one without a score changes nothing for the
    others; turns whose entropy nobody recorded (replayed ones) are kept and not ranked. Ties go to the
    smaller rollout, then to the earlier turn.
    Source: DART-GUI (2509.23866), its training on high-entropy steps, a step being a turn.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"advantage", "entropy"})
    declares: ClassVar[frozenset[str]] = frozenset({"biased"})

    share: float = 0.8

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise ConfigError(f"TopEntropy: share = {self.share}; expected a number in (0, 1]")

    def __call__(self, group: Group) -> Group:
        turns = [turn for t in group.trajectories if t.score is not None for turn in _turns(group, t)]
        num = math.ceil(round(self.share * len(turns), 9))
        dropped = {turn[1:] for turn in sorted(turns)[num:]}
        changed = [_without(group, t, dropped) for t in group.trajectories]
        return msgspec.structs.replace(group, trajectories=tuple(changed))


def _spans(group: Group, trajectory: Trajectory) -> list[tuple[int, int, list[float] | None]]:
    """Return (first step, end, entropies or None) of each turn, steps counted after the root."""
    spans: list[tuple[int, int, list[float] | None]] = []
    at, previous = 0, Origin.PROMPT
    for node, num in group.path(trajectory.leaf)[1:]:
        if node.origin is Origin.SAMPLED and num:
            own = None if node.entropies is None else list(node.entropies[:num])
            if previous is Origin.SAMPLED and spans:
                start, _, before = spans.pop()  # a part of the same turn
                own = None if own is None or before is None else before + own
                spans.append((start, at + num, own))
            else:
                spans.append((at, at + num, own))
        previous, at = node.origin, at + num
    return spans


def _turns(group: Group, trajectory: Trajectory) -> list[Turn]:
    spans = enumerate(_spans(group, trajectory))
    return [(-math.fsum(own) / len(own), trajectory.index, k) for k, (_, _, own) in spans if own]


def _without(group: Group, trajectory: Trajectory, dropped: set[tuple[int, int]]) -> Trajectory:
    if trajectory.advantages is None:
        return trajectory
    advantages = list(trajectory.advantages)
    for k, (start, end, _) in enumerate(_spans(group, trajectory)):
        if (trajectory.index, k) in dropped:
            advantages[start:end] = [0.0] * (end - start)
    return msgspec.structs.replace(trajectory, advantages=tuple(advantages))
