"""Selected logprobs: closed form, the plain formula and its gradient, and the chunked path."""

from __future__ import annotations

import math

import pytest
import torch

from rollwright.learn import logprobs
from rollwright.learn.logprobs import SelectedLogp, selected_logp


class LinearHead:
    """A head with its own weight."""

    def __init__(self, num_words: int, width: int) -> None:
        rng = torch.Generator().manual_seed(0)
        self.weight = torch.randn(num_words, width, generator=rng, dtype=torch.float64, requires_grad=True)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden @ self.weight.T


def plain(head, hidden, target, temperature):
    """log_softmax and gather, as one would write it first."""
    logits = head.logits(hidden) / (1.0 if temperature is None else temperature[:, None])
    logp = torch.log_softmax(logits, -1)
    return logp.gather(1, target[:, None])[:, 0], -(logp.exp() * logp).sum(-1)


def test_case_l01_closed_form():
    """Case L01. Oracle: the case's figures. Mutant: divide the logprob by the temperature."""
    logits, target = torch.tensor([[1.0, 0.0]]), torch.tensor([0])
    logp, entropy = SelectedLogp.apply(logits, target, torch.tensor([0.5]))
    assert logp.item() == pytest.approx(-0.126928, abs=1e-6)
    p = math.exp(-0.126928)
    assert entropy.item() == pytest.approx(-p * math.log(p) - (1 - p) * math.log(1 - p), abs=1e-5)
    assert SelectedLogp.apply(logits, target, None)[0].item() == pytest.approx(-0.313262, abs=1e-6)


@pytest.mark.parametrize("max_logits", [1 << 20, 7 * 4])
@pytest.mark.parametrize("with_temperature", [True, False])
def test_value_and_gradient(max_logits, with_temperature, monkeypatch):
    """Oracle: the plain formula, in one piece and in chunks of 4 tokens. Mutant: forget 1/temperature in
    the backward pass, or the last chunk."""
    monkeypatch.setattr(logprobs, "MAX_LOGITS", max_logits)
    rng = torch.Generator().manual_seed(1)
    head = LinearHead(7, 5)
    hidden = torch.randn(10, 5, generator=rng, dtype=torch.float64, requires_grad=True)
    target = torch.randint(0, 7, (10,), generator=rng)
    temperature = torch.rand(10, generator=rng, dtype=torch.float64) + 0.5 if with_temperature else None
    factor = torch.randn(10, generator=rng, dtype=torch.float64)
    logp, entropy = selected_logp(head, hidden, target, temperature, 7)
    want_logp, want_entropy = plain(head, hidden, target, temperature)
    assert torch.allclose(logp, want_logp) and torch.allclose(entropy, want_entropy)
    got = torch.autograd.grad((logp * factor).sum(), (hidden, head.weight))
    want = torch.autograd.grad((want_logp * factor).sum(), (hidden, head.weight))
    assert all(torch.allclose(a, b) for a, b in zip(got, want, strict=True))


def test_impossible_tokens_do_not_spoil_the_entropy():
    """Oracle: a logit of −inf is a probability of 0: entropy log 2 over the other two."""
    _, entropy = SelectedLogp.apply(torch.tensor([[0.0, 0.0, -math.inf]]), torch.tensor([0]), None)
    assert entropy.item() == pytest.approx(math.log(2), abs=1e-6)
