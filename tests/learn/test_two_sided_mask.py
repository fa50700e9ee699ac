"""The strict two-sided region and the constant baseline: closed forms and enumeration."""

from __future__ import annotations

import itertools

import pytest
import torch
from learn_help import Spec, make_group, tiny_model

from rollwright.errors import ConfigError
from rollwright.methods.sao import sao
from rollwright.stages.credit.fixed_baseline import FixedBaseline
from rollwright.stages.objective.ppo_clip import PPOClip
from rollwright.stages.objective.two_sided_mask import TwoSidedMask

D = torch.float64


def gradients(objective, ratios, advs, mask=None):
    ratio, adv = torch.tensor(ratios, dtype=D), torch.tensor(advs, dtype=D)
    old = torch.full_like(ratio, -1.1)
    new = (old + ratio.log()).requires_grad_(True)
    is_sampled = torch.ones(len(ratio), dtype=torch.bool) if mask is None else torch.tensor(mask)
    loss = objective(new, old, adv, is_sampled)
    return torch.autograd.grad(loss.sum(), new)[0].tolist(), objective.diagnose(new, old, adv, is_sampled)


def test_masked_tokens_have_no_gradient_for_either_sign():
    """By hand, r·A inside and 0 outside; PPO's clip keeps two of the four corners. Mutant: its clip."""
    ratios, advs = [1.5, 1.5, 0.5, 0.5, 1.1, 0.9], [2.0, -2.0, 2.0, -2.0, 2.0, -1.0]
    got, found = gradients(TwoSidedMask(0.2, 0.3), ratios, advs)
    assert got == pytest.approx([0.0, 0.0, 0.0, 0.0, -2.2, 0.9])
    assert found["masked_fraction"].tolist() == [True] * 4 + [False] * 2
    theirs, _ = gradients(PPOClip(0.2, 0.3), ratios, advs)
    assert [bool(g) for g in theirs] == [False, True, True, False, True, True]


def test_on_policy_it_is_reinforce_and_what_was_not_sampled_has_nothing():
    """r = 1: the gradient is −A."""
    got, _ = gradients(TwoSidedMask(), [1.0, 1.0, 7.0], [0.5, -1.5, 9.0], [True, True, False])
    assert got == pytest.approx([-0.5, 1.5, 0.0])


def test_any_constant_leaves_the_expected_gradient_as_it_is():
    """Enumeration: a softmax over three actions, two steps; E[(R − b)·∇logp] is the same for every b."""
    theta = torch.tensor([0.3, -0.2, 0.5], dtype=D, requires_grad=True)
    reward = {pair: float(sum(pair) % 3) for pair in itertools.product(range(3), repeat=2)}

    def expected(baseline):
        total = torch.zeros(3, dtype=D)
        for pair, r in reward.items():
            logp = torch.log_softmax(theta, 0)[list(pair)].sum()
            grad = torch.autograd.grad(logp, theta)[0]
            total += logp.exp().detach() * (r - baseline) * grad
        return total

    exact = torch.autograd.grad(
        sum(torch.log_softmax(theta, 0)[list(p)].sum().exp() * r for p, r in reward.items()), theta
    )[0]
    for baseline in (0.0, 0.5, -3.0):
        assert torch.allclose(expected(baseline), exact, atol=1e-12)


def test_the_credit_of_a_rollout_does_not_depend_on_its_siblings():
    """By hand: R − 0.5 on sampled steps, 0 on observations and for a rollout without a score."""
    specs = [
        Spec([("s", [1, 2], 0), ("o", [3], 0), ("s", [4], 0)], score=1.0),
        Spec([("s", [5], 0)], score=0.0),
        Spec([("s", [5], 0)], score=None),
    ]
    group = FixedBaseline(0.5)(make_group(tiny_model(), [1], specs))
    assert [t.advantages for t in group.trajectories] == [(0.5, 0.5, 0.0, 0.5), (-0.5,), (0.0,)]


def test_settings_out_of_range_are_refused():
    """Each says what was given."""
    for bad in ({"low": 0.0}, {"low": 1.1}, {"high": 0.0}):
        with pytest.raises(ConfigError):
            TwoSidedMask(**bad)
    with pytest.raises(ConfigError, match="finite"):
        FixedBaseline(float("nan"))
    assert sao(baseline=0.25).credit == (FixedBaseline(0.25),)
