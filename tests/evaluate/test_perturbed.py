"""Single perturbations against all together (catalogue row 227)."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from rollwright.errors import DataError
from rollwright.evaluate.perturbed import Matched, compose, match


def test_every_case_of_two_perturbations() -> None:
    """Oracle: enumeration and the definitions by hand. Kills: a change that is missed or counted twice."""
    names = {True: "right", False: "wrong"}
    found = {}
    for a, b, joint in itertools.product((True, False), repeat=3):
        run = Matched("x", 0, {"a": a, "b": b}, joint)
        kind = "emergent" if run.is_emergent else "compensated" if run.is_compensated else ""
        found[names[a], names[b], names[joint]] = kind
    assert {case for case, kind in found.items() if kind == "emergent"} == {("right", "right", "wrong")}
    assert {case for case, kind in found.items() if kind == "compensated"} == {
        ("right", "wrong", "right"),
        ("wrong", "right", "right"),
        ("wrong", "wrong", "right"),
    }


def planted(rng: np.random.Generator, num: int, emergent: float, compensated: float) -> list[Matched]:
    """A policy whose perturbations interact: so many runs of each kind change."""
    runs = []
    for k in range(num):
        u = rng.random()
        if u < emergent:
            singles, joint = (True, True), False
        elif u < emergent + compensated:
            singles, joint = ((True, False), (False, True), (False, False))[k % 3], True
        else:
            singles = (True, True) if rng.random() < 0.6 else (True, False)
            joint = all(singles)
        runs.append(Matched(f"task {k}", 0, dict(zip(("a", "b"), singles, strict=True)), joint))
    return runs


def test_the_identity_holds_and_a_hidden_change_is_found() -> None:
    """Oracle: joint - all singles = compensated - emergent, exactly; planted rates of 15% each lie inside.

    Kills: a difference of means that says "nothing happens" where 30% change.
    """
    found = compose(planted(np.random.default_rng(1), 600, 0.15, 0.15))
    assert found.joint.mean - found.all_singles.mean == pytest.approx(found.difference.mean, abs=1e-12)
    assert found.changed.mean == pytest.approx(found.emergent.mean + found.compensated.mean)
    assert found.hides and found.changed.low < 0.30 < found.changed.high
    assert found.emergent.low < 0.15 < found.emergent.high
    opposed = compose(planted(np.random.default_rng(2), 600, 0.20, 0.02))
    assert not opposed.hides and opposed.difference.high < 0
    still = compose(planted(np.random.default_rng(3), 200, 0.0, 0.0))
    assert not still.hides and still.changed.mean == 0 and still.joint == still.all_singles
    assert (
        0 < still.changed.high < 0.03 and still.difference.low == -still.changed.high
    )  # none of 200 is not never


def test_the_paired_interval_covers_with_several_seeds() -> None:
    """Oracle: simulation: instances with 4 seeds each. Kills: seeds of one instance taken as independent."""
    rng = np.random.default_rng(5)
    covered = 0
    for _ in range(300):
        runs = []
        for k in range(25):
            p_emergent = rng.beta(0.5, 2)  # 0.2 on average, differs between instances
            for seed in range(4):
                joint = rng.random() >= p_emergent
                runs.append(Matched(str(k), seed, {"a": True, "b": True}, joint))
        found = compose(runs)
        covered += found.difference.low <= -0.2 <= found.difference.high
    assert covered / 300 >= 0.95 - 3 * math.sqrt(0.05 * 0.95 / 300)
    assert (found.num, found.num_instances) == (100, 25)


def test_matching_by_instance_and_seed() -> None:
    """Oracle: hand. Kills: runs joined by position, an instance without a condition counted as failed."""
    conditions = {
        "a": {("y", 0): True, ("x", 0): False, ("x", 1): True},
        "b": {("x", 0): True, ("x", 1): True, ("y", 0): False},
        "all": {("x", 1): False, ("x", 0): True},
    }
    runs, num_unmatched = match(conditions, "all")
    assert num_unmatched == 1
    assert runs == [
        Matched("x", 0, {"a": False, "b": True}, True),
        Matched("x", 1, {"a": True, "b": True}, False),
    ]
    with pytest.raises(DataError, match="no condition"):
        match(conditions, "both")
    with pytest.raises(DataError, match="at least one"):
        compose([])
    with pytest.raises(DataError, match="under"):
        compose([runs[0], Matched("z", 0, {"a": True}, True)])
