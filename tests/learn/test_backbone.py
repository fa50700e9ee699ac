"""The learner's own forward and backward passes against the decoder's plain ones."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rollwright.engine.model import Decoder, DecoderConfig, new_model
from rollwright.learn import attention
from rollwright.learn.backbone import FeedForward, Norm, NormLinear, hidden_packed

LLAMA = DecoderConfig("llama", 13, 24, 40, 2, num_heads=4, num_kv_heads=4, head_dim=6)
QWEN2 = dataclasses.replace(LLAMA, family="qwen2", num_kv_heads=2, qkv_bias=True)
QWEN3 = dataclasses.replace(LLAMA, family="qwen3", num_kv_heads=1, head_dim=8, qk_norm=True)
ODD = dataclasses.replace(LLAMA, num_kv_heads=2, qkv_bias=True, o_bias=True, tie_embeddings=False)


def rough_model(cfg: DecoderConfig) -> Decoder:
    """Return a model whose every parameter, norms and biases too, is away from its default."""
    model = new_model(cfg, 0).double()
    rng = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(6.0 if parameter.ndim == 2 else 1.0)
            parameter.add_(torch.randn(parameter.shape, generator=rng, dtype=torch.float64) * 0.2)
    return model


def value_and_gradients(model, forward, tokens, lengths):
    """Return hidden states and the gradient of a random projection of them."""
    model.zero_grad()
    hidden = forward(tokens, lengths)
    rng = torch.Generator().manual_seed(2)
    (hidden * torch.randn(hidden.shape, generator=rng, dtype=hidden.dtype)).sum().backward()
    return hidden.detach(), {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


def compare(model, lengths):
    tokens = torch.randint(
        0, model.cfg.vocab_size, (sum(lengths),), generator=torch.Generator().manual_seed(3)
    )
    want, want_grads = value_and_gradients(model, model.hidden_packed, tokens, lengths)
    got, grads = value_and_gradients(model, lambda t, n: hidden_packed(model, t, n), tokens, lengths)
    # The plain pass rotates in float32, also in a float64 model: 1e-6 is its error.
    assert (got - want).norm() < 1e-6 * want.norm()
    assert grads.keys() == want_grads.keys()
    for name, grad in grads.items():
        assert (grad - want_grads[name]).norm() < 1e-5 * want_grads[name].norm() + 1e-9, name


@pytest.mark.parametrize("cfg", [LLAMA, QWEN2, QWEN3, ODD], ids=lambda c: c.family)
@pytest.mark.parametrize("lengths", [[5, 5, 5], [1], [7, 1, 3, 7, 2], [70, 66, 130, 1]], ids=str)
def test_plain_decoder(cfg, lengths):
    """Oracle: `Decoder.hidden_packed` by autograd, all families, one block of queries and several.

    Mutants: a mask that is one off; gradients of padding; a norm weight that is forgotten in ∂W."""
    compare(rough_model(cfg), lengths)


@pytest.mark.parametrize("lengths", [[5, 5], [7, 1, 3]], ids=str)
def test_fused_kernel_for_long_sequences(lengths, monkeypatch):
    """Oracle: the same, with every sequence taken for a long one."""
    monkeypatch.setattr(attention, "MAX_DENSE", 0)
    compare(rough_model(QWEN2), lengths)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=9))
def test_packing_changes_nothing(lengths):
    """Law 6. Metamorphic: each sequence alone gives the same rows, in place and order."""
    model = rough_model(QWEN2)
    tokens = torch.randint(0, 13, (sum(lengths),), generator=torch.Generator().manual_seed(4))
    with torch.no_grad():
        together = hidden_packed(model, tokens, lengths)
        apart = [hidden_packed(model, part, [len(part)]) for part in tokens.split(lengths)]
    assert torch.allclose(together, torch.cat(apart), rtol=1e-10, atol=1e-12)


def shared_rows(heads, tails):
    """Lay heads once each, every tail behind one of them; return (lengths, rows, unshared order of rows).

    ``tails`` are (number of the head, tokens in the tail).
    """
    starts, end = [], 0
    for num in heads:
        starts.append(end)
        end += num
    lengths, rows = [], []
    for head, num in tails:
        rows += [*range(starts[head], starts[head] + heads[head]), *range(end, end + num)]
        lengths.append(heads[head] + num)
        end += num
    return lengths, torch.tensor(rows)


SHARED = [([3], [(0, 2), (0, 5), (0, 0)]), ([4, 1, 70], [(0, 3), (1, 66), (2, 1), (0, 7), (2, 70), (1, 1)])]


@pytest.mark.parametrize("cfg", [LLAMA, QWEN2, QWEN3, ODD], ids=lambda c: c.family)
@pytest.mark.parametrize(("heads", "tails"), SHARED, ids=["one", "several"])
@pytest.mark.parametrize("max_dense", [512, 0], ids=["dense", "fused"])
def test_shared_prompts(cfg, heads, tails, max_dense, monkeypatch):
    """Oracle: the plain decoder on every sequence whole, with the gradients of all copies added.

    Mutants: give a shared row the gradient of one sequence only; count its own output for each."""
    monkeypatch.setattr(attention, "MAX_DENSE", max_dense)
    model = rough_model(cfg)
    lengths, rows = shared_rows(heads, tails)
    tokens = torch.randint(0, 13, (int(rows.max()) + 1,), generator=torch.Generator().manual_seed(7))
    first = torch.stack([(rows == row).nonzero()[0, 0] for row in range(len(tokens))])

    def plain(t, n):
        return model.hidden_packed(t[rows], n)[first]  # one output for each row, whichever copy has it

    want, want_grads = value_and_gradients(model, plain, tokens, lengths)
    got, grads = value_and_gradients(model, lambda t, n: hidden_packed(model, t, n, rows), tokens, lengths)
    assert (got - want).norm() < 1e-6 * want.norm()
    for name, grad in grads.items():
        assert (grad - want_grads[name]).norm() < 1e-5 * want_grads[name].norm() + 1e-9, name


def test_pieces_by_finite_differences():
    """Oracle: torch's gradcheck in float64."""
    rng = torch.Generator().manual_seed(5)

    def some(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=rng, dtype=torch.float64, requires_grad=True)

    check = torch.autograd.gradcheck
    assert check(lambda x, n: Norm.apply(x, n, 1e-6), (some(3, 4), some(4)))
    assert check(
        lambda x, n, w, b: NormLinear.apply(x, n, w, b, 1e-6), (some(3, 4), some(4), some(5, 4), some(5))
    )
    assert check(
        lambda x, n, w, d: FeedForward.apply(x, n, w, d, 1e-6), (some(3, 4), some(4), some(6, 4), some(4, 3))
    )


@pytest.mark.parametrize("lengths", [[3, 3], [4, 1]], ids=str)
def test_attention_by_finite_differences(lengths):
    """Oracle: finite differences in float64, rotation included. Mutant: rotate back by the same angle."""
    cfg = dataclasses.replace(QWEN2, head_dim=4)
    layout = attention.layout_of(Decoder(cfg).rope(4).to(torch.complex128), lengths)
    rng = torch.Generator().manual_seed(6)
    qkv = torch.randn(sum(lengths), 4 * 8, generator=rng, dtype=torch.float64, requires_grad=True)
    factor = torch.randn(sum(lengths), 4 * 4, generator=rng, dtype=torch.float64)

    def value(x: torch.Tensor) -> torch.Tensor:
        return (attention.PackedAttention.apply(x.clone(), cfg, layout) * factor).sum()

    gradient = torch.autograd.grad(value(qkv), qkv)[0]
    with torch.no_grad():
        for row, column in [(0, 0), (1, 5), (2, 17), (2, 30), (3, 9), (4, 22)]:
            if row < len(qkv):
                step = torch.zeros_like(qkv)
                step[row, column] = 1e-6
                slope = (value(qkv + step) - value(qkv - step)).item() / 2e-6
                assert gradient[row, column].item() == pytest.approx(slope, abs=1e-8)
