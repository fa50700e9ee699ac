"""Decoupled PPO: closed forms, what it reduces to, and the proximal logprobs that the learner gives."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from learn_help import mixed_groups, plain_logp, tiny_model

from rollwright.errors import ConfigError
from rollwright.learn.config import LearnerConfig
from rollwright.learn.learner import Learner
from rollwright.stages.objective.decoupled_ppo import DecoupledPPO
from rollwright.stages.objective.ppo_clip import PPOClip
from rollwright.stages.objective.reinforce import Reinforce
from rollwright.stages.reduce.token_mean import TokenMean

D = torch.float64


def arrays(u, w, adv, is_sampled=None):
    """Return (new, old, adv, mask, prox) with the given ratios new/prox and prox/old."""
    u, w, adv = (torch.tensor(x, dtype=D) for x in (u, w, adv))
    old = torch.full_like(u, -1.3)
    prox = old + w.log()
    new = (prox + u.log()).requires_grad_(True)
    mask = torch.ones(len(u), dtype=torch.bool) if is_sampled is None else torch.tensor(is_sampled)
    return new, old, adv, mask, prox


def test_closed_form():
    """Oracle: by hand, w·(the corners of the clip). Mutants: clip around old; the weight inside the clip."""
    new, old, adv, mask, prox = arrays(
        [1.5, 1.5, 0.5, 0.5, 1.1], [2.0, 0.5, 1.0, 3.0, 2.0], [2.0, -2.0, 2.0, -2.0, 1.0]
    )
    loss = DecoupledPPO(0.2, 0.3)(new, old, adv, mask, logp_prox_T=prox)
    assert loss.tolist() == pytest.approx([-5.2, 1.5, -1.0, 4.8, -2.2])
    grad = torch.autograd.grad(loss.sum(), new)[0]
    assert grad.tolist() == pytest.approx([0.0, 1.5, -1.0, 0.0, -2.2])
    found = DecoupledPPO(0.2, 0.3).diagnose(new, old, adv, mask, logp_prox_T=prox)
    assert found["clip_fraction"].tolist() == [True, False, False, True, False]
    assert found["weight"].tolist() == pytest.approx([2.0, 0.5, 1.0, 3.0, 2.0])


def test_truncated_weights_are_capped_and_one_on_policy():
    """Oracle: closed form, min(w, C). 1 on-policy, never above C, so the gradient; the mask gives 0 there."""
    new, old, adv, mask, prox = arrays([1.0] * 4, [1.0, 1.9, 2.1, 50.0], [1.0] * 4)
    stage = DecoupledPPO(weight_cap=2.0, truncate=True)
    loss = stage(new, old, adv, mask, logp_prox_T=prox)
    assert torch.autograd.grad(loss.sum(), new)[0].tolist() == pytest.approx([-1.0, -1.9, -2.0, -2.0])
    found = stage.diagnose(new, old, adv, mask, logp_prox_T=prox)
    assert found["weight"].tolist() == pytest.approx([1.0, 1.9, 2.0, 2.0])
    assert found["capped_fraction"].tolist() == [False, False, True, True]
    masked = DecoupledPPO(weight_cap=2.0)
    assert masked(new, old, adv, mask, logp_prox_T=prox).tolist() == pytest.approx([-1.0, -1.9, 0.0, 0.0])
    assert masked.diagnose(new, old, adv, mask, logp_prox_T=prox)["capped_fraction"].tolist() == [
        *(False, False),
        *(True, True),
    ]


def test_it_is_ppo_where_the_proximal_policy_sampled():
    """Oracle: `PPOClip`, loss and gradient, over a grid of ratios and advantages."""
    ratio = torch.linspace(0.3, 2.0, 18).tolist()
    for sign in (1.0, -1.0):
        new, old, adv, mask, prox = arrays(ratio, [1.0] * 18, [sign] * 18)
        mine, theirs = DecoupledPPO(0.2, 0.28), PPOClip(0.2, 0.28)
        a, b = mine(new, old, adv, mask, logp_prox_T=prox), theirs(new, old, adv, mask)
        assert torch.equal(a, b)
        assert torch.equal(*(torch.autograd.grad(x.sum(), new, retain_graph=True)[0] for x in (a, b)))


def test_without_proximal_logprobs_it_is_reinforce_with_the_whole_weight():
    """Oracle: `Reinforce(inf)`: the first update of a batch, in which π_prox is π_new."""
    new, old, adv, mask, _ = arrays([1.0] * 4, [0.3, 1.0, 2.0, 4.0], [1.0, -1.0, 0.5, 2.0])
    losses = DecoupledPPO()(new, old, adv, mask), Reinforce(float("inf"))(new, old, adv, mask)
    a, b = (torch.autograd.grad(loss.sum(), new)[0] for loss in losses)
    assert a.tolist() == pytest.approx(b.tolist(), abs=1e-12)


def test_tokens_beyond_the_cap_have_no_gradient():
    """By hand: w = 6 is left out at a cap of 5, w = 5 is not; tokens that were not sampled neither."""
    new, old, adv, mask, prox = arrays([1.0] * 3, [4.999, 6.0, 1.0], [1.0] * 3, [True, True, False])
    objective = DecoupledPPO(weight_cap=5.0)
    loss = objective(new, old, adv, mask, logp_prox_T=prox)
    assert torch.autograd.grad(loss.sum(), new)[0].tolist() == pytest.approx([-4.999, 0.0, 0.0])
    assert objective.diagnose(new, old, adv, mask, logp_prox_T=prox)["capped_fraction"].tolist() == [0, 1, 0]


def test_settings_out_of_range_are_refused_and_it_pickles():
    """A cap at or below 1 would leave out tokens of the current weights."""
    for bad in ({"clip_low": 0.0}, {"clip_low": 1.5}, {"clip_high": -1.0}, {"weight_cap": 1.0}):
        with pytest.raises(ConfigError):
            DecoupledPPO(**bad)
    assert pickle.loads(pickle.dumps(DecoupledPPO(weight_cap=5.0))) == DecoupledPPO(weight_cap=5.0)


class Spy:
    """Decoupled PPO that keeps what it was given."""

    reads = DecoupledPPO().reads
    is_zero_at_zero_adv = True

    def __init__(self):
        self.inner, self.seen = DecoupledPPO(), []

    def __call__(self, new, *rest, logp_prox_T=None):
        self.seen.append((new.detach().clone(), logp_prox_T))
        return self.inner(new, *rest, logp_prox_T=logp_prox_T)

    def diagnose(self, *given, **more):
        return self.inner.diagnose(*given, **more)


def learn(**settings):
    """Make one batch's updates; return what the objective saw, the model before it and the groups."""
    model, spy = tiny_model(), Spy()
    before, groups = copy.deepcopy(model), mixed_groups(model)
    cfg = LearnerConfig(lr=0.05, ratio_tolerance=None, ratio_mean_tolerance=None, **settings)
    Learner(model, spy, TokenMean(), cfg).update(groups, 0)
    return spy.seen, before, groups


def test_the_proximal_policy_is_the_one_before_the_first_update_of_the_batch():
    """Slow reference: a plain forward pass of the weights before; in the second update they have moved."""
    seen, before, groups = learn(num_updates=2)
    assert len(seen) == 2
    logps = set()
    for group in groups:
        for t in group.trajectories:
            if t.score is None or not any(t.advantages):
                continue
            response = group.response(t)
            tokens = [*response.prompt, *response.tokens]
            for step in response.is_sampled.nonzero()[0]:
                place = len(response.prompt) + int(step)
                with torch.no_grad():
                    logp = plain_logp(before, tokens, float(response.temperatures[step]))
                logps.add(round(float(logp[place - 1, tokens[place]]), 9))
    given = {round(float(x), 9) for _, prox in seen for x in prox}
    assert given == logps
    first, second = ((new - prox).abs().max() for new, prox in seen)
    assert first < 1e-12 < 1e-3 < second


def test_a_batch_of_one_update_needs_no_second_forward_pass():
    """None is given: π_prox is π_new; and the same holds for the first of several epochs."""
    seen, _, _ = learn()
    assert [prox for _, prox in seen] == [None]
    seen, _, _ = learn(num_epochs=2)
    assert torch.equal(seen[0][0], seen[0][1]) and torch.equal(seen[0][1], seen[1][1])
    assert not torch.equal(seen[1][0], seen[1][1])
