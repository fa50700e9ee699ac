"""The verification hierarchy: who decided stands in the verdict. Oracle: by hand, and a simulated loop."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from rollwright.errors import ConfigError
from rollwright.grade.hierarchy import Hierarchy, Loop, Signal
from rollwright.grade.verdict import Status, Verdict

LADDER = Hierarchy(
    (
        (Signal.SELF_CONSISTENCY, "votes"),
        (Signal.EXECUTION, "tests"),
        (Signal.JUDGE, "judge"),
        (Signal.EXACT_CHECK, "answer"),
    )
)


def says(score, status=None, detail=""):
    return lambda: Verdict(score, status or ("right" if score == 1 else "wrong"), detail=detail, grader="g/1")


def test_the_strongest_with_an_answer_decides_whatever_the_order():
    """By hand: tests before an exact check before a judge before votes; a wrong answer decides as well."""
    given = {"votes": says(1.0), "judge": says(1.0), "answer": says(1.0), "tests": says(0.0, Status.TIMEOUT)}
    verdict = LADDER.grade(given)
    assert (verdict.score, verdict.status, verdict.settings["signal"]) == (0.0, "timeout", "execution")
    assert verdict.rewards == {"signal_rank": 6.0} and verdict.grader == "hierarchy/1>g/1"
    for gone, decides in (("tests", "exact_check"), ("answer", "judge"), ("judge", "self_consistency")):
        del given[gone]
        verdict = LADDER.grade(given)
        assert (verdict.score, verdict.settings["signal"]) == (1.0, decides)
        assert f"{gone} not_scored" in verdict.settings["passed_over"]
    del given["votes"]
    assert LADDER.grade(given).score is None


def test_failures_of_ours_give_way_and_are_named():
    """By hand: a sandbox that is down and a check that raises are passed over; no failure becomes a score."""
    given = {
        "tests": says(None, Status.INFRASTRUCTURE_ERROR, "no sandbox"),
        "answer": lambda: 1 / 0,
        "judge": says(0.5),
    }
    verdict = LADDER.grade(given)
    assert (verdict.score, verdict.rewards["signal_rank"]) == (0.5, 3.0)
    assert "tests infrastructure_error (no sandbox)" in verdict.settings["passed_over"]
    assert verdict.settings["passed_over"] in verdict.detail  # details are recorded, settings are not
    assert "answer grader_error (ZeroDivisionError" in verdict.settings["passed_over"]


def test_a_signal_below_the_least_may_not_decide():
    """By hand: with least = EXACT_CHECK a judge alone leaves the answer unscored, and is not even asked."""
    asked = []
    judge = lambda: asked.append(1) or Verdict(1.0, "right")  # noqa: E731
    ladder = Hierarchy(LADDER.sources, least=Signal.EXACT_CHECK)
    verdict = ladder.grade({"judge": judge})
    assert (verdict.score, verdict.status, asked) == (None, "not_scored", [])


def test_an_audit_asks_all_and_names_who_disagrees():
    """By hand: tests decide; the judge agrees, the votes do not; each one's score is kept."""
    ladder = Hierarchy(LADDER.sources, audit=True)
    verdict = ladder.grade({"tests": says(1.0), "judge": says(1.0), "votes": says(0.0)})
    assert verdict.score == 1.0 and verdict.settings["disagree"] == "votes"
    kept = {"signal:tests": 1.0, "signal:judge": 1.0, "signal:votes": 0.0, "signal_rank": 6.0}
    assert verdict.rewards == kept


def test_a_loop_may_not_be_judged_by_what_it_changes():
    """Oracle: the rule of catalogue row 38."""
    parts = {"judged_by": frozenset({"tests"}), "optimises": frozenset({"policy"})}
    assert Loop("rl", "policy", Signal.EXECUTION, **parts).signal is Signal.EXECUTION
    with pytest.raises(ConfigError, match="judged by what it optimises \\(policy\\)"):
        Loop("self", "policy", Signal.SELF_ASSESSMENT, frozenset({"policy"}), frozenset({"policy"}))
    with pytest.raises(ConfigError, match="judged_by is empty"):
        Loop("none", "policy", Signal.JUDGE, frozenset(), frozenset({"policy"}))
    with pytest.raises(ConfigError, match="expected behaviour"):
        Loop("odd", "luck", Signal.JUDGE, frozenset({"a"}), frozenset({"b"}))


def improved(noise, bias_per_step, seed):
    """Keep a change if it is judged better; return (true gain, measured gain) after 200 changes."""
    draw = np.random.default_rng(seed)
    true = measured = 0.0
    for _ in range(200):
        change, inflation = draw.normal(0, 1), abs(draw.normal(0, bias_per_step))
        seen = change + draw.normal(0, noise) + inflation
        if seen > 0:
            true, measured = true + change, measured + seen
    return true, measured


def test_true_gain_falls_with_the_rank_and_self_grading_only_looks_good():
    """Oracle: a simulated loop with more noise at lower ranks: true gain is monotone in the rank.

    A loop that grades itself (its changes also raise its own grades) measures far more than it gains.
    """
    noises = {signal: 8.0 / 2.0 ** (signal - 1) for signal in Signal}
    gains = [np.mean([improved(noises[signal], 0.0, seed)[0] for seed in range(20)]) for signal in Signal]
    assert all(low < high for low, high in itertools.pairwise(gains)), gains
    own = [improved(8.0, 10.0, seed) for seed in range(20)]
    true, measured = (np.mean(values) for values in zip(*own, strict=True))
    assert measured > 20 * abs(true) and true < gains[-1] / 4
