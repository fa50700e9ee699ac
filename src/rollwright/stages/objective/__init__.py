"""Objectives: a loss per token of any flat run of tokens.

An objective is elementwise over T (or over segments of T, if it says so), so the same value runs on one
trajectory, on a group and on packed micro-batches. It knows nothing of padding, devices or averages:
`rollwright.stages.reduce` says how much each token weighs. Objectives use tensor methods only and import
no torch when they run, so a method can be built, printed and simulated without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from torch import Tensor

READABLE = frozenset({"logp_ref", "logp_prox", "segments"})


@runtime_checkable
class Objective(Protocol):
    """A loss per token.

    Attributes:
        reads: what it reads beside the four main arrays: ``"logp_ref"`` (logprobs of a frozen
            reference), ``"segments"`` (which trajectory a token belongs to) and ``"logp_prox"`` (logprobs
            before the batch's first update, a keyword ``logp_prox_T`` of the objectives that read it). The
            learner gives all three.
        is_zero_at_zero_adv: the loss and its gradient are exactly zero wherever the advantage is zero
            (for an objective that reads segments: wherever the whole segment's is), so that the learner
            need not run the model there.
    """

    @property
    def reads(self) -> frozenset[str]: ...

    @property
    def is_zero_at_zero_adv(self) -> bool: ...

    def __call__(
        self,
        logp_new_T: Tensor,
        logp_old_T: Tensor,
        adv_T: Tensor,
        is_sampled_T: Tensor,
        logp_ref_T: Tensor | None = None,
        segment_T: Tensor | None = None,
    ) -> Tensor:
        """Return the loss of each token, [T]; exactly zero, with no gradient, where not sampled.

        Args:
            logp_new_T: logprob of the token under the weights being trained, nats, [T], with gradient.
            logp_old_T: logprob under the policy that sampled it, [T]; anything where not sampled.
            adv_T: advantage, [T].
            is_sampled_T: whether the token may be trained, bool, [T].
            logp_ref_T: logprob under the reference, [T]; needed if ``"logp_ref"`` is read.
            segment_T: number of the token's trajectory, from 0, int64, [T]; needed if read.
        """
        ...

    def diagnose(
        self,
        logp_new_T: Tensor,
        logp_old_T: Tensor,
        adv_T: Tensor,
        is_sampled_T: Tensor,
        logp_ref_T: Tensor | None = None,
        segment_T: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Return values per token, [T] each and without gradient, whose mean over trained tokens is a
        metric; zero where not sampled or where the advantage is zero, unless named ``kl_ref``."""
        ...
