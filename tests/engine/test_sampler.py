"""The sampler against a slow reference, closed forms and frequencies."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rollwright import rng
from rollwright.engine.noise import step_words
from rollwright.engine.sampler import Controls, draw


def controls(num: int, temperature=1.0, top_p=1.0, top_k=0, min_p=0.0, forced=-1) -> Controls:
    def fill(value, dtype):
        return np.broadcast_to(np.asarray(value, dtype), (num,)).copy()

    return Controls(
        temperature=fill(temperature, np.float32),
        top_p=fill(top_p, np.float32),
        top_k=fill(top_k, np.int64),
        min_p=fill(min_p, np.float32),
        forced=fill(forced, np.int64),
    )


def words_of(num: int, t: int = 0) -> np.ndarray:
    return step_words(np.arange(num, dtype=np.int64) * 7919 + 11, np.full(num, t, np.int64))


def slow_draw(logits, stream, t, temperature, top_p, top_k, min_p):
    """One row in float64 by the definitions, token by token."""
    x = logits.astype(np.float64) / (temperature or 1.0)
    p = np.exp(x - x.max())
    p /= p.sum()
    if temperature == 0:
        return int(np.argmax(p)), math.log(p.max()), -(p * np.log(p)).sum(), 1.0
    order = sorted(range(len(p)), key=lambda v: (-p[v], v))
    kept = order[:top_k] if top_k else list(order)
    mass_k, total, nucleus = sum(p[v] for v in kept), 0.0, []
    for v in kept:
        if top_p < 1 and nucleus and total / mass_k >= top_p:
            break
        nucleus.append(v)
        total += p[v]
    kept = [v for v in nucleus if p[v] >= min_p * p.max()]
    mass = sum(p[v] for v in kept)
    e = rng.exponential(rng.noise_bits(rng.step_words(stream, t), len(p))).astype(np.float64)
    token = min(kept, key=lambda v: e[v] / p[v])
    q = np.array([p[v] / mass for v in kept])
    return token, math.log(p[token] / mass), -(q * np.log(q)).sum(), mass


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([0.0, 0.3, 1.0, 1.7]),
    st.sampled_from([0.2, 0.71, 0.95, 1.0]),
    st.sampled_from([0, 1, 3, 40, 1000]),
    st.sampled_from([0.0, 0.05, 0.5]),
)
def test_draw_equals_the_slow_reference(seed, temperature, top_p, top_k, min_p):
    """Oracle: slow reference in float64. Broken by: logprobs before temperature; top-p one too short."""
    generator = np.random.default_rng(seed)
    logits = (generator.standard_normal((6, 40)) * 3).astype(np.float32)
    mixed = controls(6, temperature, top_p, top_k, min_p)
    mixed.top_p[1:3], mixed.top_k[2:4], mixed.min_p[3:5], mixed.temperature[5] = 1, 0, 0, 0.9
    streams, t = np.arange(6, dtype=np.int64) * 13 + seed, 5
    got = draw(torch.from_numpy(logits), mixed, step_words(streams, np.full(6, t, np.int64)))
    for row in range(6):
        how = (mixed.temperature[row], mixed.top_p[row], mixed.top_k[row], mixed.min_p[row])
        token, logp, entropy, mass = slow_draw(logits[row], int(streams[row]), t, *(x.item() for x in how))
        assert got.tokens[row] == token
        assert got.logps[row] == pytest.approx(logp, abs=2e-5)
        assert got.entropies[row] == pytest.approx(entropy, abs=2e-5)
        assert got.kept_masses[row] == pytest.approx(mass, abs=1e-5)


def test_case_l01_logprob_is_after_temperature():
    """Oracle: case L01's closed form: log_softmax([2, 0])[0] = -0.126928."""
    got = draw(torch.tensor([[1.0, 0.0]]).repeat(64, 1), controls(64, temperature=0.5), words_of(64))
    assert set(got.tokens) == {0, 1}
    for token, logp in zip(got.tokens, got.logps, strict=True):
        assert logp == pytest.approx(-0.126928 if token == 0 else -2.126928, abs=1e-6)


def _chi_square(counts, p):
    return float(((counts - counts.sum() * p) ** 2 / (counts.sum() * p)).sum())


@pytest.mark.parametrize("how", [{}, {"temperature": 0.6}, {"top_k": 5}, {"top_p": 0.8}, {"min_p": 0.1}])
def test_frequencies_follow_the_probabilities(how):
    """Oracle: chi-square over 40,000 draws at the 1e-4 level, of the kept and renormalised set."""
    num, vocab = 40_000, 12
    logits = torch.randn(vocab, generator=torch.Generator().manual_seed(3)) * 1.3
    got = draw(logits.repeat(num, 1), controls(num, **how), words_of(num))
    p = torch.softmax(logits.double() / how.get("temperature", 1.0), -1).numpy()
    seen = np.bincount(got.tokens, minlength=vocab)
    kept = np.array([p[v] if v in set(got.tokens) else 0.0 for v in range(vocab)])
    assert "top_k" not in how or (kept > 0).sum() == how["top_k"]
    assert got.kept_masses[0] == pytest.approx(kept.sum(), abs=1e-5)
    keep = kept > 0
    freedom = int(keep.sum()) - 1
    limit = freedom + 3.9 * math.sqrt(2 * freedom) + 8
    assert _chi_square(seen[keep], kept[keep] / kept.sum()) < limit


def test_frequencies_over_positions_of_one_stream():
    """Oracle: chi-square: one stream's positions are independent draws too."""
    num = 20_000
    p = torch.tensor([0.5, 0.3, 0.15, 0.05])
    words = step_words(np.full(num, 12345, np.int64), np.arange(num, dtype=np.int64))
    got = draw(p.log().repeat(num, 1), controls(num), words).tokens
    assert _chi_square(np.bincount(got, minlength=4), p.numpy()) < 25
    pairs = np.bincount(got[:-1] * 4 + got[1:], minlength=16)
    assert _chi_square(pairs, np.outer(p, p).ravel()) < 50


def test_forced_tokens_carry_the_models_logprob():
    """Oracle: closed form: over the full vocabulary after temperature, whatever the cut."""
    logits = torch.tensor([[2.0, 0.0, -1.0]])
    got = draw(logits, controls(1, temperature=0.5, top_k=1, forced=2), words_of(1))
    assert got.tokens[0] == 2 and got.kept_masses[0] == 1
    assert got.logps[0] == pytest.approx(torch.log_softmax(logits / 0.5, -1)[0, 2].item(), abs=1e-6)


def test_greedy_takes_the_first_of_equals_and_reports_temperature_one():
    """Oracle: closed form; L01's kind of logprob is named in the module: temperature 1 for greedy."""
    logits = torch.tensor([[1.0, 3.0, 3.0]])
    got = draw(logits, controls(1, temperature=0.0, top_k=1), words_of(1))
    assert got.tokens[0] == 1 and got.kept_masses[0] == 1
    assert got.logps[0] == pytest.approx(torch.log_softmax(logits, -1)[0, 1].item(), abs=1e-6)


def test_equal_tokens_are_cut_by_id():
    """Oracle: closed form: of equal tokens top-k 2 keeps ids 0 and 1."""
    for vocab, num in ((4, 500), (5000, 60)):
        got = draw(torch.zeros(num, vocab), controls(num, top_k=2), words_of(num))
        assert set(got.tokens) == {0, 1} and got.kept_masses[0] == pytest.approx(2 / vocab)


def test_rows_do_not_depend_on_each_other():
    """Metamorphic: each row alone gives the bits it gives in a mixed batch."""
    logits = torch.randn(33, 61, generator=torch.Generator().manual_seed(1)) * 3
    mixed = controls(33)
    mixed.temperature[::3], mixed.top_k[::4], mixed.top_p[1::5], mixed.min_p[2::7] = 0.7, 9, 0.8, 0.2
    mixed.temperature[7], mixed.forced[9] = 0, 4
    words = words_of(33)
    whole = draw(logits, mixed, words, num_top=3)
    for row in range(33):
        one = Controls(*(getattr(mixed, f)[row : row + 1] for f in Controls.__slots__))
        alone = draw(logits[row : row + 1], one, words[:, row : row + 1], num_top=3)
        for field in ("tokens", "logps", "entropies", "kept_masses", "top_ids", "top_logps"):
            assert np.array_equal(getattr(alone, field)[0], getattr(whole, field)[row]), (row, field)


def test_alternatives_are_the_most_likely_before_the_cut():
    """Oracle: torch.topk of the distribution after temperature."""
    logits = torch.randn(5, 20, generator=torch.Generator().manual_seed(2))
    got = draw(logits, controls(5, temperature=0.5, top_k=1), words_of(5), num_top=4)
    want = torch.log_softmax(logits / 0.5, -1).topk(4)
    assert np.array_equal(got.top_ids, want.indices.numpy())
    np.testing.assert_allclose(got.top_logps, want.values.numpy(), atol=1e-6)
