"""The single-rollout recipe: a baseline from earlier batches, and weights that are truncated."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from methods_help import run
from test_rlep import bandit_group

from rollwright.errors import ConfigError
from rollwright.methods.sao import sao
from rollwright.methods.single_rollout import single_rollout
from rollwright.stage import Estimate
from rollwright.stages.credit.group_baseline import GroupBaseline
from rollwright.stages.estimate.running_mean import RunningMean
from rollwright.stages.filter.overlong import Overlong
from rollwright.stages.replay.running_baseline import RunningBaseline
from rollwright.testing.fake import FakeEngine, ToyTask

RNG = np.random.default_rng(0)


def test_the_mean_is_plain_first_and_then_forgets():
    """Oracle: closed form. The mean of all until 1/(1 − decay) values; then b·d + y·(1 − d)."""
    values = [1.0, 0.0, 4.0, 2.0, 8.0, 5.0, 3.0]
    plain, forgetful = RunningMean(1.0), RunningMean(0.75)
    assert isinstance(plain, Estimate)
    want = 0.0
    for n, y in enumerate(values, 1):
        plain, forgetful = plain.update(None, y), forgetful.update(None, y)
        assert plain.predict(None) == pytest.approx(sum(values[:n]) / n)
        want = sum(values[:n]) / n if n <= 4 else 0.75 * want + 0.25 * y
        assert forgetful.predict(None) == pytest.approx(want)
    assert RunningMean(0.0).update(None, 1.0).update(None, 7.0).mean == 7.0


def test_a_batch_is_compared_with_earlier_ones_only():
    """Oracle: hand. Baselines 0.5 (start), then the mean of what came before; unscored ones do not count."""
    stage = RunningBaseline(start=0.5, decay=1.0)
    state, credited = stage.init(), []
    for step, rewards in enumerate([[1.0, 0.0], [1.0, None], [0.0, 1.0]]):
        groups = [bandit_group(f"t{i}", [1], [r], visit=step) for i, r in enumerate(rewards)]
        state, based = stage.exchange(state, groups, step, RNG, 2)
        credited.append([GroupBaseline()(group).trajectories[0].advantages[0] for group in based])
    assert credited == [[0.5, -0.5], [0.5, 0.0], [pytest.approx(-2 / 3), pytest.approx(1 / 3)]]
    assert state == (pytest.approx(3 / 5), 5)


def test_the_expected_gradient_is_exact_whatever_the_baseline():
    """Oracle: closed form. One-token policy over three arms, every pair of (earlier, this) reward enumerated:
    E[A·∇log π] is ∇E[R] exactly, for a baseline made of the earlier reward."""
    p, reward = np.array([0.5, 0.3, 0.2]), [1.0, 0.0, 3.0]
    scores = np.eye(3) - p
    exact = sum(p[a] * reward[a] * scores[a] for a in range(3))
    found = np.zeros(3)
    for before, arm in itertools.product(range(3), range(3)):
        stage = RunningBaseline(start=9.0)
        state, _ = stage.exchange(stage.init(), [bandit_group("t", [before], [reward[before]])], 0, RNG, 1)
        _, (group,) = stage.exchange(state, [bandit_group("t", [arm], [reward[arm]], visit=1)], 1, RNG, 1)
        adv = GroupBaseline()(group).trajectories[0].advantages[0]
        found += p[before] * p[arm] * adv * scores[arm]
    assert found == pytest.approx(exact)


def test_a_run_starts_with_single_samples_and_its_baseline_moves():
    """Oracle: recount of the run. Groups of one, each with the mean of all earlier rewards."""
    result = run(single_rollout(start=0.25, decay=1.0), task=ToyTask(), num_steps=6, num_tasks=5)
    seen: list[float] = []
    for batch in result.batches:
        want = sum(seen) / len(seen) if seen else 0.25
        for group in batch.groups:
            (t,) = group.trajectories
            assert group.baseline == pytest.approx(want)
            assert t.advantages == pytest.approx([t.reward - want] * len(t.advantages))
            seen.append(t.reward)
    assert len(seen) == 30 and 0 < sum(seen) < 30


def test_arrival_changes_nothing_and_it_differs_from_sao():
    """Oracle: metamorphic."""
    want = run(single_rollout(), num_steps=4).batches
    assert want != run(sao(), num_steps=4).batches
    for arrival in range(3):
        assert run(single_rollout(), num_steps=4, engine=FakeEngine(arrival=arrival)).batches == want


def test_penalties_and_impossible_numbers():
    """Oracle: hand. The length penalty is there only with a limit and a factor."""
    assert single_rollout().filters == single_rollout(max_tokens=8).filters == ()
    assert single_rollout(max_tokens=8, length_factor=0.5).filters == (Overlong(8, 4, 0.5),)
    with pytest.raises(ConfigError, match="RunningMean"):
        RunningBaseline(decay=1.5)
    with pytest.raises(ConfigError, match="RunningBaseline"):
        RunningBaseline(start=math.nan)
