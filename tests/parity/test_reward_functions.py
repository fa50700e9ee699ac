"""Reward functions that TRL and verl ship, called by us in a worker process and directly: equal numbers."""

from __future__ import annotations

import pytest

from rollwright.grade.reward import Call, RewardSettings, load_reward

pytestmark = pytest.mark.slow

TALK = RewardSettings(workers=1, conversational=True, isolation="process")
TEXT = RewardSettings(workers=1, isolation="process")


def test_trl_s_functions() -> None:
    """Oracle: other implementation: the functions called as TRL's trainer calls them."""
    from trl.rewards.accuracy_rewards import accuracy_reward
    from trl.rewards.format_rewards import think_format_reward

    said = ["<think>\nx\n</think>\nA", "<think>x", "", "<think>a</think><think>b</think>", "no"]
    ours = load_reward(think_format_reward, TALK).many([Call("q", (text,)) for text in said])
    assert [v.score for v in ours] == think_format_reward([[{"content": text}] for text in said])
    said = ["\\boxed{\\frac{1}{3}}", "\\boxed{0.5}", "none", "\\boxed{2}"]
    truth = ["\\frac{1}{3}", "\\frac{1}{2}", "$x$", "3"]
    calls = [Call("q", (text,), {"solution": gold}) for text, gold in zip(said, truth, strict=True)]
    ours = load_reward(accuracy_reward, TALK).many(calls)
    assert [v.score for v in ours] == accuracy_reward([[{"content": text}] for text in said], truth)
    assert {v.settings["isolation"] for v in ours} == {"process"}


def test_verl_s_functions() -> None:
    """Oracle: other implementation: a number, and a dict with further entries."""
    from verl.utils.reward_score import gsm8k, math_dapo

    for text in ("#### 42", "#### 41", "42"):
        ours = load_reward(gsm8k.compute_score, TEXT)("q", text, {"answer": "42"})
        assert ours.score == gsm8k.compute_score(text, "42")
    for text in ("Answer: 42", "Answer: 7"):
        ours = load_reward(math_dapo.compute_score, TEXT)("q", text, {"answer": "42"})
        theirs = math_dapo.compute_score(text, "42")
        assert (ours.score, ours.extracted) == (theirs["score"], theirs["pred"])
        assert ours.rewards["compute_score/acc"] == float(theirs["acc"])
