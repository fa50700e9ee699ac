"""The single-rollout recipe: one rollout a prompt, a running baseline, truncated importance weights."""

from __future__ import annotations

import dataclasses

from rollwright.method import Method
from rollwright.methods.grpo import grpo
from rollwright.stages.credit.group_baseline import GroupBaseline
from rollwright.stages.filter.overlong import Overlong
from rollwright.stages.objective.reinforce import Reinforce
from rollwright.stages.replay.running_baseline import RunningBaseline


def single_rollout(
    start: float = 0.5,
    decay: float = 0.99,
    ratio_cap: float = 2.0,
    max_tokens: int | None = None,
    length_factor: float = 0.0,
    reduce: str = "token_mean",
) -> Method:
    """Train on single rollouts as they come, each against the mean of the rewards before it.

    J = mean over tokens of min(π/π_rollout, C)·A·log π, A = R − b, b the running mean reward

    How far rollouts run ahead of the updates is a setting of the run, ``num_ahead``.

    Args:
        start: the baseline of the first batch.
        decay: how fast the baseline forgets, in [0, 1]; 1 never.
        ratio_cap: C, upper end of the importance weight, > 0.
        max_tokens: sampled tokens that a rollout may have; for the penalty on length.
        length_factor: the penalty at that limit, growing over its last half; 0 is off.
        reduce: ``"token_mean"`` or ``"sequence_mean"``.

    Raises:
        UnknownName: no such reduce.
        ConfigError: a number outside its range.

    Source: the single-rollout recipe (2026), abstract. What differs: docs/methods/single_rollout.md.
    """
    penalties: tuple[Overlong, ...] = ()
    if length_factor and max_tokens is not None:
        penalties = (Overlong(max_tokens, max(1, max_tokens // 2), length_factor),)
    return dataclasses.replace(
        grpo(each=1, reduce=reduce),
        name="single_rollout",
        filters=penalties,
        replay=RunningBaseline(start, decay),
        credit=(GroupBaseline(),),
        objective=Reinforce(ratio_cap),
    )
