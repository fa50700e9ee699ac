"""VIGOR: after a first few rollouts for every prompt, the rest go where the rewards vary most."""

from __future__ import annotations

import dataclasses

from rollwright.method import Method
from rollwright.methods.grpo import grpo
from rollwright.stages.allocate.variance_rounds import VarianceRounds


def vigor(
    each: int = 8,
    first: int = 4,
    rounds: int = 2,
    top: float = 0.25,
    clip_high: float = 0.2,
    reduce: str = "sequence_mean",
) -> Method:
    """Spend each · num_tasks rollouts a step, by rounds on the groups of highest reward variance.

    n_q = first + Σ_k share_k(q), share_k > 0 for the groups with the highest p̂_q(1 − p̂_q) before round k

    With ``rounds=0`` it is GRPO with ``each`` rollouts.

    Args:
        each: rollouts per prompt on average, ≥ 1.
        first: rollouts per prompt before the first round, in [2, each].
        rounds: rounds of reallocation, ≥ 0.
        top: share of the groups that a round gives to, in (0, 1].
        clip_high, reduce: as in `grpo`.

    Raises:
        ConfigError: a number outside its range.

    Source: VIGOR (2026). What differs: docs/methods/vigor.md.
    """
    return dataclasses.replace(
        grpo(each, clip_high=clip_high, reduce=reduce),
        name="vigor",
        allocate=VarianceRounds(each, first, rounds, top),
    )
