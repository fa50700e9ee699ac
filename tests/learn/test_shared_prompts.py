"""Prompts that rows share go through the model once, and nothing else changes."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from learn_help import Spec, make_group, mixed_groups, tiny_model

from rollwright.learn import packing
from rollwright.learn.config import LearnerConfig
from rollwright.learn.gradient import accumulate
from rollwright.learn.packing import MAX_SPREAD, cut, plan_step
from rollwright.learn.rows import rows_of
from rollwright.stages.objective.gspo import GSPO
from rollwright.stages.objective.ppo_clip import PPOClip
from rollwright.stages.reduce.token_mean import TokenMean

ALWAYS, NEVER = -1.0, 2.0  # for MIN_SAVED


def plan(model, groups, objective, budget, min_saved, monkeypatch):
    monkeypatch.setattr(packing, "MIN_SAVED", min_saved)
    return plan_step(rows_of(groups, 0, LearnerConfig()), objective, TokenMean(), budget, model.embed)


def gradient(model, groups, objective, budget, min_saved, monkeypatch):
    plans = plan(model, groups, objective, budget, min_saved, monkeypatch)
    outcomes = accumulate(model, objective, plans.micro_batches)
    loss = sum(float(outcome.loss) for outcome in outcomes)
    return loss, torch.cat([p.grad.flatten() for p in model.parameters()])


def long_group(model, num: int = 6, prompt: int = 9):
    """A long prompt with short answers, of which one trains its first token only."""
    specs = [Spec([("s", [i + 1] * (1 + i % 4), 0)], adv=1.0 - 0.5 * i) for i in range(num)]
    return make_group(model, [i % 7 for i in range(prompt)], specs, "t/2#0")


@pytest.mark.parametrize("objective", [PPOClip(), GSPO(0.1, 0.1)], ids=str)
@pytest.mark.parametrize("budget", [1, 12, 25, 10_000])
def test_gradient_is_that_of_rows_laid_apart(objective, budget, monkeypatch):
    """Law 6. Oracle: the same rows laid apart, which `test_learner` holds against a plain loop; two groups
    ask the same, and members are ragged, old, multi-turn. Mutant: predict the first token from its own row.
    """
    sampler = tiny_model()
    twin = make_group(sampler, [1, 2], [Spec([("s", [9], 0)], adv=2.0)], "t/9#0")
    groups = [*mixed_groups(sampler), long_group(sampler), twin]
    model = tiny_model(scale=8.3)  # not the sampler: the ratios are off 1
    want_loss, want = gradient(model, groups, objective, 10_000, NEVER, monkeypatch)
    loss, grad = gradient(model, groups, objective, budget, ALWAYS, monkeypatch)
    assert loss == pytest.approx(want_loss, rel=1e-10)
    assert torch.allclose(grad, want, rtol=1e-8, atol=1e-12)


def test_a_prompt_is_laid_once(monkeypatch):
    """Oracle: hand. 6 answers of 1, 2, 3, 4, 1, 2 tokens, of which the last is never an input."""
    model = tiny_model()
    (micro,) = plan(model, [long_group(model)], PPOClip(), 10_000, 0.3, monkeypatch).micro_batches
    assert len(micro.tokens_N) == 9 + (0 + 1 + 0 + 3 + 0 + 1)  # the third has no advantage, so no pass
    assert sorted(micro.lengths) == [9, 9, 10, 10, 12]
    assert len(micro.rows_L) == sum(micro.lengths)


def test_short_prompts_are_laid_apart(monkeypatch):
    """Oracle: hand: 2 of 3 prompt tokens of 21 would be saved. Mutant: share whatever it costs."""
    model = tiny_model()
    group = make_group(model, [1], [Spec([("s", [2] * 7, 0)], adv=1.0 + i) for i in range(3)])
    (micro,) = plan(model, [group], PPOClip(), 10_000, 0.3, monkeypatch).micro_batches
    assert micro.rows_L is None and len(micro.tokens_N) == 21


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=5), st.integers(1, 60))
def test_budgets_hold(nums, budget):
    """Oracle: counting. No pack above the budget but a single row; every row in one pack, once."""
    model = tiny_model()
    groups = []
    for i, num in enumerate(nums):
        specs = [Spec([("s", [1] * (1 + (i + j) % 5), 0)], adv=1.0) for j in range(num)]
        groups.append(make_group(model, [i] * (1 + 3 * i), specs, f"t/{i}#0"))
    rows = rows_of(groups, 0, LearnerConfig())
    parts = [packing.Part(row, packing.needed_steps(row, PPOClip()), row.adv_R) for row in rows]
    chunks = cut(parts, budget, shares=True)
    assert sorted(part.row.name for chunk in chunks for part in chunk) == sorted(row.name for row in rows)
    for chunk in chunks:
        laid = len(packing.pack(chunk, model.embed, shares=True).tokens_N)
        assert len(chunk) == 1 or laid <= budget
        assert len(chunk) == 1 or sum(part.num_tokens for part in chunk) <= MAX_SPREAD * budget
