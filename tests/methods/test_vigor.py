"""VIGOR: the budget is spent exactly, in rounds, where the rewards vary most."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from methods_help import run, sampled

from rollwright.errors import ConfigError
from rollwright.methods.grpo import grpo
from rollwright.methods.vigor import vigor
from rollwright.stage import GroupView, Left, StepView
from rollwright.stages.allocate.variance_rounds import VarianceRounds, variance
from rollwright.testing.fake import FakeEngine, ToyTask


def group_view(i: int, num_granted: int, rewards: tuple[float | None, ...]) -> GroupView:
    return GroupView(f"g{i}", f"t{i}", num_granted, rewards, 0, True, True, False, 0)


def allocate(stage: VarianceRounds, p: np.ndarray, seed: int, budget: float = math.inf) -> np.ndarray:
    """Return the rollouts per prompt when prompt i succeeds with probability p[i]."""
    rng = np.random.default_rng(seed)
    rewards: list[list[float]] = []
    granted: list[int] = []
    for number in range(100):
        groups = tuple(group_view(i, n, tuple(rewards[i])) for i, n in enumerate(granted))
        view = StepView(0, 0, number, len(p), groups)
        grant = stage.grant(view, Left(budget - sum(granted), math.inf))
        if grant.is_empty:
            break
        granted += [grant.each] * grant.new_tasks
        rewards += [list((rng.random(grant.each) < q).astype(float)) for q in p[: grant.new_tasks]]
        for name, num in grant.extra.items():
            granted[int(name[1:])] += num
            rewards[int(name[1:])] += list((rng.random(num) < p[int(name[1:])]).astype(float))
    return np.array(granted)


def heavy_tailed(seed: int, num: int = 64) -> np.ndarray:
    """Return success probabilities whose variances p(1 − p) are Pareto distributed."""
    v = np.minimum(0.25, 0.01 * (1 + np.random.default_rng(seed).pareto(1.0, num)))
    return 0.5 - np.sqrt(0.25 - v)


@pytest.mark.parametrize("rounds", [0, 1, 2, 3, 7])
@pytest.mark.parametrize(("each", "first"), [(8, 4), (5, 2), (4, 4)])
def test_the_budget_is_spent_exactly(rounds: int, each: int, first: int) -> None:
    """Oracle: closed form. The rollouts of a step add up to each · prompts, whatever the rewards."""
    for seed in range(5):
        n = allocate(VarianceRounds(each, first, rounds), heavy_tailed(seed, 13), seed)
        assert n.sum() == each * 13
        assert n.min() >= (first if rounds else each)
        assert (allocate(VarianceRounds(each, first, rounds), np.zeros(13), seed) == each).all()
        # Fewer rollouts than rounds: no round may end the step early.
        assert allocate(VarianceRounds(5, 4, rounds), np.array([0.5, 0.5, 0.0]), seed).sum() == 15


def test_a_run_spends_the_budget_exactly_in_unequal_groups() -> None:
    """Oracle: ledger law. Four tasks of eight in three steps are 96 rollouts, and some group is larger."""
    result = run(vigor(each=8, first=4))
    assert result.ledger.spent["rollouts"] == 96
    sizes = [[len(group.trajectories) for group in batch.groups] for batch in result.batches]
    assert [sum(step) for step in sizes] == [32] * 3
    assert max(map(max, sizes)) > 8 > min(map(min, sizes)) >= 4


def test_variance_captured_exceeds_uniform_and_grows_with_rounds() -> None:
    """Oracle: closed form. Σ nᵢ·pᵢ(1 − pᵢ) / Σ nᵢ of the true p, mean over 200 draws of 64 prompts."""
    means, errors = [], []
    for rounds in (0, 1, 2, 4, 8):
        captured = []
        for seed in range(200):
            p = heavy_tailed(seed)
            n = allocate(VarianceRounds(8, 4, rounds, top=0.1), p, seed)
            captured.append(float((n * p * (1 - p)).sum() / n.sum()))
        means.append(np.mean(captured))
        errors.append(np.std(captured) / np.sqrt(200))
    print("captured variance for 0, 1, 2, 4, 8 rounds:", np.round(means, 4), "±", np.round(errors, 4))
    assert all(b > a for a, b in itertools.pairwise(means)), means
    assert means[1] > 1.5 * means[0]
    assert means[-1] - means[1] > 3 * max(errors)


def test_variance_ranks_prompts_by_the_size_of_their_gradient() -> None:
    """Oracle: enumeration. Exact ‖∇E[r]‖ of softmax bandits whose arms are right or wrong.

    ∂/∂θₐ E[r] = πₐ(rₐ − p), so ‖∇‖² = Σ πₐ²(rₐ − p)². The variance p(1 − p) is what VIGOR ranks by.
    """
    rng = np.random.default_rng(0)
    variances, norms = [], []
    for _ in range(400):
        policy = np.exp(rng.normal(0, 2, 6))
        policy /= policy.sum()
        r = (rng.random(6) < 0.5).astype(float)
        p = float(policy @ r)
        variances.append(p * (1 - p))
        norms.append(float(np.sqrt((policy**2 * (r - p) ** 2).sum())))
    ranks = [np.argsort(np.argsort(x)) for x in (variances, norms)]
    assert np.corrcoef(*ranks)[0, 1] > 0.9


@pytest.mark.parametrize("seed", range(20))
def test_a_round_gives_to_the_highest_variance(seed: int) -> None:
    """Oracle: slow reference. Who gets something has at least the variance of all who get nothing."""
    rng = np.random.default_rng(seed)
    groups = [group_view(i, 4, tuple(map(float, rng.random(4) < rng.random()))) for i in range(12)]
    shares = VarianceRounds(top=0.25).share(groups, 7)
    v = {group.id: float(np.var(group.rewards)) for group in groups}
    assert sum(shares.values()) == 7
    assert max(shares.values()) - min(shares.values()) <= 1
    if max(v.values()) > 0:
        assert len(shares) <= 3
        assert min(v[name] for name in shares) > 0
        rest = [v[group.id] for group in groups if group.id not in shares]
        assert min(v[name] for name in shares) >= max(rest) - 1e-12


def test_unscored_rewards_and_ties() -> None:
    """Oracle: closed form. None is no reward; ties go to fewer rollouts, then to the first opened."""
    assert variance((1.0, None, 0.0, None)) == 0.25
    assert variance((1.0, None)) == variance(()) == variance((0.3, 0.3, 0.3)) == 0.0
    stage = VarianceRounds(top=0.5)
    groups = [
        group_view(0, 6, (1.0, 0.0)),
        group_view(1, 4, (1.0, 0.0)),
        group_view(2, 4, (None, None)),
        group_view(3, 4, (1.0, 0.0)),
    ]
    assert stage.share(groups, 3) == {"g1": 2, "g3": 1}
    one = [group_view(0, 4, (1.0, 0.0)), group_view(1, 4, (1.0, 1.0)), group_view(2, 4, (0.0, 0.0))]
    assert VarianceRounds(top=1.0).share(one, 5) == {"g0": 5}, "a group without variance got some"
    flat = [group_view(0, 6, (1.0,)), group_view(1, 4, (0.0,)), group_view(2, 4, (None,))]
    assert stage.share(flat, 3) == {"g1": 2, "g0": 1}
    assert stage.share([group_view(0, 4, ())], 3) == {}


def test_a_prompt_that_cannot_be_graded_gets_no_more() -> None:
    """Oracle: ledger law. Every grade of the task fails: only the first rollouts are spent."""
    result = run(vigor(each=6, first=2), task=ToyTask(bad=""), num_steps=1)
    assert result.batches == []
    assert result.ledger.spent["rollouts"] == 4 * 2
    assert set(result.ledger.reasons) == {"failed:not_scored:grader_error"}


def test_a_smaller_budget_is_spent_whole() -> None:
    """Oracle: closed form. 26 rollouts for 8 prompts: 6 prompts get 4, the 2 left go to a round."""
    n = allocate(VarianceRounds(8, 4, 2), np.full(8, 0.5), seed=0, budget=26)
    assert len(n) == 6
    assert n.sum() == 26


def test_without_rounds_it_is_grpo() -> None:
    """Oracle: other implementation. rounds=0 gives GRPO's batches, bit for bit."""
    assert run(vigor(each=6, rounds=0)).batches == run(grpo(each=6)).batches


def test_it_bites_and_the_order_of_arrival_changes_nothing() -> None:
    """Oracle: metamorphic. Other groups than GRPO's, the same ones in any order of arrival."""
    want = run(vigor(each=6, first=3))
    plain = run(grpo(each=6))
    assert [sampled(*x) for x in want.trained()] != [sampled(*x) for x in plain.trained()]
    for arrival in range(4):
        engine = FakeEngine(arrival=arrival)
        assert run(vigor(each=6, first=3), engine=engine, chunk=2 + arrival).batches == want.batches


def test_bad_numbers_are_refused() -> None:
    """Oracle: closed form."""
    for options in ({"first": 1}, {"first": 9}, {"rounds": -1}, {"top": 0.0}, {"each": 0, "rounds": 0}):
        with pytest.raises(ConfigError, match="expected"):
            vigor(**options)
