"""What several objectives share: safe importance ratios and estimates of the KL divergence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rollwright.errors import ConfigError, LearnerError

if TYPE_CHECKING:
    from torch import Tensor

MAX_LOG_RATIO = 20.0  # exp(20) = 4.9e8; beyond it the ratio is held, so that losses stay finite
KL_KINDS = ("k1", "k2", "k3")


def log_ratio(logp_new_T: Tensor, logp_old_T: Tensor, is_sampled_T: Tensor) -> Tensor:
    """Return logp_new − logp_old, held to ±20, and exactly 0 where not sampled (NaN is no matter)."""
    difference_T = (logp_new_T - logp_old_T).where(is_sampled_T, logp_new_T.new_zeros(()))
    return difference_T.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)


def kl_estimate(kind: str, logp_new_T: Tensor, logp_ref_T: Tensor, is_sampled_T: Tensor) -> Tensor:
    """Return an estimate per token of KL(new ‖ ref), from tokens that the policy sampled.

    With d = logp_ref − logp_new: k1 = −d, k2 = d²/2, k3 = exp(d) − d − 1 (Schulman, 2020).
    All three have the KL as their mean (k2 to second order); as a loss, only k2 has its gradient.
    """
    d_T = -log_ratio(logp_new_T, logp_ref_T, is_sampled_T)
    if kind == "k1":
        return -d_T
    if kind == "k2":
        return 0.5 * d_T.square()
    return d_T.expm1() - d_T


def check_positive(owner: str, **name_to_value: float | None) -> None:
    """Raise ConfigError for a setting that must be greater than zero (None is off)."""
    for name, value in name_to_value.items():
        if value is not None and not value > 0:
            raise ConfigError(f"{owner}: {name}={value} was given, expected a number greater than 0")


def check_region(owner: str, **name_to_end: float) -> None:
    """Raise ConfigError for the two ends of a trust region: how far a ratio may fall (≤ 1) and rise, > 0."""
    check_positive(owner, **name_to_end)
    low = next(iter(name_to_end))
    if name_to_end[low] > 1:
        raise ConfigError(f"{owner}: {low}={name_to_end[low]} was given, expected at most 1")


def must_have(owner: str, name: str, value: Tensor | None) -> Tensor:
    """Return ``value``, or raise LearnerError if the caller left it out."""
    if value is None:
        raise LearnerError(f"{owner} reads {name}, but the learner did not give it")
    return value
