"""APRIL: start more groups than a batch needs, close the step once it is full, carry the others over."""

from __future__ import annotations

import dataclasses

from rollwright.method import Method
from rollwright.methods.grpo import grpo
from rollwright.stages.allocate.refill import Refill
from rollwright.stages.control.close_at_target import CloseAtTarget
from rollwright.stages.replay.full_batch import FullBatch


def april(
    each: int = 8,
    oversample: float = 2.0,
    clip_high: float = 0.2,
    reduce: str = "sequence_mean",
) -> Method:
    """Keep ⌈oversample · num_tasks⌉ groups in flight and train as soon as num_tasks are complete.

    What is unfinished keeps its tokens, logprobs and versions and goes on, first, in the next step.
    With ``oversample=1`` nothing is carried over: it is GRPO.

    Args:
        each: rollouts per prompt, ≥ 1.
        oversample: groups in flight per group of the batch, N′/N ≥ 1.
        clip_high, reduce: as in `grpo`.

    Raises:
        ConfigError: a number outside its range.

    Source: APRIL (2509.18521). What differs: docs/methods/april.md.
    """
    parent = grpo(each, clip_high=clip_high, reduce=reduce)
    return dataclasses.replace(
        parent,
        name="april",
        allocate=Refill(each, oversample),
        control=(CloseAtTarget(),),
        replay=FullBatch(hold=True),
        declares=parent.declares | {"off_policy", "arrival"},
    )
