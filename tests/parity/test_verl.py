"""Our stages against verl 0.9.1's `verl.trainer.ppo.core_algos`, on the same random batches."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from parity_help import ours, random_batch, same

from rollwright.stages.credit.group_norm import GroupNorm
from rollwright.stages.objective._ratio import kl_estimate
from rollwright.stages.objective.gspo import GSPO
from rollwright.stages.objective.ppo_clip import PPOClip
from rollwright.stages.reduce.constant_length import ConstantLength
from rollwright.stages.reduce.sequence_mean import SequenceMean
from rollwright.stages.reduce.token_mean import TokenMean
from rollwright.testing.enumerated import GroupMaker, TabularPolicy

pytestmark = pytest.mark.slow

AGG_TO_REDUCE = {
    "token-mean": TokenMean(),
    "seq-mean-token-mean": SequenceMean(),
    "seq-mean-token-sum-norm": ConstantLength(32),
}


@pytest.fixture(scope="module")
def verl():
    """verl's algorithms; their import fails, and with it these tests, where verl is not installed."""
    from verl.trainer.ppo import core_algos

    return core_algos


def actor_config(aggregation: str, **changes):
    from verl.workers.config import ActorConfig

    fields = {"strategy": "fsdp", "ppo_micro_batch_size_per_gpu": 1, "rollout_n": 1}
    return ActorConfig(**fields, loss_agg_mode=aggregation, loss_scale_factor=32, **changes)


def theirs(verl, name, batch, aggregation, **changes):
    """Return verl's loss and gradient by logp_new."""
    config = actor_config(aggregation, **changes)
    config.global_batch_info["loss_scale_factor"] = 32
    leaf = batch.leaf
    loss, _ = verl.get_policy_loss_fn(name)(
        old_log_prob=batch.old,
        log_prob=leaf,
        advantages=batch.adv,
        response_mask=batch.mask,
        loss_agg_mode=aggregation,
        config=config,
    )
    return loss.item(), torch.autograd.grad(loss, leaf)[0]


@pytest.mark.parametrize("aggregation", sorted(AGG_TO_REDUCE))
@pytest.mark.parametrize("with_empty_row", [False, True])
@pytest.mark.parametrize("seed", [0, 1])
def test_clipped_loss(verl, aggregation, with_empty_row, seed):
    """Oracle: verl's "vanilla" loss, whose dual clip is always on; a row without trained tokens is in no
    denominator there either."""
    batch = random_batch(seed, with_empty_row, spread=1.0)
    got = ours(batch, PPOClip(0.2, 0.28, dual_clip=3.0), AGG_TO_REDUCE[aggregation])
    want = theirs(verl, "vanilla", batch, aggregation, clip_ratio_low=0.2, clip_ratio_high=0.28)
    assert same(got, want)


@pytest.mark.parametrize("aggregation", sorted(AGG_TO_REDUCE))
def test_sequence_ratio(verl, aggregation):
    """Oracle: verl's "gspo" loss."""
    batch = random_batch(2, with_empty_row=True)
    got = ours(batch, GSPO(0.1, 0.15), AGG_TO_REDUCE[aggregation])
    want = theirs(verl, "gspo", batch, aggregation, clip_ratio_low=0.1, clip_ratio_high=0.15)
    assert same(got, want)


@pytest.mark.parametrize("kind", ["k1", "k2", "k3"])
def test_kl_terms(verl, kind):
    """Oracle: verl's `kl_penalty`, value and gradient."""
    batch = random_batch(3)
    one, two = batch.leaf, batch.leaf
    got = kl_estimate(kind, one, batch.ref, torch.ones_like(batch.mask).bool())
    want = verl.kl_penalty(two, batch.ref, kind)
    assert torch.allclose(got, want, atol=1e-12)
    grads = torch.autograd.grad(got.sum(), one)[0], torch.autograd.grad(want.sum(), two)[0]
    assert torch.allclose(*grads, atol=1e-12)


def test_where_k3_differs(verl):
    """verl cuts k3 at 10, which takes its gradient away when the policy has gone far; we do not."""
    new, ref = torch.full((1,), -9.0, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    assert verl.kl_penalty(new, ref, "k3").item() == 10.0
    got = kl_estimate("k3", new, ref, torch.ones(1).bool()).item()
    assert got == pytest.approx(math.exp(9) - 10)


def credited(scores: list[float], scale: bool) -> list[float]:
    """Return our group-relative advantages."""
    policy = TabularPolicy.random(0, num_words=len(scores), length=1)
    group = GroupMaker(policy, lambda s: scores[s[0]]).group(range(len(scores)))
    return [t.advantages[0] for t in GroupNorm(scale=scale)(group).trajectories]


@pytest.mark.parametrize("scale", [True, False])
def test_group_advantage(verl, scale):
    """Oracle: verl's GRPO advantage (sample standard deviation, eps 1e-6), also for a group of equals."""
    for scores in ([1.0, 0.0, 0.5, 0.25], [1.0, 1.00001], [3.0, 3.0, 3.0]):
        rewards = torch.tensor(scores, dtype=torch.float64)[:, None]
        want, _ = verl.compute_grpo_outcome_advantage(
            rewards, torch.ones_like(rewards), np.zeros(len(scores)), norm_adv_by_std_in_grpo=scale
        )
        assert credited(scores, scale) == pytest.approx(want[:, 0].tolist(), abs=1e-9)


def test_where_a_group_of_one_differs(verl):
    """verl gives a group of one its raw reward; TRL refuses it; we give it 0 (law 4)."""
    one = torch.tensor([[0.7]], dtype=torch.float64)
    want, _ = verl.compute_grpo_outcome_advantage(one, torch.ones_like(one), np.zeros(1))
    assert want.item() == pytest.approx(0.7, abs=1e-5)
    assert credited([0.7], True) == [0.0]
