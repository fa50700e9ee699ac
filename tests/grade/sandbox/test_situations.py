"""Hostile programs in every situation that this machine can make. Oracle: by hand, and the system's lists."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hostile import BATTERY
from situations import possible, run

from rollwright.grade.sandbox.program import Program

LONG = ("root, plain", "user, namespaces")  # in the long tests only
NAMES = [pytest.param(name, marks=pytest.mark.slow if name in LONG else ()) for name in possible()]


@pytest.fixture(scope="module", params=NAMES)
def found(request: pytest.FixtureRequest) -> dict[str, Any]:
    # Time is short only for those that must use it up.
    programs = [(Program(one.code), 1.0 if one.endings == "timeout" else 20.0) for one in BATTERY.values()]
    limits = {"memory_mb": 256, "num_processes": 24, "file_mb": 16}
    result = run(request.param, programs, check="namespaces" not in request.param, **limits)
    if result is None:  # this kernel gives none: then it must hold without
        result = run(request.param.replace("namespaces", "plain"), programs, **limits)
    assert result is not None
    return {**result, "outcomes": dict(zip(BATTERY, result["outcomes"], strict=True))}


def test_each_program_ends_as_it_must(found: dict[str, Any]) -> None:
    """By hand: the table. Kills: a limit that is not set, a limit that is called something else."""
    for name, hostile in BATTERY.items():
        outcome = found["outcomes"][name]
        assert outcome["ending"] in hostile.endings.split(), (name, outcome)
        assert hostile.word in outcome["stdout"], (name, outcome)


def test_nothing_is_left(found: dict[str, Any]) -> None:
    """Oracle: the system's processes and files, before and after. Kills: clean-up of the first child only."""
    assert found["processes_left"] == [] and found["files_left"] == []
    assert found["num_processes_idle"] <= 2 * 3, "beside the slots' own"


def test_what_is_said_to_be_on_is_on(found: dict[str, Any]) -> None:
    """Oracle: the programs that try. Kills: a protection that is claimed and not there."""
    outcomes, protections = found["outcomes"], found["protections"]
    assert all(protections[name]["is_on"] for name in ("network", "signals", "cleanup", "time", "memory"))
    assert "connected" not in outcomes["network"]["stdout"]
    hidden = protections["filesystem"]["is_on"]
    assert ("nothing" in outcomes["secret"]["stdout"]) == hidden
    assert found["secret_is_there"] == hidden
    if hidden:
        assert "got []" in outcomes["other memory"]["stdout"], outcomes["other memory"]


def test_all_situations_are_tried() -> None:
    """By hand: as root all five, as another user the three that are not root's."""
    names = possible()
    assert {"user, namespaces", "user, plain", "user, plain, no Landlock"} <= set(names)
    assert len(names) == (5 if os.geteuid() == 0 else 3)
