"""GRPO against itself, and against itself times 1.3, on outcomes of real runs."""

from __future__ import annotations

import math

import numpy as np

from rollwright.compare.power import log_e_paths
from rollwright.compare.sequential import SequentialTest

# Held-out success of GRPO on Lake at 1,500 sampled tokens, seeds 0 to 23 (benchmarks/compare_null.py).
RECORDED = np.array(
    [
        *(0.3866, 0.5152, 0.4530, 0.5074, 0.4278, 0.4885, 0.4905, 0.4525, 0.4945, 0.5223, 0.5643, 0.5128),
        *(0.4195, 0.4784, 0.3564, 0.5583, 0.4326, 0.4250, 0.4023, 0.4942, 0.4662, 0.3960, 0.4905, 0.4949),
    ]
)
TEST = SequentialTest()
NUM = 1000


def drawn(rng: np.random.Generator, num_pairs: int) -> np.ndarray:
    """Outcomes of new runs like those recorded, [NUM, num_pairs]: one of them, moved by less than a
    rollout...


    """
    return rng.choice(RECORDED, (NUM, num_pairs)) + rng.uniform(-0.005, 0.005, (NUM, num_pairs))


def test_grpo_does_not_differ_from_itself_in_200_pairs() -> None:
    """Oracle: Ville's bound, by simulation: 1,000 comparisons of 200 split seeds, looked at after every pair.

    Kills: a t-test at each look, which finds a difference in about half of them.
    """
    rng = np.random.default_rng(1)
    x = drawn(rng, 200) - drawn(rng, 200)
    wrong = (log_e_paths(TEST, x) >= -math.log(TEST.alpha)).any(axis=1).mean()
    assert wrong <= TEST.alpha + 3 * math.sqrt(TEST.alpha * (1 - TEST.alpha) / NUM)
    num = np.arange(2, 201)
    mean = np.cumsum(x, axis=1)[:, 1:] / num
    deviation = np.sqrt(np.maximum(np.cumsum(x * x, axis=1)[:, 1:] / num - mean**2, 1e-12) * num / (num - 1))
    assert (np.abs(mean) * np.sqrt(num) > 2.0 * deviation)[:, 8:].any(axis=1).mean() > 0.25


def test_thirteen_tenths_of_it_is_found() -> None:
    """Oracle: planted: success times 1.3 is found in 9 of 10 comparisons of 12 pairs. Kills: a blunt test."""
    rng = np.random.default_rng(2)
    x = 1.3 * drawn(rng, 12) - drawn(rng, 12)
    found = (log_e_paths(TEST, x) >= -math.log(TEST.alpha)).any(axis=1)
    assert found.mean() > 0.9
    looks = TEST.looks(x[0], 0.01)
    assert looks[-1].mean > 0.1
