"""CoPRIS: a fixed number of rollouts in flight; a step ends when its batch is full, the rest goes on."""

from __future__ import annotations

import dataclasses

from rollwright.method import Method
from rollwright.methods.grpo import grpo
from rollwright.stages.allocate.fill import Fill
from rollwright.stages.control.close_at_target import CloseAtTarget
from rollwright.stages.control.keep_flying import KeepFlying
from rollwright.stages.replay.full_batch import FullBatch


def copris(
    each: int = 8,
    num_flying: int = 64,
    clip_low: float = 0.2,
    clip_high: float = 0.28,
    reduce: str = "token_mean",
) -> Method:
    """Keep exactly ``num_flying`` rollouts in flight until num_tasks groups are complete; carry the others.

    rₜ = exp(log π_θ(oₜ) − Lₜ), L = the logprobs of a rollout as its versions recorded them, joined

    Choose ``num_flying`` as large as the engines decode well at: enough to fill them, few enough for their
    memory. Unlike APRIL there is no burst at a step's start whose contexts do not fit.

    Args:
        each: rollouts per prompt, ≥ 1.
        num_flying: rollouts in flight, ≥ 1.
        clip_low, clip_high, reduce: as in `grpo`.

    Raises:
        ConfigError: a number outside its range.

    Source: CoPRIS (2511.05589). What differs: docs/methods/copris.md.
    """
    parent = grpo(each, clip_low, clip_high, reduce=reduce)
    return dataclasses.replace(
        parent,
        name="copris",
        allocate=Fill(each, num_flying),
        control=(KeepFlying(num_flying, each), CloseAtTarget()),
        replay=FullBatch(hold=True),
        declares=parent.declares | {"off_policy", "arrival"},
    )
