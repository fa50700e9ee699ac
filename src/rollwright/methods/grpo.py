"""GRPO: the mean reward of a prompt's own rollouts as the baseline, instead of a critic."""

from __future__ import annotations

from rollwright.errors import UnknownName
from rollwright.method import Method
from rollwright.stages.allocate.even import Even
from rollwright.stages.credit.group_norm import GroupNorm
from rollwright.stages.generate.independent import Independent
from rollwright.stages.objective.ppo_clip import PPOClip
from rollwright.stages.reduce.sequence_mean import SequenceMean
from rollwright.stages.reduce.token_mean import TokenMean
from rollwright.stages.replay.fresh import Fresh
from rollwright.stages.select.shuffled import Shuffled

REDUCES = {"sequence_mean": SequenceMean, "token_mean": TokenMean}


def grpo(
    each: int = 8,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    kl: float = 0.0,
    scale: bool = True,
    reduce: str = "sequence_mean",
) -> Method:
    """Sample ``each`` rollouts for every prompt and train on their group-relative advantages.

    J = 1/G Σᵢ 1/|oᵢ| Σₜ min(rᵢₜ·Aᵢ, clip(rᵢₜ, 1−ε, 1+ε)·Aᵢ) − kl·KL, Aᵢ = (Rᵢ − mean R) / std R

    Args:
        each: G, rollouts per prompt, ≥ 1.
        clip_low, clip_high: ε below and above 1.
        kl: weight of the KL term to the starting model, ≥ 0; 0 is off.
        scale: divide by the standard deviation; False is Dr. GRPO's credit.
        reduce: ``"sequence_mean"``, the paper's mean per rollout, or ``"token_mean"``, over all tokens of
            the step, as most later work has it.

    Raises:
        UnknownName: no such reduce.
        ConfigError: a number outside its range.

    Source: DeepSeekMath (2402.03300). What differs: docs/methods/grpo.md.
    """
    if reduce not in REDUCES:
        raise UnknownName("reduce", reduce, REDUCES)
    return Method(
        name="grpo",
        select=Shuffled(),
        allocate=Even(each),
        generate=Independent(),
        replay=Fresh(),
        objective=PPOClip(clip_low, clip_high, kl=kl),
        reduce=REDUCES[reduce](),
        credit=(GroupNorm(scale=scale),),
        declares=frozenset({"biased"}),
    )
