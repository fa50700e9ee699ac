"""Implicit process rewards: two models' logprobs of the sampled tokens are a reward for each of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rollwright.errors import GraderError

if TYPE_CHECKING:
    from torch import Tensor

BETA = 0.05  # PRIME's

Array = NDArray[np.float64]


def implicit_rewards(
    logp_T: ArrayLike, logp_ref_T: ArrayLike, is_sampled_T: ArrayLike | None = None, beta: float = BETA
) -> Array:
    """Return each token's implicit process reward.

    r_t = β · (log π_φ(y_t | y_<t) − log π_ref(y_t | y_<t)) where sampled, else 0

    Their sum is the outcome reward that π_φ was trained to have; up to token t it is Q_t − Q_0 with
    Q_t = β log E_ref[exp(r(y)/β) | y_≤t], the value of the prefix.

    Args:
        logp_T: the reward model's logprobs of the response's tokens, nats, [T].
        logp_ref_T: the reference model's, at the same temperature, [T].
        is_sampled_T: True where the policy sampled; None is everywhere. Elsewhere logprobs may be NaN.
        beta: β > 0, reward per nat.

    Raises:
        GraderError: lengths differ, or a sampled token has a logprob that is no finite number ≤ 0.

    Source: PRIME (2502.01456); the identity is from "Free process rewards" (2412.01981).
    """
    logp_T, logp_ref_T = np.asarray(logp_T, np.float64), np.asarray(logp_ref_T, np.float64)
    is_sampled = np.ones(len(logp_T), bool) if is_sampled_T is None else np.asarray(is_sampled_T, bool)
    if not logp_T.shape == logp_ref_T.shape == is_sampled.shape or logp_T.ndim != 1 or not beta > 0:
        raise GraderError(
            f"implicit rewards of {logp_T.shape} and {logp_ref_T.shape} logprobs, mask {is_sampled.shape},"
            f" beta = {beta}; expected three lists of one length and beta > 0"
        )
    for name, values in (("the reward model", logp_T), ("the reference", logp_ref_T)):
        bad = is_sampled & ~(np.isfinite(values) & (values <= 1e-6))
        if bad.any():
            place = int(np.flatnonzero(bad)[0])
            raise GraderError(
                f"{name} gives token {place} the logprob {values[place]}; expected a finite number ≤ 0: an"
                " impossible token has no reward (was it sampled under another vocabulary?)"
            )
    return np.where(is_sampled, beta * (np.where(is_sampled, logp_T - logp_ref_T, 0.0)), 0.0)


def step_rewards(rewards_T: ArrayLike, ends: Sequence[int]) -> list[float]:
    """Return the reward of each step: the sum over its tokens.

    Args:
        rewards_T: [T].
        ends: where each step ends (the index after its last token), rising; the last is T.

    Raises:
        GraderError: the ends do not rise from above 0 to T.
    """
    rewards = np.asarray(rewards_T, np.float64)
    starts = [0, *ends[:-1]]
    if not ends or ends[-1] != len(rewards) or any(e <= s for s, e in zip(starts, ends, strict=True)):
        raise GraderError(
            f"steps that end at {list(ends)} in {len(rewards)} tokens; expected rising ends up to T"
        )
    return [math.fsum(rewards[start:end]) for start, end in zip(starts, ends, strict=True)]


def outcome_loss(
    logp_T: Tensor, logp_ref_T: Tensor, is_sampled_T: Tensor, label: float, beta: float = BETA
) -> Tensor:
    """Return the loss that trains the reward model from one response's outcome alone.

    L = −ℓ · log σ(Σ_t r_t) − (1 − ℓ) · log σ(−Σ_t r_t)

    Args:
        logp_T: the reward model's logprobs, with gradient, [T].
        logp_ref_T, is_sampled_T: as for `implicit_rewards`.
        label: ℓ, whether the verifier found the response right, in [0, 1].

    Source: PRIME (2502.01456), its cross-entropy.
    """
    import torch  # only for training a reward model

    difference = torch.where(is_sampled_T, logp_T - logp_ref_T, torch.zeros_like(logp_T))
    score = beta * difference.sum()
    softplus: Any = torch.nn.functional.softplus
    loss: Tensor = label * softplus(-score) + (1 - label) * softplus(score)
    return loss


def prime_advantages(
    process: Sequence[ArrayLike], outcomes: Sequence[float | None], gamma: float = 1.0
) -> list[Array]:
    """Return the advantages of a group's tokens from process rewards and outcomes, leave-one-out each.

    A_t^i = Σ_{s≥t} γ^(s−t) · (r_s^i − mean_{j≠i} r̄^j) + (o^i − mean_{j≠i} o^j),  r̄^j = mean_t r_t^j

    Args:
        process: the implicit rewards of each response, G lists of [T_i], T_i ≥ 1, sampled tokens only.
        outcomes: the verifier's reward of each, [G]; None is not scored.
        gamma: discount of later process rewards, in [0, 1].

    Returns:
        G arrays of [T_i]. An unscored response has zeros and is in no baseline; a group with fewer than two
        scored ones has zeros.

    Source: PRIME (2502.01456). Its code also adds (r_t − r̄) / (K − 1) by the way it scales; and
    whitens the advantages over the batch, which is left to other stages here.
    """
    rewards = [np.asarray(one, np.float64) for one in process]
    scored = [i for i, outcome in enumerate(outcomes) if outcome is not None]
    advantages = [np.zeros(len(one)) for one in rewards]
    if len(scored) < 2:
        return advantages
    for i in scored:
        others = [j for j in scored if j != i]
        base = math.fsum(rewards[j].mean() for j in others) / len(others)
        outcome = float(outcomes[i] or 0.0) - math.fsum(float(outcomes[j] or 0.0) for j in others) / len(
            others
        )
        value = 0.0
        for t in reversed(range(len(rewards[i]))):
            value = rewards[i][t] - base + gamma * value
            advantages[i][t] = value + outcome
    return advantages
