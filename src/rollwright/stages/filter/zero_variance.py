"""Drop groups that cannot teach: all raw outcomes equal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rollwright.stage import Verdict
from rollwright.tree import Group


@dataclass(frozen=True, slots=True)
class ZeroVariance:
    """Keep a group if and only if its raw rewards differ.

    keep ⇔ min r < max r, over the scored rollouts

    It looks at the grader's outcome, never at shaped scores: a penalty on length would otherwise let a
    group of only wrong answers through, and the longer wrong answers would push up the shorter ones.

    Edge cases: an unscored rollout is in neither side; a group with one scored rollout is dropped, since
    it has no baseline.
    Source: dynamic sampling of DAPO (2503.14476), whose code filters on the accuracy.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward"})

    def __call__(self, group: Group) -> Verdict:
        rewards = [t.reward for t in group.trajectories if t.reward is not None]
        differ = bool(rewards) and min(rewards) < max(rewards)
        return Verdict(differ, "" if differ else "zero_variance")
