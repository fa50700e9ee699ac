"""The exact-gradient oracle, and what it says of credits, objectives and reductions (law 8)."""

from __future__ import annotations

import msgspec
import pytest
import torch

from rollwright.stages.credit.group_norm import GroupNorm
from rollwright.stages.objective.gspo import GSPO
from rollwright.stages.objective.ppo_clip import PPOClip
from rollwright.stages.objective.reinforce import Reinforce
from rollwright.stages.reduce.constant_length import ConstantLength
from rollwright.stages.reduce.sequence_mean import SequenceMean
from rollwright.stages.reduce.token_mean import TokenMean
from rollwright.testing.enumerated import (
    GroupMaker,
    TabularPolicy,
    bias,
    exact_policy_gradient,
    expected_estimator_gradient,
    outcomes,
)
from rollwright.tree import Group

SUM = ConstantLength(1)


def graded(sequence: tuple[int, ...]) -> float:
    """A reward with three values that depends on order and length."""
    return (0.0, 0.3, 1.0)[(sequence[0] + 2 * sequence[-1] + len(sequence)) % 3]


def leave_one_out(group: Group) -> Group:
    """REINFORCE with the others' mean as baseline: A_i = r_i − mean of the other rewards."""
    scores = [t.score or 0.0 for t in group.trajectories]
    credited = []
    for t in group.trajectories:
        others = [s for i, s in enumerate(scores) if i != t.index]
        value = scores[t.index] - sum(others) / len(others)
        num = group.nodes[t.leaf].num_steps
        credited.append(msgspec.structs.replace(t, advantages=(value,) * num))
    return msgspec.structs.replace(group, trajectories=tuple(credited))


@pytest.mark.parametrize(("eos", "num"), [(None, 27), (2, 15)])
def test_every_sequence_once(eos, num):
    """Oracle: counting; probabilities add up to 1. Mutant: sequences that go on after the end token."""
    policy = TabularPolicy.random(0, eos=eos)
    assert len(set(policy.sequences())) == len(policy.sequences()) == num
    assert policy.probabilities().sum().item() == pytest.approx(1, abs=1e-12)
    assert len(policy.prefixes()) == (13 if eos is None else 7)


def test_exact_gradient_finite_differences():
    """Oracle: finite differences of the expected reward."""
    policy = TabularPolicy.random(1, eos=2)
    gradient = exact_policy_gradient(policy, graded)
    rewards = torch.tensor([graded(s) for s in policy.sequences()], dtype=torch.float64)
    for row, word in [(0, 0), (1, 2), (6, 1)]:
        values = []
        for step in (1e-6, -1e-6):
            logits = policy.logits.clone()
            logits[row, word] += step
            values.append((TabularPolicy(logits, 3, 2).probabilities() * rewards).sum().item())
        assert gradient[row, word].item() == pytest.approx((values[0] - values[1]) / 2e-6, abs=1e-8)
    with pytest.raises(ValueError, match="every sequence"):
        exact_policy_gradient(policy, lambda s: None)


def test_multisets_cover_all_groups():
    """Oracle: enumeration of ordered groups. Mutant: leave out the multinomial coefficient."""
    p = [0.5, 0.3, 0.2]
    found = dict(outcomes(p, 3))
    assert sum(found.values()) == pytest.approx(1)
    assert found[0, 1, 1] == pytest.approx(3 * 0.5 * 0.09)
    assert found[0, 1, 2] == pytest.approx(6 * 0.03)


def test_groups_are_real():
    """Oracle: the group's own records against the policy."""
    policy = TabularPolicy.random(2, eos=2)
    maker = GroupMaker(policy, graded)
    group = maker.group([0, 5])
    for i, s in enumerate((0, 5)):
        response = group.response(group.trajectories[i])
        assert response.tokens == policy.sequences()[s]
        assert response.logp_old.sum() == pytest.approx(policy.probabilities()[s].log().item())
        assert group.trajectories[i].terminated == (2 in response.tokens)


@pytest.mark.parametrize("eos", [None, 2])
@pytest.mark.parametrize("objective", [Reinforce(), PPOClip(), PPOClip(dual_clip=3.0)], ids=str)
@pytest.mark.parametrize("group_size", [2, 3])
def test_leave_one_out_is_unbiased(eos, objective, group_size):
    """Oracle: the exact gradient. Mutant: a baseline that holds the rollout's own reward."""
    policy = TabularPolicy.random(3, eos=eos)
    got = expected_estimator_gradient(policy, graded, group_size, leave_one_out, objective, SUM)
    assert bias(exact_policy_gradient(policy, graded), got).relative < 1e-12


@pytest.mark.parametrize("group_size", [2, 3])
def test_group_mean_is_unbiased_up_to_scale(group_size):
    """Oracle: the exact gradient times (G−1)/G, which a baseline with the own reward costs."""
    policy = TabularPolicy.random(3, eos=2)
    got = expected_estimator_gradient(policy, graded, group_size, GroupNorm(scale=False), PPOClip(), SUM)
    found = bias(exact_policy_gradient(policy, graded), got)
    assert found.relative_up_to_scale < 1e-12
    assert found.scale == pytest.approx((group_size - 1) / group_size)


def test_what_is_biased():
    """Oracle: the exact gradient: direction is lost by the std, by the token mean and by 1/length.

    Mutant: an oracle whose reduce sees all groups as one step makes the token mean unbiased.
    """
    policy = TabularPolicy.random(3, eos=2)
    exact = exact_policy_gradient(policy, graded)
    for credit, reduce in [
        (GroupNorm(), SUM),
        (leave_one_out, TokenMean()),
        (leave_one_out, SequenceMean()),
    ]:
        got = expected_estimator_gradient(policy, graded, 2, credit, PPOClip(), reduce)
        assert bias(exact, got).relative_up_to_scale > 0.01
    fixed = TabularPolicy.random(3)  # all lengths equal: the token mean only scales
    got = expected_estimator_gradient(fixed, graded, 2, leave_one_out, PPOClip(), TokenMean())
    assert bias(exact_policy_gradient(fixed, graded), got).relative_up_to_scale < 1e-12


def test_importance_weights_repair_another_sampler():
    """Oracle: the exact gradient. The whole-sequence weight is not a token's, so a bandit (length 1)
    is exact, unclipped; the clip and no weight at all are biased."""
    policy, other = (TabularPolicy.random(seed, num_words=4, length=1) for seed in (5, 6))

    def reward(sequence: tuple[int, ...]) -> float:
        return (0.0, 1.0, 0.5, 0.2)[sequence[0]]

    exact = exact_policy_gradient(policy, reward)

    def found(objective):
        got = expected_estimator_gradient(policy, reward, 2, raw_reward, objective, SUM, behaviour=other)
        return bias(exact, got).relative

    assert found(Reinforce(ratio_cap=float("inf"))) < 1e-12
    assert found(Reinforce()) > 0.05
    assert found(PPOClip()) > 0.05


def raw_reward(group: Group) -> Group:
    """The reward itself as credit: no baseline, so that the ratio may depend on the sampler."""
    credited = [
        msgspec.structs.replace(t, advantages=(t.score,) * group.nodes[t.leaf].num_steps)
        for t in group.trajectories
    ]
    return msgspec.structs.replace(group, trajectories=tuple(credited))


def test_unscored_rollouts_are_in_no_denominator():
    """Oracle: a loop over ordered pairs, of which half of the sequences are not scored. Mutant: count an
    unscored rollout in the mean."""
    policy = TabularPolicy.random(7, length=2)

    def half(sequence: tuple[int, ...]) -> float | None:
        return None if sequence[0] == 0 else 1.0 + sequence[1]

    def credit(group: Group) -> Group:
        credited = [msgspec.structs.replace(t, advantages=(t.score or 0.0,) * 2) for t in group.trajectories]
        return msgspec.structs.replace(group, trajectories=tuple(credited))

    got = expected_estimator_gradient(policy, half, 2, credit, Reinforce(), SUM)
    logits = policy.logits.clone().requires_grad_(True)
    logp, p = policy.logps(logits).sum(1), policy.probabilities()
    rewards = [half(s) for s in policy.sequences()]
    value = torch.zeros((), dtype=torch.float64)
    for i, one in enumerate(rewards):
        for j, two in enumerate(rewards):
            scored = [(k, r) for k, r in ((i, one), (j, two)) if r is not None]
            value = value + p[i] * p[j] * sum(r * logp[k] for k, r in scored) / max(len(scored), 1)
    assert torch.allclose(got, torch.autograd.grad(value, logits)[0], atol=1e-12)


def test_gspo_first_gradient_on_policy():
    """Oracle: law 7 for sequences: GSPO with the sequence mean equals REINFORCE with it."""
    policy = TabularPolicy.random(8, eos=2)
    one, two = (
        expected_estimator_gradient(policy, graded, 2, leave_one_out, objective, SequenceMean())
        for objective in (GSPO(), Reinforce())
    )
    assert torch.allclose(one, two, atol=1e-12)
