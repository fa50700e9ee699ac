"""Group sequence policy optimisation: one importance ratio per trajectory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rollwright.stages.objective._ratio import check_region, log_ratio, must_have
from rollwright.stages.objective.ppo_clip import clipped_loss, is_clipped

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class GSPO:
    """Clip the length-normalised ratio of whole trajectories.

    s = exp(mean over the sampled tokens of (logp_new − logp_old));
    loss = −min(s·A, clip(s, 1−clip_low, 1+clip_high)·A) for every token of the trajectory.

    Each token's loss has the value of s·A and the gradient s·A·∇logp_new, so that a sum over tokens
    divided by the length (`SequenceMean`) is the paper's gradient, also for advantages per token.

    Args:
        clip_low: how far s may fall, in (0, 1].
        clip_high: how far s may rise, > 0.

    Source: Zheng et al. 2025 (2507.18071), the token form of its section 4.3.
    """

    clip_low: float = 3e-4
    clip_high: float = 4e-4

    def __post_init__(self) -> None:
        check_region("GSPO", clip_low=self.clip_low, clip_high=self.clip_high)

    @property
    def reads(self) -> frozenset[str]:
        return frozenset({"segments"})

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
    ) -> Tensor:
        """Return the loss of each token, [T]; see `Objective`."""
        zero = logp_new_T.new_zeros(())
        adv_T = adv_T.where(is_sampled_T, zero)
        log_s_T = self._log_s(logp_new_T, logp_old_T, is_sampled_T, segment_T)
        through_T = (logp_new_T - logp_new_T.detach()).where(is_sampled_T, zero)
        return clipped_loss((log_s_T + through_T).exp(), adv_T, self.clip_low, self.clip_high)

    def diagnose(
        self,
        logp_new_T: Tensor,
        logp_old_T: Tensor,
        adv_T: Tensor,
        is_sampled_T: Tensor,
        logp_ref_T: Tensor | None = None,
        segment_T: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Return ``clip_fraction``: the clip took away the gradient of the token's trajectory."""
        ratio_T = self._log_s(logp_new_T, logp_old_T, is_sampled_T, segment_T).exp()
        return {"clip_fraction": is_clipped(ratio_T, adv_T, self.clip_low, self.clip_high)}

    def _log_s(
        self, logp_new_T: Tensor, logp_old_T: Tensor, is_sampled_T: Tensor, segment_T: Tensor | None
    ) -> Tensor:
        """Return log s of each token's trajectory, [T], without gradient."""
        segment_T = must_have("GSPO", "segments", segment_T)
        ratio_T = log_ratio(logp_new_T.detach(), logp_old_T, is_sampled_T)
        num_segments = int(segment_T.max()) + 1 if segment_T.numel() else 0
        sum_S = ratio_T.new_zeros(num_segments).index_add(0, segment_T, ratio_T)
        count_S = ratio_T.new_zeros(num_segments).index_add(0, segment_T, is_sampled_T.to(ratio_T.dtype))
        return (sum_S / count_S.clamp(min=1))[segment_T]
