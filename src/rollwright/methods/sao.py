"""SAO: one rollout for each prompt, trained as it comes, inside a strict trust region."""

from __future__ import annotations

import dataclasses

from rollwright.method import Method
from rollwright.methods.grpo import grpo
from rollwright.stages.credit.fixed_baseline import FixedBaseline
from rollwright.stages.objective.two_sided_mask import TwoSidedMask


def sao(baseline: float = 0.5, low: float = 0.2, high: float = 0.2, reduce: str = "token_mean") -> Method:
    """Train on single rollouts: no group, so no rollout waits for its siblings.

    J = E[r·A where 1−low ≤ r ≤ 1+high], r = π_new / π_behaviour, A = R − baseline

    How far rollouts run ahead of the updates is a setting of the run, ``num_ahead``. The paper's baseline is
    a learned value model; here it is a constant, which is unbiased too and varies more.

    Args:
        baseline: what a rollout's reward is compared with.
        low, high: how far the ratio may fall and rise before a token is left out.
        reduce: ``"token_mean"`` or ``"sequence_mean"``.

    Raises:
        UnknownName: no such reduce.
        ConfigError: a number outside its range.

    Source: SAO (2026), abstract. What differs: docs/methods/sao.md.
    """
    return dataclasses.replace(
        grpo(each=1, reduce=reduce),
        name="sao",
        credit=(FixedBaseline(baseline),),
        objective=TwoSidedMask(low, high),
    )
