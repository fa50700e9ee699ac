"""A first few rollouts for every task, then the rest, in rounds, where rewards vary most."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rollwright.errors import ConfigError
from rollwright.stage import Grant, GroupView, Left, StepView
from rollwright.tree import GroupId


@dataclass(frozen=True, slots=True)
class VarianceRounds:
    """Spend B = each · num_tasks rollouts: ``first`` for each task, the rest in ``rounds`` equal chunks.

    A round ranks the groups by the variance of their rewards so far, v = mean(r²) − mean(r)² (p(1−p) for
    rewards of 0 and 1), and shares its chunk evenly among the ``top`` share of them. Ties go to the group
    with fewer rollouts, then to the one opened first. With ``rounds=0`` it is `Even`.

    Args:
        each: rollouts per task on average, ≥ 1.
        first: rollouts per task before the first round, in [2, each].
        rounds: rounds of reallocation, ≥ 0.
        top: share of the groups that a round gives to, in (0, 1].

    Edge cases: a group without variance gets nothing while another has some; if none has, the chunk is
    spread over all, the ones with fewest rollouts first. A group without a scored rollout (its prompt or
    every grade failed) gets no more. Budgets smaller than B are spent whole, first rollouts first.
    Source: VIGOR (2026), abstract; how a round shares its chunk is our reading.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward"})

    each: int = 8
    first: int = 4
    rounds: int = 2
    top: float = 0.25

    def __post_init__(self) -> None:
        if self.each < 1 or self.rounds < 0:
            raise ConfigError(
                f"VarianceRounds: each = {self.each}, rounds = {self.rounds}; expected each ≥ 1, rounds ≥ 0"
            )
        if self.rounds and not 2 <= self.first <= self.each:
            raise ConfigError(
                f"VarianceRounds: first = {self.first}; expected 2 ≤ first ≤ each = {self.each}: one rollout"
                " has no variance"
            )
        if not 0 < self.top <= 1:
            raise ConfigError(f"VarianceRounds: top = {self.top}; expected a share in (0, 1]")

    def grant(self, step: StepView, left: Left) -> Grant:
        rollouts_left = int(min(left.rollouts, 1 << 30))
        if step.round == 0:
            first = self.first if self.rounds else self.each
            num = min(step.num_tasks - len(step.groups), rollouts_left // first)
            return Grant(num, first) if num > 0 else Grant()
        if step.round > self.rounds:
            return Grant()
        spent = sum(group.num_granted for group in step.groups)
        owed = min(self.each * len(step.groups) - spent, rollouts_left)
        # Rounded up, so that the last round has exactly what is left and no round is empty before it.
        chunk = math.ceil(owed / (self.rounds - step.round + 1))
        return Grant(extra=self.share(step.groups, chunk))

    def share(self, groups: Sequence[GroupView], chunk: int) -> dict[GroupId, int]:
        """Return how many of ``chunk`` rollouts go to which group."""
        open_groups = [group for group in groups if any(r is not None for r in group.rewards)]
        if not open_groups or chunk <= 0:
            return {}
        variances = [variance(group.rewards) for group in open_groups]
        if max(variances) > 0:
            order = sorted(
                (i for i, v in enumerate(variances) if v > 0),
                key=lambda i: (-variances[i], open_groups[i].num_granted, i),
            )[: math.ceil(round(self.top * len(open_groups), 9))]
        else:
            order = sorted(range(len(open_groups)), key=lambda i: (open_groups[i].num_granted, i))
        base, extra = divmod(chunk, len(order))
        shares = {open_groups[i].id: base + (rank < extra) for rank, i in enumerate(order)}
        return {group: num for group, num in shares.items() if num}


def variance(rewards: Sequence[float | None]) -> float:
    """Return the population variance of the scored rewards; 0 for fewer than two.

    Exactly 0 for equal rewards, and the same in any order.
    """
    scored = [r for r in rewards if r is not None]
    if len(scored) < 2 or min(scored) == max(scored):
        return 0.0
    mean = math.fsum(scored) / len(scored)
    return math.fsum((r - mean) ** 2 for r in scored) / len(scored)
