"""AReaL: rollouts run ahead of the updates; decoupled PPO corrects for the versions that sampled them."""

from __future__ import annotations

import dataclasses

from rollwright.method import Method
from rollwright.methods.grpo import grpo
from rollwright.stages.objective.decoupled_ppo import DecoupledPPO


def areal(
    each: int = 8,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    weight_cap: float | None = 5.0,
    reduce: str = "token_mean",
) -> Method:
    """Train on rollouts of the last versions, with the trust region around the weights before the update.

    J = E[w·min(u·A, clip(u, 1−ε, 1+ε)·A)], u = π_new / π_prox, w = π_prox / π_behaviour

    How old a rollout may be is a setting of the run, ``num_ahead``: η of the paper, whose gate
    ⌊(N_r − 1)/B⌋ ≤ i + η admits the rollouts of step s once version s − η is there. With ``num_ahead=0``
    w = 1, and it is GRPO with u around the weights before the batch.

    Args:
        each: G, rollouts per prompt, ≥ 1.
        clip_low, clip_high: ε below and above 1.
        weight_cap: tokens with w above it are left out, > 1; None leaves out none.
        reduce: ``"token_mean"`` or ``"sequence_mean"``.

    Raises:
        UnknownName: no such reduce.
        ConfigError: a number outside its range.

    Source: AReaL (2505.24298). What differs: docs/methods/areal.md.
    """
    parent = grpo(each, reduce=reduce)
    return dataclasses.replace(
        parent,
        name="areal",
        objective=DecoupledPPO(clip_low, clip_high, weight_cap),
    )
