"""DART-GUI's curation: rollouts by success rate, stored successes, the most entropic turns."""

from __future__ import annotations

import dataclasses

from rollwright.method import Method
from rollwright.methods.grpo import grpo
from rollwright.stages.allocate.by_success import BySuccess
from rollwright.stages.credit.group_norm import GroupNorm
from rollwright.stages.credit.top_entropy import TopEntropy
from rollwright.stages.objective.decoupled_ppo import DecoupledPPO
from rollwright.stages.replay.success_pool import SuccessPool, pool_digest


def dart(
    each: int = 8,
    first: int = 4,
    enough: float = 0.6,
    share: float = 0.8,
    pool: str | None = None,
    weight_cap: float = 2.0,
    clip_low: float = 0.2,
    clip_high: float = 0.28,
    reduce: str = "token_mean",
) -> Method:
    """Spend rollouts on tasks that fail, add a stored success where all do, train on uncertain turns.

    J = E[min(π_prox/π_rollout, C)·min(u·A, clip(u, 1−ε, 1+ε)·A)], over the turns of highest entropy

    Args:
        each: rollouts that a task may have, ≥ first.
        first: rollouts that every task has, ≥ 1.
        enough: share of right rollouts above which a task gets no more, in [0, 1].
        share: of a group's turns that are trained, in (0, 1].
        pool: pool file of successes (`rollwright.stages.replay.success_pool.write_pool`); None starts empty
            and collects this run's.
        weight_cap: C, upper end of the weight for old tokens, > 1.
        clip_low, clip_high, reduce: as in `grpo`.

    Raises:
        ConfigError: a number outside its range.
        DataError: no such pool file.

    Source: DART-GUI (2509.23866). What differs: docs/methods/dart.md.
    """
    parent = grpo(each, clip_low, clip_high, reduce=reduce)
    return dataclasses.replace(
        parent,
        name="dart",
        allocate=BySuccess(min(first, each), max(1, (each - first) // 2), each, enough),
        replay=SuccessPool(
            replayed=1,
            only_failed=True,
            path=pool,
            digest=None if pool is None else pool_digest(pool),
        ),
        credit=(GroupNorm(), TopEntropy(share)),
        objective=DecoupledPPO(clip_low, clip_high, weight_cap, truncate=True),
        declares=parent.declares | {"off_policy"},
    )
