"""The clipped surrogate of PPO, with the variants that GRPO-like methods use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rollwright.errors import ConfigError
from rollwright.stages.objective._ratio import KL_KINDS, check_region, kl_estimate, log_ratio, must_have

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class PPOClip:
    """Maximise the advantage-weighted ratio, without reward for leaving the trust region.

    loss = −min(r·A, clip(r, 1−clip_low, 1+clip_high)·A) + kl·KL(new ‖ ref), r = exp(logp_new − logp_old)

    On-policy (r = 1) its gradient is REINFORCE's, −A·∇logp_new. With ``dual_clip`` = c, the loss of a
    token with A < 0 is at most −c·A.

    Args:
        clip_low: how far the ratio may fall, in (0, 1].
        clip_high: how far the ratio may rise, > 0 (DAPO: 0.28).
        kl: weight of the KL term, ≥ 0; 0 needs no reference.
        kl_kind: k1, k2 or k3; see `kl_estimate`.
        dual_clip: c > 1 + clip_high, or None.

    Source: Schulman et al. 2017 (1707.06347); asymmetric clip: DAPO (2503.14476); dual clip: Ye et al.
    2019 (1912.09729), the same function as ``delta`` in INTELLECT-2. The log ratio is held to ±20.
    """

    clip_low: float = 0.2
    clip_high: float = 0.2
    kl: float = 0.0
    kl_kind: str = "k3"
    dual_clip: float | None = None

    def __post_init__(self) -> None:
        check_region("PPOClip", clip_low=self.clip_low, clip_high=self.clip_high)
        if not self.kl >= 0:
            raise ConfigError(f"PPOClip: kl={self.kl} was given, expected 0 (off) or more")
        if self.kl_kind not in KL_KINDS:
            raise ConfigError(f"PPOClip: kl_kind={self.kl_kind!r} was given, expected one of {KL_KINDS}")
        if self.dual_clip is not None and not self.dual_clip > 1 + self.clip_high:
            raise ConfigError(
                f"PPOClip: dual_clip={self.dual_clip} was given, expected more than 1 + clip_high ="
                f" {1 + self.clip_high}; below that it would cut the trust region itself"
            )

    @property
    def reads(self) -> frozenset[str]:
        return frozenset({"logp_ref"}) if self.kl > 0 else frozenset()

    @property
    def is_zero_at_zero_adv(self) -> bool:
        return self.kl == 0

    def __call__(
        self,
        logp_new_T: Tensor,
        logp_old_T: Tensor,
        adv_T: Tensor,
        is_sampled_T: Tensor,
        logp_ref_T: Tensor | None = None,
        segment_T: Tensor | None = None,
    ) -> Tensor:
        """Return the loss of each token, [T]; see `Objective`."""
        adv_T = adv_T.where(is_sampled_T, adv_T.new_zeros(()))
        ratio_T = log_ratio(logp_new_T, logp_old_T, is_sampled_T).exp()
        loss_T = clipped_loss(ratio_T, adv_T, self.clip_low, self.clip_high)
        if self.dual_clip is not None:
            loss_T = loss_T.minimum(-self.dual_clip * adv_T).where(adv_T < 0, loss_T)
        if self.kl > 0:
            ref_T = must_have("PPOClip with kl", "logp_ref", logp_ref_T)
            loss_T = loss_T + self.kl * kl_estimate(self.kl_kind, logp_new_T, ref_T, is_sampled_T)
        return loss_T

    def diagnose(
        self,
        logp_new_T: Tensor,
        logp_old_T: Tensor,
        adv_T: Tensor,
        is_sampled_T: Tensor,
        logp_ref_T: Tensor | None = None,
        segment_T: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Return ``clip_fraction``: the clip took away the token's gradient; and ``kl_ref``, if any."""
        ratio_T = log_ratio(logp_new_T.detach(), logp_old_T, is_sampled_T).exp()
        found = {"clip_fraction": is_clipped(ratio_T, adv_T, self.clip_low, self.clip_high)}
        if self.dual_clip is not None:
            found["dual_clip_fraction"] = (ratio_T > self.dual_clip) & (adv_T < 0)
        if logp_ref_T is not None:
            found["kl_ref"] = kl_estimate("k3", logp_new_T.detach(), logp_ref_T, is_sampled_T)
        return found


def clipped_loss(ratio_T: Tensor, adv_T: Tensor, clip_low: float, clip_high: float) -> Tensor:
    """Return −min(r·A, clip(r, 1−clip_low, 1+clip_high)·A), [T]."""
    return -(ratio_T * adv_T).minimum(ratio_T.clamp(1 - clip_low, 1 + clip_high) * adv_T)


def is_clipped(ratio_T: Tensor, adv_T: Tensor, clip_low: float, clip_high: float) -> Tensor:
    """Return where the clip binds: the ratio left the region in the direction of the advantage."""
    return ((ratio_T > 1 + clip_high) & (adv_T > 0)) | ((ratio_T < 1 - clip_low) & (adv_T < 0))
