"""The race of the engine's noise at its edges: a token that is cut never wins."""

import numpy as np
import torch

from rollwright import rng
from rollwright.engine import noise


def test_the_largest_word_of_the_only_kept_token_still_wins(monkeypatch):
    """Closed form: one token has mass, its word is the largest: E is finite, every other E / 0 is not."""
    words = np.full((1, 5), 2**32 - 1, dtype=np.uint32)
    monkeypatch.setattr(noise, "noise_bits", lambda *args: words)
    p_BV = torch.tensor([[0.0, 0.0, 0.0, 1.0, 0.0]])
    assert noise.race(np.zeros((2, 1), np.uint32), p_BV).tolist() == [3]


def test_all_three_forms_of_the_exponential_agree_to_the_bit():
    """Other implementation: rng, the engine's numpy form and its torch form, at both ends and between."""
    some = np.random.default_rng(0).integers(0, 2**32, 10_000, dtype=np.uint32)
    ends = np.arange(300, dtype=np.uint32)
    bits = np.concatenate([some, ends, ends[::-1] + np.uint32(2**32 - 300)])
    plain = rng.exponential(bits)
    in_numpy = -noise.negative_exponential(bits[None])[0]
    in_torch = -noise.negative_exponential_torch(torch.from_numpy(bits[None].view(np.int32)))[0].numpy()
    assert np.isfinite(plain).all() and (plain > 0).all()
    assert np.array_equal(plain, in_numpy)
    # torch's own log1p may round the last bit otherwise; what goes into it is the same
    assert np.allclose(plain, in_torch, rtol=3e-7, atol=0)
