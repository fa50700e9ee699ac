"""RLEP: groups of fresh rollouts and verified successes of an earlier run."""

from __future__ import annotations

import dataclasses

from rollwright.method import Method
from rollwright.methods.grpo import grpo
from rollwright.stages.replay.success_pool import SuccessPool, pool_digest


def rlep(
    each: int = 8,
    replay: int = 2,
    pool: str | None = None,
    grow: bool | None = None,
    per_task: int = 8,
    threshold: float = 1.0,
    ratio: str = "current",
    clip_low: float = 0.2,
    clip_high: float = 0.28,
    reduce: str = "token_mean",
) -> Method:
    """Train on G fresh and M replayed rollouts per prompt, with advantages over the union.

    Aᵢ = (Rᵢ − mean R) / std R over the G + M rollouts, the same clipped objective for both

    Phase 1 collects (``replay=0``, the pool grows), phase 2 starts again from the base model with
    ``pool`` set to the file that phase 1 left. With ``replay=0`` it trains as `grpo` does.

    Args:
        each: G, fresh rollouts per prompt, ≥ 1.
        replay: M, replayed successes per prompt, ≥ 0; fewer where the pool has fewer.
        pool: pool file of an earlier run (`write_pool`); None starts with an empty pool.
        grow: successes of this run enter the pool; None is yes without a file and no with one.
        per_task: successes kept per prompt, ≥ 1.
        threshold: least reward of a success.
        ratio: what a replayed token's ratio is taken to, ``"current"`` (the policy before the update, the
            paper's code) or ``"recorded"`` (the policy that sampled it); see `SuccessPool`.
        clip_low, clip_high, reduce: as in `grpo`; the paper's baseline is a token mean with clip 0.2/0.28.

    Raises:
        ConfigError: a number outside its range.
        DataError: no such pool file.

    Source: RLEP (2507.07451). What differs: docs/methods/rlep.md.
    """
    parent = grpo(each, clip_low, clip_high, reduce=reduce)
    return dataclasses.replace(
        parent,
        name="rlep",
        replay=SuccessPool(
            replayed=replay,
            grow=pool is None if grow is None else grow,
            per_task=per_task,
            threshold=threshold,
            ratio=ratio,
            path=pool,
            digest=None if pool is None else pool_digest(pool),
        ),
        declares=parent.declares | ({"off_policy"} if replay else set()),
    )
