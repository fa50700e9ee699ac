"""Logprobs of the tokens that were sampled, with as little work over the vocabulary as it takes."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

# Entries of [tokens, vocabulary] held at once; above it, chunks are computed again in the backward pass.
MAX_LOGITS = 1 << 27


class Head(Protocol):
    """What turns hidden states into logits (`rollwright.engine.model.Decoder`)."""

    def logits(self, hidden: Tensor) -> Tensor: ...


class SelectedLogp(torch.autograd.Function):
    """logp_T = log softmax(logits_TV / temperature_T)[target_T], and the entropy of the softmax.

    The probabilities are kept in the place of the log-softmax, and become the gradient in place:
    d logp / d logits = (onehot − p) / temperature. The entropy, [T], has no gradient.
    """

    @staticmethod
    def forward(
        ctx: Any, logits_TV: Tensor, target_T: Tensor, temperature_T: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        logits_TV = logits_TV.to(torch.promote_types(logits_TV.dtype, torch.float32))
        if temperature_T is not None:
            logits_TV = logits_TV / temperature_T[:, None]
        logp_TV = torch.log_softmax(logits_TV, -1)
        logp_T = logp_TV.gather(1, target_T[:, None])[:, 0]
        p_TV = logp_TV.exp()
        # A token that cannot occur has logp -inf and p 0; it adds nothing to the entropy.
        entropy_T = -torch.linalg.vecdot(p_TV, logp_TV.clamp_(min=-1e4))
        ctx.p_TV, ctx.target_T, ctx.temperature_T = p_TV, target_T, temperature_T
        ctx.mark_non_differentiable(entropy_T)
        return logp_T, entropy_T

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        grad_T = grads[0]
        if ctx.temperature_T is not None:
            grad_T = grad_T / ctx.temperature_T
        grad_TV: Tensor = ctx.p_TV.mul_(-grad_T[:, None])
        ctx.p_TV = None
        grad_TV.scatter_add_(1, ctx.target_T[:, None], grad_T[:, None])
        return grad_TV, None, None


def selected_logp(
    head: Head, hidden_TD: Tensor, target_T: Tensor, temperature_T: Tensor | None, vocab_size: int
) -> tuple[Tensor, Tensor]:
    """Return the logprob of each target and the entropy of its distribution, nats, [T] each.

    Args:
        head: gives the logits.
        hidden_TD: hidden state of the token before the target, [T, D].
        target_T: token ids, [T].
        temperature_T: what the logits are divided by, > 0, [T]; None is 1.
        vocab_size: columns of the logits.
    """

    def piece(hidden: Tensor, target: Tensor, temperature: Tensor | None) -> tuple[Tensor, Tensor]:
        logp, entropy = SelectedLogp.apply(head.logits(hidden), target, temperature)
        return logp, entropy

    size = max(MAX_LOGITS // vocab_size, 1)
    if hidden_TD.shape[0] <= size:
        return piece(hidden_TD, target_T, temperature_T)
    found = []
    for start in range(0, hidden_TD.shape[0], size):
        part = slice(start, start + size)
        temperature = None if temperature_T is None else temperature_T[part]
        found.append(checkpoint(piece, hidden_TD[part], target_T[part], temperature, use_reentrant=False))
    return torch.cat([logp for logp, _ in found]), torch.cat([entropy for _, entropy in found])
