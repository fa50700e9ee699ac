"""Counter-based randomness: golden values, uniformity, and no correlation between neighbours."""

import numpy as np
import pytest

from rollwright import rng

# ---------------------------------------------------------------- golden: a change breaks every recorded run

KEY_A, KEY_B = 3373111782358990071, 4031764168085782461
WORDS_0, WORDS_M = (4292502344, 1830575305), (1184119580, 1418282776)
BITS_0 = [3575281338, 3733614839, 1207247265, 1413414342]


def test_golden_keys():
    """Golden, computed once: the key of a stream is blake2b of its three names."""
    assert rng.stream_key(0, "t/0", "0/0") == KEY_A
    assert rng.stream_key(7, "calc/train/12", "3/5~1") == KEY_B


def test_golden_words_and_bits():
    """Golden: position words and vocabulary bits, also far out."""
    assert rng.step_words(KEY_A, 0) == WORDS_0
    assert rng.step_words(KEY_A, 1_000_000) == WORDS_M
    assert rng.noise_bits(WORDS_0, 4).tolist() == BITS_0


def test_splitmix_against_its_published_values():
    """Other implementation: splitmix64 seeded with 1234567 gives the values of its reference code."""
    want = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    for t, value in enumerate(want):
        high, low = rng.step_words(1234567, t)
        assert (high << 32) + low == value


def test_bits_against_plain_integers():
    """Slow reference: the formula of the docstring on Python integers."""
    a, b = 0xDEADBEEF, 0x01234567
    want = []
    for v in range(50):
        x = (v * 0x9E3779B9 + a) % 2**32
        x ^= x >> 16
        x = x * 0x7FEB352D % 2**32
        x ^= b
        x ^= x >> 15
        x = x * 0x846CA68B % 2**32
        x ^= x >> 16
        want.append(x)
    assert rng.noise_bits((a, b), 50).tolist() == want


# ---------------------------------------------------------------- statistics


def uniforms(streams, positions, num_words):
    """Return noise as uniforms in (0, 1), [streams, positions, words]."""
    return np.array(
        [[rng.noise_bits(rng.step_words(s, t), num_words) / 2.0**32 for t in positions] for s in streams]
    )


STREAMS = [rng.stream_key(1, "t/0", f"0/{i}") for i in range(40)]


def chi_square(values, bins=64):
    counts, _ = np.histogram(values, bins=bins, range=(0, 1))
    expected = len(values) / bins
    return ((counts - expected) ** 2 / expected).sum()


@pytest.mark.parametrize("axis", ["all", "words", "positions", "streams"])
def test_bits_are_uniform(axis):
    """Closed form: chi-square over 64 bins lies within 63 ± 6 standard deviations, along every axis."""
    pick = {
        "all": lambda: uniforms(STREAMS[:10], range(50), 100),
        "words": lambda: uniforms(STREAMS[:1], range(1), 50_000),
        "positions": lambda: uniforms(STREAMS[:1], range(20_000), 1),
        "streams": lambda: uniforms([rng.stream_key(s, "t/0", "0/0") for s in range(20_000)], [0], 1),
    }
    value = chi_square(pick[axis]().ravel())
    assert abs(value - 63) < 6 * np.sqrt(2 * 63), f"chi-square {value:.0f} along {axis}"


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_neighbours_are_uncorrelated(axis):
    """Closed form: the correlation of neighbouring streams, positions and words is 0 ± 5 / sqrt(n)."""
    values = uniforms(STREAMS, range(30), 40) - 0.5
    first, second = np.moveaxis(values, axis, 0)[:-1], np.moveaxis(values, axis, 0)[1:]
    correlation = (first * second).mean() / values.var()
    assert abs(correlation) < 5 / np.sqrt(first.size)


def test_consecutive_integer_streams_are_uncorrelated():
    """Keys that differ by one must not give shifted noise: position t + 1 of s is not position t of s + 1."""
    values = uniforms(range(100, 140), range(40), 30) - 0.5
    for shifted in (values[1:, :-1], values[1:, 1:]):
        correlation = (values[:-1, 1:] * shifted).mean() / values.var()
        assert abs(correlation) < 5 / np.sqrt(shifted.size)


def test_tokens_follow_the_distribution():
    """Closed form: argmin(E / p) draws token v with probability p_v (chi-square, 4 degrees of freedom)."""
    p = np.array([0.05, 0.1, 0.15, 0.3, 0.4], dtype=np.float32)
    counts = np.zeros(5)
    for t in range(8_000):
        e = rng.exponential(rng.noise_bits(rng.step_words(STREAMS[0], t), 5))
        counts[np.argmin(e / p)] += 1
    expected = p * counts.sum()
    assert ((counts - expected) ** 2 / expected).sum() < 25


def test_exponentials_have_their_moments_and_no_zero():
    """Mean 1, variance 1, never 0: a zero would let an impossible token win."""
    e = rng.exponential(rng.noise_bits(rng.step_words(STREAMS[0], 3), 400_000)).astype(np.float64)
    assert e.mean() == pytest.approx(1, abs=0.01) and e.var() == pytest.approx(1, abs=0.03)
    assert rng.exponential(np.array([0], dtype=np.uint32))[0] > 0
    largest = rng.exponential(np.array([2**32 - 1], dtype=np.uint32))[0]
    assert largest == pytest.approx(24 * np.log(2)), "an infinite E would lose to a token that is cut"


def test_small_exponentials_keep_their_resolution():
    """Closed form: E(bits = k) = (k + 0.5)·2⁻³² for small k, distinct for every k."""
    e = rng.exponential(np.arange(1000, dtype=np.uint32)).astype(np.float64)
    assert np.allclose(e, (np.arange(1000) + 0.5) * 2.0**-32, rtol=1e-6)
    assert len(set(e)) == 1000


# ---------------------------------------------------------------- names


def test_names_do_not_run_together():
    """A separator stands between the names: ("1", "2/3") and ("1/2", "3") are different streams."""
    keys = {
        rng.stream_key(1, "2", "3"),
        rng.stream_key(12, "", "3"),
        rng.stream_key(1, "23", ""),
        rng.stream_key(1, "", "23"),
        rng.stream_key(123, "", ""),
    }
    assert len(keys) == 5


def test_keys_are_63_bits_and_distinct():
    """They fit a signed 64-bit integer, so that every tensor library holds them."""
    keys = {rng.stream_key(s, f"t/{i}", f"0/{j}") for s in range(10) for i in range(30) for j in range(30)}
    assert len(keys) == 9000 and max(keys) < 2**63 and min(keys) >= 0


def test_generators_depend_on_every_label():
    """Decisions of stages: same labels, same draws; any other label, others."""
    draws = [
        rng.generator(*labels).integers(1 << 60)
        for labels in [(1, "plan", "g", 0), (1, "plan", "g", 1), (2, "plan", "g", 0), (1, "select", "g", 0)]
    ]
    assert len(set(draws)) == 4
    assert rng.generator(1, "plan", "g", 0).integers(1 << 60) == draws[0]
