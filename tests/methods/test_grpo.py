"""GRPO: groups of one size, advantages against the group, a mean per rollout."""

from __future__ import annotations

import statistics

import numpy as np
import pytest
from methods_help import run

from rollwright.discovery import load_method
from rollwright.errors import ConfigError, UnknownName
from rollwright.method import Method
from rollwright.methods.grpo import grpo


def test_advantages_are_those_of_the_group() -> None:
    """Oracle: slow reference. (r − mean) / (sample std + 1e-6) by the statistics module, per group."""
    groups = [group for batch in run(grpo(each=5)).batches for group in batch.groups]
    assert all(len(group.trajectories) == 5 for group in groups)
    num_mixed = 0
    for group in groups:
        rewards = [t.reward for t in group.trajectories]
        mean, spread = statistics.mean(rewards), statistics.stdev(rewards)
        num_mixed += spread > 0
        for t in group.trajectories:
            want = (t.reward - mean) / (spread + 1e-6) if spread else 0.0
            assert t.advantages == pytest.approx([want] * len(t.advantages), rel=1e-12)
    assert num_mixed > 3


def test_the_default_is_the_papers_mean_per_rollout() -> None:
    """Oracle: closed form. Rollouts of 1 and 3 tokens weigh 1/2 each; under a token mean 1/4 and 3/4."""
    is_trained, segment = np.ones(4, dtype=bool), np.array([0, 1, 1, 1])
    assert grpo().reduce(is_trained, segment) == pytest.approx([1 / 2, 1 / 6, 1 / 6, 1 / 6])
    assert grpo(reduce="token_mean").reduce(is_trained, segment) == pytest.approx([1 / 4] * 4)


def test_options_reach_their_stages() -> None:
    """Oracle: closed form. Each option is found where it acts, and only there."""
    method = load_method("grpo", each=3, clip_low=0.1, clip_high=0.28, kl=0.04, scale=False)
    assert (method.objective.clip_low, method.objective.clip_high, method.objective.kl) == (0.1, 0.28, 0.04)
    assert method.allocate.each == 3
    assert not method.credit[0].scale
    assert Method.from_json(method.to_json()) == method


def test_unknown_values_are_refused_with_a_suggestion() -> None:
    """Oracle: closed form. The message names what was given and the nearest that exists."""
    with pytest.raises(UnknownName, match="did you mean 'token_mean'"):
        grpo(reduce="tokn_mean")
    with pytest.raises(UnknownName, match="did you mean 'clip_high'"):
        load_method("grpo", clip_hihg=0.28)
    with pytest.raises(ConfigError, match="at least 1"):
        grpo(each=0)
