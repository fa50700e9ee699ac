"""Implicit process rewards against an enumerated policy, closed forms, and the paper's formula by hand."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from rollwright.errors import GraderError
from rollwright.grade.process import implicit_rewards, outcome_loss, prime_advantages, step_rewards
from rollwright.testing.enumerated import TabularPolicy

BETA = 0.3


def soft_optimal(ref: TabularPolicy, reward, beta: float):
    """Return ({prefix: Q}, policy): Q = β log E_ref[exp(r/β) | prefix], φ(y) ∝ ref(y) exp(r(y)/β)."""
    logp = dict(zip(ref.prefixes(), torch.log_softmax(ref.logits, -1), strict=True))
    values = {s: reward(s) for s in ref.sequences()}
    for prefix in reversed(ref.prefixes()):
        terms = [logp[prefix][v].item() + values[(*prefix, v)] / beta for v in range(ref.num_words)]
        values[prefix] = beta * float(np.logaddexp.reduce(terms))
    rows = [
        [logp[p][v].item() + (values[(*p, v)] - values[p]) / beta for v in range(ref.num_words)]
        for p in ref.prefixes()
    ]
    return values, TabularPolicy(torch.tensor(rows, dtype=torch.float64), ref.length)


def test_the_sum_is_the_outcome_and_each_prefix_has_its_value():
    """Oracle: enumeration of 27 sequences: r_1 + ... + r_t = Q_t − Q_0 for every prefix of every one."""
    ref = TabularPolicy.random(3)
    rewards = {s: math.sin(1 + s[0] + 3 * s[1] + 9 * s[2]) for s in ref.sequences()}
    values, policy = soft_optimal(ref, rewards.__getitem__, BETA)
    assert policy.probabilities().sum().item() == pytest.approx(1)
    for sequence, logp, logp_ref in zip(ref.sequences(), policy.logps(), ref.logps(), strict=True):
        implicit = implicit_rewards(logp, logp_ref, beta=BETA)
        for t in range(1, 4):
            assert implicit[:t].sum() == pytest.approx(values[sequence[:t]] - values[()], abs=1e-9)
        assert implicit.sum() == pytest.approx(rewards[sequence] - values[()], abs=1e-9)


def test_equal_models_give_nothing_and_so_do_tokens_that_were_not_sampled():
    """By hand: β · (−1 − −2) = β; NaN where an observation stands does not spread."""
    logp = [-1.0, math.nan, -2.0, -0.5]
    ref = [-2.0, math.nan, -2.0, -1.5]
    mask = [True, False, True, True]
    assert implicit_rewards(logp, ref, mask, beta=0.1).tolist() == pytest.approx([0.1, 0.0, 0.0, 0.1])
    assert implicit_rewards([-1.0, -3.0], [-1.0, -3.0]).tolist() == [0.0, 0.0]
    assert step_rewards([1.0, 2.0, 4.0, 8.0], [1, 3, 4]) == [1.0, 6.0, 8.0]


@pytest.mark.parametrize(
    "logp, ref, mask",
    [
        ([-1.0], [-1.0, -2.0], None),
        ([math.nan], [-1.0], None),
        ([-math.inf], [-1.0], None),
        ([-1.0], [-math.inf], None),
        ([0.5], [-1.0], None),
        ([-1.0], [-1.0], [True, False]),
    ],
)
def test_what_is_no_logprob_is_refused(logp, ref, mask):
    """Oracle: the law that a failure is never a reward; kills nan_to_num."""
    with pytest.raises(GraderError, match="expected"):
        implicit_rewards(logp, ref, mask)
    for ends in ([], [1, 1, 2], [1], [3]):
        with pytest.raises(GraderError):
            step_rewards([1.0, 2.0], ends)


def test_the_outcome_loss_has_the_gradient_of_a_logistic_model():
    """Oracle: closed form: dL/dlogp_t = β (σ(Σ r) − ℓ) where sampled, 0 elsewhere; L by hand."""
    logp = torch.tensor([-1.0, -2.0, -0.3], dtype=torch.float64, requires_grad=True)
    ref = torch.tensor([-0.5, -4.0, -0.9], dtype=torch.float64)
    mask = torch.tensor([True, False, True])
    score = BETA * ((-1.0 + 0.5) + (-0.3 + 0.9))
    for label in (1.0, 0.0, 0.25):
        loss = outcome_loss(logp, ref, mask, label, BETA)
        p = 1 / (1 + math.exp(-score))
        assert loss.item() == pytest.approx(-label * math.log(p) - (1 - label) * math.log(1 - p))
        [grad] = torch.autograd.grad(loss, logp)
        assert grad.tolist() == pytest.approx([BETA * (p - label), 0.0, BETA * (p - label)])


def test_outcomes_alone_teach_which_step_was_wrong():
    """Oracle: a planted rule: sequences with the token 2 at place 1 are wrong; no step label is ever seen.

    After training on outcomes only, the token 2 at place 1 has the lowest implicit reward of its place.
    """
    ref = TabularPolicy.random(0, scale=0.3)
    logits = ref.logits.clone().requires_grad_(True)
    labels = [float(s[1] != 2) for s in ref.sequences()]
    everywhere = torch.ones(3, dtype=torch.bool)
    ref_logps = ref.logps()
    for _ in range(60):
        pairs = zip(ref.logps(logits), ref_logps, labels, strict=True)
        loss = sum(outcome_loss(p, q, everywhere, label, 1.0) for p, q, label in pairs)
        [grad] = torch.autograd.grad(loss, logits)
        with torch.no_grad():
            logits -= 0.3 * grad
    by_word = {v: [] for v in range(3)}
    for s, p, q in zip(ref.sequences(), ref.logps(logits).detach(), ref_logps, strict=True):
        by_word[s[1]].append(implicit_rewards(p, q, beta=1.0)[1])
    assert max(by_word[2]) < min(by_word[0] + by_word[1]) - 1.0


def test_advantages_by_hand_and_against_a_slow_reference():
    """Oracle: the paper's double sum, written out, on random groups with discount; and two by hand."""
    first, second = prime_advantages([[0.2, 0.4], [0.1]], [1.0, 0.0])
    assert first.tolist() == pytest.approx([0.1 + 0.3 + 1.0, 0.3 + 1.0])
    assert second.tolist() == pytest.approx([0.1 - 0.3 - 1.0])
    rng = np.random.default_rng(1)
    for gamma in (1.0, 0.9, 0.0):
        process = [rng.normal(size=rng.integers(1, 6)) for _ in range(4)]
        outcomes = rng.integers(0, 2, 4).astype(float).tolist()
        got = prime_advantages(process, outcomes, gamma)
        for i, t in itertools.product(range(4), range(5)):
            if t < len(process[i]):
                base = np.mean([process[j].mean() for j in range(4) if j != i])
                later = sum(gamma ** (s - t) * (process[i][s] - base) for s in range(t, len(process[i])))
                outcome = outcomes[i] - np.mean([outcomes[j] for j in range(4) if j != i])
                assert got[i][t] == pytest.approx(later + outcome)


def test_an_unscored_response_has_no_advantage_and_moves_no_baseline():
    """Oracle: law 4: the others are as if it were not there; a group of one has zeros."""
    process = [[0.2, 0.4], [9.0, 9.0], [0.1]]
    got = prime_advantages(process, [1.0, None, 0.0])
    without = prime_advantages([process[0], process[2]], [1.0, 0.0])
    assert got[1].tolist() == [0.0, 0.0]
    assert got[0].tolist() == without[0].tolist() and got[2].tolist() == without[1].tolist()
    assert prime_advantages([[1.0, 2.0], [3.0]], [1.0, None])[0].tolist() == [0.0, 0.0]
