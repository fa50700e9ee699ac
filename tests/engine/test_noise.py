"""The engine's noise against `rollwright.rng`, one position at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rollwright import rng
from rollwright.engine import noise

STREAMS = st.integers(0, 2**63 - 1)
POSITIONS = st.integers(0, 10_000)


@given(st.lists(st.tuples(STREAMS, POSITIONS), min_size=1, max_size=5), st.integers(1, 70))
def test_both_twins_give_the_bits_of_rng(rows, num_words):
    """Oracle: rng's scalar form, bit for bit. Broken by: an arithmetic shift in the torch form."""
    streams = np.array([s for s, _ in rows], dtype=np.int64)
    t = np.array([p for _, p in rows], dtype=np.int64)
    words = noise.step_words(streams, t)
    words_torch = noise.step_words_torch(torch.from_numpy(streams), torch.from_numpy(t))
    want_words = np.array([rng.step_words(s, p) for s, p in rows], dtype=np.uint32).T
    assert np.array_equal(words, want_words)
    assert np.array_equal(words_torch.numpy().view(np.uint32), want_words)
    want = np.stack([rng.noise_bits(rng.step_words(s, p), num_words) for s, p in rows])
    assert np.array_equal(noise.noise_bits(words, num_words), want)
    assert np.array_equal(noise.noise_bits_torch(words_torch, num_words).numpy().view(np.uint32), want)


def _hard_bits() -> np.ndarray:
    edges = np.array([0, 1, 2**24 - 1, 2**24, 2**24 + 1, 2**31, 2**32 - 129, 2**32 - 128, 2**32 - 1])
    return np.concatenate([edges, np.random.default_rng(0).integers(0, 2**32, 4001)]).astype(np.uint32)[None]


def test_exponentials_agree_with_rng():
    """Oracle: rng.exponential: numpy's form bit for bit; torch's u bit for bit and log1p to 4 ulp."""
    bits = _hard_bits()
    want = rng.exponential(bits)
    assert np.array_equal(noise.negative_exponential(bits), -want)
    got = -noise.negative_exponential_torch(torch.from_numpy(bits.view(np.int32))).numpy()
    finite = np.isfinite(want)
    assert np.array_equal(finite, np.isfinite(got))
    np.testing.assert_array_max_ulp(got[finite], want[finite], maxulp=4)


def test_noise_of_a_row_does_not_depend_on_the_other_rows():
    """Metamorphic: the same row among others, at another place: equal bits after log1p."""
    streams = np.arange(40, dtype=np.int64) * 977 + 3
    t = np.arange(40, dtype=np.int64)
    for num_words in (7, 33, 64, 513):
        all_rows = noise.negative_exponential(noise.noise_bits(noise.step_words(streams, t), num_words))
        for rows in ([5], [39, 5], [1, 2, 3, 5, 8]):
            some = noise.negative_exponential(
                noise.noise_bits(noise.step_words(streams[rows], t[rows]), num_words)
            )
            assert np.array_equal(some, all_rows[rows])


@pytest.mark.parametrize("device_form", [False, True])
def test_race_is_argmax_of_logits_plus_gumbel(device_form, monkeypatch):
    """Oracle: the slow form of the definition, argmax(ln p + gumbel), with rng's scalars."""
    p = torch.softmax(torch.randn(200, 50, generator=torch.Generator().manual_seed(0)) * 2, -1)
    streams = np.arange(200, dtype=np.int64) * 31 + 7
    t = np.arange(200, dtype=np.int64) % 13
    words = noise.step_words(streams, t)
    if device_form:
        on_device = torch.from_numpy(words.view(np.int32))
        score = noise.negative_exponential_torch(noise.noise_bits_torch(on_device, 50)) / p
        got = score.argmax(1).numpy()
    else:
        got = noise.race(words, p)
    for row in range(200):
        e = rng.exponential(rng.noise_bits(rng.step_words(int(streams[row]), int(t[row])), 50))
        assert got[row] == int(
            np.argmax(np.log(p[row].numpy().astype(np.float64)) - np.log(e.astype(np.float64)))
        )


def test_what_has_no_probability_never_wins():
    """Oracle: closed form: a token with p = 0 has an infinite arrival time."""
    p = torch.zeros(1000, 9)
    p[:, 4] = 1e-30
    words = noise.step_words(np.arange(1000, dtype=np.int64), np.zeros(1000, np.int64))
    assert (noise.race(words, p) == 4).all()
