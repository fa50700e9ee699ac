"""DAPO: only groups that can teach, refilled until the batch is full; asymmetric clip, token mean."""

from __future__ import annotations

import dataclasses

from rollwright.method import Method
from rollwright.methods.grpo import grpo
from rollwright.stage import Filter
from rollwright.stages.allocate.refill import Refill
from rollwright.stages.filter.overlong import Overlong
from rollwright.stages.filter.zero_variance import ZeroVariance
from rollwright.stages.replay.full_batch import FullBatch


def dapo(
    each: int = 8,
    oversample: float = 2.0,
    max_rounds: int = 10,
    hold: bool = False,
    max_tokens: int | None = None,
    overlong_buffer: int | None = None,
    overlong_factor: float = 1.0,
    clip_low: float = 0.2,
    clip_high: float = 0.28,
) -> Method:
    """Refill the batch with new prompts until each of its groups has both right and wrong rollouts.

    J = 1/Σ|oᵢ| Σᵢ Σₜ min(rᵢₜ·Aᵢ, clip(rᵢₜ, 1−ε_low, 1+ε_high)·Aᵢ), subject to min R < max R

    Args:
        each: rollouts per prompt, ≥ 1.
        oversample: prompts sampled per missing group, ≥ 1.
        max_rounds: rounds of sampling in a step, ≥ 1; then it trains on the groups that it has.
        hold: train on surplus groups in the next step instead of dropping them.
        max_tokens: sampled tokens that a rollout may have; None leaves the overlong penalty out.
        overlong_buffer: tokens before the limit over which the penalty grows; None is a fifth of it.
        overlong_factor: the penalty at the limit, ≥ 0.
        clip_low, clip_high: ε below and above 1.

    Raises:
        ConfigError: a number outside its range.

    Source: DAPO (2503.14476). What differs: docs/methods/dapo.md.
    """
    filters: tuple[Filter, ...] = (ZeroVariance(),)
    if max_tokens is not None:
        buffer = max(1, max_tokens // 5) if overlong_buffer is None else overlong_buffer
        filters += (Overlong(max_tokens, buffer, overlong_factor),)
    parent = grpo(each, clip_low, clip_high, reduce="token_mean")
    return dataclasses.replace(
        parent,
        name="dapo",
        allocate=Refill(each, oversample, max_rounds),
        filters=filters,
        replay=FullBatch(hold),
        declares=parent.declares | ({"off_policy"} if hold else set()),
    )
