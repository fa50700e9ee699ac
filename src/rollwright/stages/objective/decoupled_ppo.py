"""Decoupled PPO: the trust region around recent weights, the correction for those that sampled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rollwright.errors import ConfigError
from rollwright.stages.objective._ratio import check_region, log_ratio
from rollwright.stages.objective.ppo_clip import clipped_loss, is_clipped

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class DecoupledPPO:
    """Clip the ratio to a proximal policy, and weigh each token by how likely that policy makes it.

    loss = −w·min(u·A, clip(u, 1−clip_low, 1+clip_high)·A), u = π_new / π_prox, w = π_prox / π_old

    π_old sampled the token, perhaps several versions ago; π_prox is the policy before the batch's first
    update. Plain PPO clips π_new / π_old: for old tokens the region then lies around a policy that is gone,
    and pulls back towards it. With π_prox = π_old it is `PPOClip`.

    Args:
        clip_low: how far u may fall, in (0, 1].
        clip_high: how far u may rise, > 0.
        weight_cap: tokens with w above it count with no gradient, > 1; None keeps all.
        truncate: tokens with w above the cap count with the cap instead: min(w, cap).

    Edge cases: in a batch of one update π_prox is π_new before it, so u = 1 and nothing is clipped: the
    gradient is REINFORCE's with the importance weight w. Log ratios are held to ±20.
    Source: Hilton et al. 2021 (2110.00641); for mixed versions and with the cap: AReaL (2505.24298).
    """

    clip_low: float = 0.2
    clip_high: float = 0.2
    weight_cap: float | None = None
    truncate: bool = False

    def __post_init__(self) -> None:
        check_region("DecoupledPPO", clip_low=self.clip_low, clip_high=self.clip_high)
        if self.weight_cap is not None and not self.weight_cap > 1:
            raise ConfigError(
                f"DecoupledPPO: weight_cap={self.weight_cap} was given, expected more than 1, the weight of a"
                " token that the current weights sampled, or None"
            )

    @property
    def reads(self) -> frozenset[str]:
        return frozenset({"logp_prox"})

    @property
    def is_zero_at_zero_adv(self) -> bool:
        return True

    def __call__(
        self,
        logp_new_T: Tensor,
        logp_old_T: Tensor,
        adv_T: Tensor,
        is_sampled_T: Tensor,
        logp_ref_T: Tensor | None = None,
        segment_T: Tensor | None = None,
        logp_prox_T: Tensor | None = None,
    ) -> Tensor:
        """Return the loss of each token, [T]; see `Objective`.

        Args:
            logp_prox_T: logprob under the policy before the batch's first update, [T]; None is logp_new
                itself, which it is in the first update.
        """
        adv_T = adv_T.where(is_sampled_T, adv_T.new_zeros(()))
        prox_T = logp_new_T.detach() if logp_prox_T is None else logp_prox_T
        ratio_T = log_ratio(logp_new_T, prox_T, is_sampled_T).exp()
        weight_T = self._weight(prox_T, logp_old_T, is_sampled_T)
        return weight_T * clipped_loss(ratio_T, adv_T, self.clip_low, self.clip_high)

    def diagnose(
        self,
        logp_new_T: Tensor,
        logp_old_T: Tensor,
        adv_T: Tensor,
        is_sampled_T: Tensor,
        logp_ref_T: Tensor | None = None,
        segment_T: Tensor | None = None,
        logp_prox_T: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Return ``clip_fraction`` (of u), ``weight`` (w as it counts) and ``capped_fraction``."""
        prox_T = logp_new_T.detach() if logp_prox_T is None else logp_prox_T
        ratio_T = log_ratio(logp_new_T.detach(), prox_T, is_sampled_T).exp()
        moves_T = (adv_T != 0) & is_sampled_T
        weight_T = self._weight(prox_T, logp_old_T, is_sampled_T)
        whole_T = log_ratio(prox_T, logp_old_T, is_sampled_T).exp()
        return {
            "clip_fraction": is_clipped(ratio_T, adv_T, self.clip_low, self.clip_high),
            "weight": weight_T.where(moves_T, weight_T.new_zeros(())),
            "capped_fraction": (whole_T > (self.weight_cap or float("inf"))) & moves_T,
        }

    def _weight(self, prox_T: Tensor, logp_old_T: Tensor, is_sampled_T: Tensor) -> Tensor:
        weight_T = log_ratio(prox_T, logp_old_T, is_sampled_T).exp()
        if self.weight_cap is None:
            return weight_T
        if self.truncate:
            return weight_T.clamp(max=self.weight_cap)
        return weight_T.where(weight_T <= self.weight_cap, weight_T.new_zeros(()))
