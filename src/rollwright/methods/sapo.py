"""SAPO: runs that share rollouts; every batch holds some of this run's and some of the others'."""

from __future__ import annotations

import dataclasses

from rollwright.method import Method
from rollwright.methods.grpo import grpo
from rollwright.stages.filter.zero_variance import ZeroVariance
from rollwright.stages.replay.swarm import Swarm


def sapo(
    each: int = 8,
    external: int = 4,
    own: int | None = None,
    max_pool: int = 512,
    clip_low: float = 0.2,
    clip_high: float = 0.28,
    reduce: str = "token_mean",
) -> Method:
    """Train on I groups of this run and J that others shared, with GRPO's update.

    batch = I own ∪ J foreign groups with spread; Aᵢ = (Rᵢ − mean R) / std R within each

    Where the others' rollouts lie is a setting of the run: ``swarm.folder``, and ``swarm.node``, this run's
    name among them. Without it, or with ``external=0``, the run trains alone.

    Args:
        each: rollouts per prompt, ≥ 1.
        external: J, groups of other runs in a batch, ≥ 0.
        own: I, groups of this run in a batch, ≥ 1; None is all that have spread.
        max_pool: groups of others that are kept, the newest, ≥ 1.
        clip_low, clip_high, reduce: as in `grpo`.

    Raises:
        ConfigError: a number outside its range.

    Source: SAPO (2509.08721). What differs: docs/methods/sapo.md.
    """
    parent = grpo(each, clip_low, clip_high, reduce=reduce)
    return dataclasses.replace(
        parent,
        name="sapo",
        filters=(ZeroVariance(),),
        replay=Swarm(external, own, max_pool),
        declares=parent.declares | ({"off_policy"} if external else set()),
    )
