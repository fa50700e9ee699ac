"""From logits to tokens, logprobs, entropies and kept masses, for many sequences at once.

What is recorded:
- logprob: of the distribution that the token was drawn from: after temperature, over the kept set;
- kept mass: the kept set's share of the distribution after temperature, before the cut;
- entropy: in nats, of the distribution that the token was drawn from;
- top: the most likely tokens after temperature, before any cut, with their logprobs there.
Temperature 0 takes the most likely token and ignores cuts; its logprob and entropy are those of
temperature 1. A forced token is recorded over the full vocabulary after temperature, with kept mass 1.
Cuts apply in the order top-k, top-p (on what top-k kept, renormalised), min-p.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rollwright.engine.noise import race

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Controls:
    """How each row is sampled, [B] each. ``forced`` is a token id or -1."""

    temperature: Floats
    top_p: Floats
    top_k: Ints
    min_p: Floats
    forced: Ints


@dataclass(frozen=True, slots=True)
class Draw:
    """One token of each row, [B] each; ``top_ids`` and ``top_logps`` are [B, n] or None."""

    tokens: Ints
    logps: Floats
    entropies: Floats
    kept_masses: Floats
    top_ids: Ints | None
    top_logps: Floats | None


def draw(logits_BV: Tensor, controls: Controls | None, words: NDArray[np.uint32], num_top: int = 0) -> Draw:
    """Sample one token of each row.

    token = argmin(E / p) over the kept set = argmax(logits / temperature + gumbel)

    Args:
        logits_BV: float32.
        controls: how; None is temperature 1 without cuts for all.
        words: the noise's seeds, from `rollwright.engine.noise.step_words`.
        num_top: how many of the most likely tokens to report.
    """
    if controls is not None:
        logits_BV = _cool(logits_BV, controls.temperature)
    logp_BV = torch.log_softmax(logits_BV, -1)
    p_BV = logp_BV.exp()
    entropy_B = (p_BV * logp_BV).sum(-1).neg_()
    mass_B = None if controls is None else _cut(p_BV, logp_BV, entropy_B, controls)
    tokens = race(words, p_BV)
    if controls is not None:
        tokens = _override(tokens, logp_BV, controls)
    at_B1 = torch.from_numpy(tokens).to(logp_BV.device)[:, None]
    logp_B = logp_BV.gather(1, at_B1)[:, 0]
    if mass_B is not None:
        logp_B -= mass_B.log()
    top = torch.topk(logp_BV, min(num_top, logp_BV.shape[1]), -1) if num_top else None
    return Draw(
        tokens=tokens,
        logps=_numpy(logp_B),
        entropies=_numpy(entropy_B),
        kept_masses=np.ones(len(tokens), np.float32) if mass_B is None else _numpy(mass_B),
        top_ids=None if top is None else top.indices.cpu().numpy(),
        top_logps=None if top is None else _numpy(top.values),
    )


def _cool(logits_BV: Tensor, temperature: Floats) -> Tensor:
    """Divide by the temperature; greedy rows stay as they are."""
    divisor = np.where(temperature == 0, np.float32(1), temperature)
    return logits_BV if (divisor == 1).all() else logits_BV / _to(divisor, logits_BV)[:, None]


def _override(tokens: Ints, logp_BV: Tensor, controls: Controls) -> Ints:
    """Put the most likely token of greedy rows and the forced ones in place."""
    is_greedy, is_forced = controls.temperature == 0, controls.forced >= 0
    if is_greedy.any():
        tokens = np.where(is_greedy, logp_BV.argmax(-1).cpu().numpy(), tokens)
    return np.where(is_forced, controls.forced, tokens)


def _cut(p_BV: Tensor, logp_BV: Tensor, entropy_B: Tensor, controls: Controls) -> Tensor | None:
    """Zero what rows with a cut do not keep and set their entropy, in place; return all kept masses.

    H over the kept set K of mass m: −Σ_K p·ln p / m + ln m.
    """
    cuts = (controls.top_p < 1) | (controls.top_k > 0) | (controls.min_p > 0)
    rows = np.flatnonzero(cuts & (controls.temperature > 0) & (controls.forced < 0))
    if not rows.size:
        return None
    at = torch.from_numpy(rows).to(p_BV.device)
    p_CV = p_BV[at]
    keep_CV = _keep(
        p_CV,
        _to(controls.top_p[rows], p_BV)[:, None],
        torch.from_numpy(controls.top_k[rows]).to(p_BV.device)[:, None],
        _to(controls.min_p[rows], p_BV)[:, None],
        needs_order=bool(((controls.top_p[rows] < 1) | (controls.top_k[rows] > 0)).any()),
    )
    kept_CV = torch.where(keep_CV, p_CV, 0.0)
    mass_C = kept_CV.sum(-1)
    p_BV[at] = kept_CV
    entropy_B[at] = mass_C.log() - (kept_CV * logp_BV[at]).sum(-1) / mass_C
    mass_B = torch.ones_like(entropy_B)
    mass_B[at] = mass_C
    return mass_B


def _keep(p_CV: Tensor, top_p: Tensor, top_k: Tensor, min_p: Tensor, needs_order: bool) -> Tensor:
    """Return which tokens stay, [C, V]; the most likely always does, equal ones by lower id."""
    keep_CV = p_CV >= min_p * p_CV.amax(-1, keepdim=True)
    if not needs_order:
        return keep_CV
    ordered, index = torch.sort(p_CV, dim=-1, descending=True, stable=True)
    rank = torch.arange(p_CV.shape[1], device=p_CV.device)
    stays = (rank < top_k) | (top_k == 0)
    share = torch.where(stays, ordered, 0.0)
    share /= share.sum(-1, keepdim=True)
    before = share.cumsum(-1) - share
    stays &= (before < top_p) | (top_p >= 1)
    stays[:, 0] = True
    return keep_CV & torch.zeros_like(keep_CV).scatter_(1, index, stays)


def _to(values: Floats, like: Tensor) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values)).to(like.device)


def _numpy(values: Tensor) -> Floats:
    return np.asarray(values.cpu().numpy())
