"""Weighted rubrics with gates: sums by hand, enumerated trajectories, and a bandit's exact gradient."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from rollwright.errors import ConfigError
from rollwright.grade.rubric import Criterion, Level, Rubric, flat, gated_return
from rollwright.grade.verdict import Status, Verdict

GATED = Rubric(
    (
        Level((Criterion("tests"),), threshold=1.0),
        Level((Criterion("format", 0.3), Criterion("tools", 0.2)), threshold=0.3),
        Level((Criterion("style", 0.1),)),
    )
)


@pytest.mark.parametrize(
    "parts, score, gates",
    [
        ({"tests": 1.0, "format": 1.0, "tools": 1.0, "style": 1.0}, 1.6, "open open open"),
        ({"tests": 1.0, "format": 0.0, "tools": 1.0, "style": 1.0}, 1.2, "open closed"),
        ({"tests": 0.5, "format": 1.0, "tools": 1.0, "style": 1.0}, 0.5, "closed"),
        ({"tests": 0.0}, 0.0, "closed"),
        ({"tests": 1.0, "format": 1.0, "tools": 1.0}, None, "open open"),
        ({"format": 1.0, "tools": 1.0, "style": 1.0}, None, ""),
    ],
)
def test_levels_by_hand(parts, score, gates):
    """By hand: 1 + 0.3 + 0.2 + 0.1, cut at the first closed gate; a missing part that counts gives None."""
    verdict = GATED.score(parts)
    assert verdict.score == (None if score is None else pytest.approx(score))
    assert verdict.settings["gates"] == gates
    assert verdict.status == ("not_scored" if score is None else "right" if score >= 1 else "wrong")
    assert set(verdict.rewards) <= set(parts)


def test_parts_behind_a_closed_gate_are_not_asked_for():
    """By hand: a lower level costs nothing where the outcome fails; where it counts it is kept apart."""
    asked = []

    def part(name, value):
        return lambda: asked.append(name) or Verdict(value, "right")

    graders = {"tests": part("tests", 0.0), "format": part("format", 1.0), "tools": part("tools", 0.5)}
    assert GATED.grade(graders).score == 0.0 and asked == ["tests"]
    graders = {**graders, "tests": part("tests", 1.0), "style": part("style", 0.25)}
    verdict = GATED.grade(graders)
    assert verdict.rewards == {"tests": 1.0, "format": 1.0, "tools": 0.5, "style": 0.25}
    assert verdict.score == pytest.approx(1 + 0.3 + 0.1 + 0.025)


@pytest.mark.parametrize(
    "part, status",
    [
        (lambda: None, "not_scored"),
        (lambda: Verdict(None, Status.INFRASTRUCTURE_ERROR), "infrastructure_error"),
        (lambda: 1 / 0, "grader_error"),
        (lambda: float("nan"), "grader_error"),
        (lambda: 1.5, "grader_error"),
        (None, "not_scored"),
    ],
)
def test_a_missing_part_is_never_a_zero(part, status):
    """Oracle: the law; an optional one is left out, and the others take the place of its weight."""
    a, b = Criterion("a", 1.0, low=0.0, high=1.0), Criterion("b", 3.0)
    graders = {"b": lambda: 0.5} | ({"a": part} if part else {})
    verdict = flat(a, b).grade(graders)
    assert (verdict.score, verdict.status) == (None, status) and "a " in verdict.detail
    assert verdict.rewards == {"b": 0.5}
    optional = flat(Criterion("a", 1.0, low=0.0, high=1.0, optional=True), b).grade(graders)
    assert optional.score == 0.5 and "a " in optional.detail
    assert flat(Criterion("a", optional=True)).grade({}).score is None


def test_scales_by_hand():
    """By hand: 2·1 + 1·0 − 1·1: 1 as a sum, 1/4 as a mean, 1/3 in points; points stay within 0 and 1."""
    criteria = (Criterion("a", 2.0), Criterion("b", 1.0), Criterion("bad", -1.0))
    parts = {"a": 1.0, "b": 0.0, "bad": 1.0}
    scores = [flat(*criteria, scale=scale).score(parts).score for scale in ("sum", "mean", "points")]
    assert scores == [1.0, 0.25, pytest.approx(1 / 3)]
    assert flat(*criteria, scale="points").score({"a": 0.0, "b": 0.0, "bad": 1.0}).score == 0.0


def test_a_rubric_of_one_level_is_the_weighted_sum():
    """Oracle: the closed form on random parts; and the order of the criteria does not matter."""
    draw = random.Random(5)
    for _ in range(200):
        weights = [draw.uniform(-2, 2) for _ in range(4)]
        values = [draw.uniform(0, 1) for _ in range(4)]
        criteria = [Criterion(f"c{i}", w) for i, w in enumerate(weights)]
        parts = {f"c{i}": v for i, v in enumerate(values)}
        score = flat(*criteria, scale="sum").score(parts).score
        assert score == pytest.approx(sum(w * v for w, v in zip(weights, values, strict=True)))
        assert flat(*reversed(criteria), scale="sum").score(parts).score == score


def test_no_trajectory_that_fails_the_gate_outranks_one_that_passes():
    """Oracle: enumeration of all outcomes and step bonuses of 3 turns; the plain sum breaks the rule."""
    outcomes, bonuses = (0.0, 0.5, 1.0), tuple(itertools.product((0.0, 0.4, 2.0), repeat=3))
    gated = {(o, b): gated_return(o, b, 1.0) for o in outcomes for b in bonuses}
    passing = [value for (outcome, _), value in gated.items() if outcome >= 1.0]
    failing = [value for (outcome, _), value in gated.items() if outcome < 1.0]
    assert max(failing) < min(passing)
    assert max(o + sum(b) for o, b in gated if o < 1.0) > min(o + sum(b) for o, b in gated if o >= 1.0)
    for (outcome, steps), value in gated.items():
        parts = {"outcome": outcome, **{f"s{t}": step for t, step in enumerate(steps)}}
        lower = Level(tuple(Criterion(f"s{t}") for t in range(3)))
        assert Rubric((Level((Criterion("outcome"),), 1.0), lower)).score(parts).score == pytest.approx(value)
    assert gated_return(None, (1.0,), 1.0) is None and gated_return(1.0, (1.0, None), 1.0) is None
    assert gated_return(0.5, (1.0, None), 1.0) == 0.5


def test_a_bandit_settles_on_the_outcome_only_when_gated():
    """Oracle: exact policy gradient of a softmax bandit with a step reward that can be hacked."""
    arms = {"solve": (1.0, (0.1,)), "hack": (0.0, (0.9, 0.9)), "idle": (0.0, (0.0,))}

    def settled(rewards):
        logits = np.zeros(3)
        for _ in range(400):
            p = np.exp(logits - logits.max())
            p /= p.sum()
            logits += 0.5 * p * (rewards - p @ rewards)
        return list(arms)[int(p.argmax())], p.max()

    plain = np.array([outcome + sum(steps) for outcome, steps in arms.values()])
    gated = np.array([gated_return(outcome, steps, 1.0) for outcome, steps in arms.values()])
    assert settled(plain)[0] == "hack" and settled(gated)[0] == "solve" and settled(gated)[1] > 0.95


def test_what_is_no_rubric_is_refused():
    """Oracle: the error tree."""
    for make in (
        lambda: Rubric(()),
        lambda: Rubric((Level(()),)),
        lambda: flat(Criterion("a"), Criterion("a")),
        lambda: Criterion("a", float("nan")),
        lambda: Criterion("", 1.0),
        lambda: flat(Criterion("a"), scale="median"),
        lambda: flat(Criterion("a")).score({"b": 1.0}),
    ):
        with pytest.raises(ConfigError):
            make()
