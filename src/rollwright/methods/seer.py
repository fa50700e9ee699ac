"""Seer: rollouts in chunks that move between engines, longest first, told by a probe of each group."""

from __future__ import annotations

import dataclasses

from rollwright.method import Method
from rollwright.methods.grpo import grpo
from rollwright.stages.generate.divided import Divided


def seer(
    each: int = 8,
    chunk: int = 1024,
    probe: bool = True,
    clip_high: float = 0.2,
    reduce: str = "sequence_mean",
) -> Method:
    """Roll out GRPO's own batch in less time: rollouts in chunks, the longest groups first.

    Rollouts of one prompt have similar lengths. The first of each group runs ahead and tells how long
    its group is; then the longest go first, so that no long one begins last. It is synchronous and
    on-policy: what is trained is what `grpo` trains, token for token.

    Args:
        each: rollouts per prompt, ≥ 1.
        chunk: tokens after which a rollout may move to another engine, ≥ 1.
        probe: let the first rollout of a group run ahead.
        clip_high, reduce: as in `grpo`.

    Raises:
        ConfigError: a number outside its range.

    Source: Seer (2511.14617). What differs: docs/methods/seer.md.
    """
    parent = grpo(each, clip_high=clip_high, reduce=reduce)
    return dataclasses.replace(
        parent,
        name="seer",
        generate=Divided(chunk, probe),
        declares=parent.declares | {"schedule"},
    )
