"""FlexMARL's setting: several policies that speak by turns and learn in one run."""

from __future__ import annotations

import dataclasses

from rollwright.method import Method
from rollwright.methods.grpo import grpo
from rollwright.stages.generate.take_turns import TakeTurns


def flexmarl(
    each: int = 8,
    policies: str = "policy,partner",
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    reduce: str = "token_mean",
) -> Method:
    """Let several policies sample the turns of a dialogue in rotation, and train each on its own turns.

    J_p = GRPO's over the steps that policy p sampled; all policies share the rollout's reward

    All start from the same checkpoint and move at once: version v of the run is version v of each.

    Args:
        each: rollouts per prompt, ≥ 1.
        policies: their names, with commas between, in the order in which they speak.
        clip_low, clip_high, reduce: as in `grpo`.

    Raises:
        ConfigError: a number outside its range, or no name.

    Source: FlexMARL (2026), abstract. What differs: docs/methods/flexmarl.md.
    """
    names = tuple(name.strip() for name in policies.split(",") if name.strip())
    return dataclasses.replace(
        grpo(each, clip_low, clip_high, reduce=reduce), name="flexmarl", generate=TakeTurns(names)
    )
