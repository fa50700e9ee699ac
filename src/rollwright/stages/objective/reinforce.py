"""The plain policy gradient, with an optional importance weight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rollwright.stages.objective._ratio import check_positive, log_ratio

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Reinforce:
    """Raise the logprob of each token in proportion to its advantage.

    loss = −w·A·logp_new, with w = 1, or w = min(exp(logp_new − logp_old), ratio_cap) without gradient.

    Args:
        ratio_cap: upper end of the importance weight, > 0; None leaves the weight out, which is right
            only for tokens of the current version. ``inf`` is the whole weight.

    With a finite cap it is the truncated importance weight of IMPALA (1802.01561), and CISPO
    (2506.13585) with cap 1 + ε_high.
    """

    ratio_cap: float | None = None

    def __post_init__(self) -> None:
        check_positive("Reinforce", ratio_cap=self.ratio_cap)

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
        weight_T = adv_T.where(is_sampled_T, zero)
        if self.ratio_cap is not None:
            ratio_T = log_ratio(logp_new_T.detach(), logp_old_T, is_sampled_T).exp()
            weight_T = weight_T * ratio_T.clamp(max=self.ratio_cap)
        return -weight_T * logp_new_T.where(is_sampled_T, zero)

    def diagnose(
        self,
        logp_new_T: Tensor,
        logp_old_T: Tensor,
        adv_T: Tensor,
        is_sampled_T: Tensor,
        logp_ref_T: Tensor | None = None,
        segment_T: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Return ``clip_fraction``: the cap cut the token's weight."""
        if self.ratio_cap is None:
            return {}
        ratio_T = log_ratio(logp_new_T.detach(), logp_old_T, is_sampled_T).exp()
        return {"clip_fraction": (ratio_T > self.ratio_cap) & (adv_T != 0)}
