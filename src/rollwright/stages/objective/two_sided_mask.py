"""A strict trust region: tokens whose ratio left it on either side have no gradient at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rollwright.stages.objective._ratio import check_region, log_ratio

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class TwoSidedMask:
    """Weigh each token by its importance ratio inside [1−low, 1+high]; outside it counts as nothing.

    loss = −r·A where 1−low ≤ r ≤ 1+high, else 0; r = exp(logp_new − logp_old)

    PPO's clip leaves the gradient of tokens that move back into the region (r too large with A < 0, r too
    small with A > 0), and with it the large ratios of old tokens. Here the sign of A is no matter. On-policy
    (r = 1) it is REINFORCE.

    Args:
        low: how far the ratio may fall, in (0, 1].
        high: how far the ratio may rise, > 0.

    Edge cases: the ends of the region belong to it. Masked tokens stay in the denominator.
    Source: SAO (2026), abstract; the ends and the defaults are our reading.
    """

    low: float = 0.2
    high: float = 0.2

    def __post_init__(self) -> None:
        check_region("TwoSidedMask", low=self.low, high=self.high)

    @property
    def reads(self) -> frozenset[str]:
        return frozenset()

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
        ratio_T = log_ratio(logp_new_T, logp_old_T, is_sampled_T).exp()
        return (-ratio_T * adv_T.where(is_sampled_T, zero)).where(self._is_inside(ratio_T), zero)

    def diagnose(
        self,
        logp_new_T: Tensor,
        logp_old_T: Tensor,
        adv_T: Tensor,
        is_sampled_T: Tensor,
        logp_ref_T: Tensor | None = None,
        segment_T: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Return ``masked_fraction``: the token would have moved something, and lies outside."""
        ratio_T = log_ratio(logp_new_T.detach(), logp_old_T, is_sampled_T).exp()
        return {"masked_fraction": ~self._is_inside(ratio_T) & (adv_T != 0) & is_sampled_T}

    def _is_inside(self, ratio_T: Tensor) -> Tensor:
        return (ratio_T >= 1 - self.low) & (ratio_T <= 1 + self.high)
