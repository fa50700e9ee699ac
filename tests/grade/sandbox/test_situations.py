"""Hostile programs in every situation that this machine can make. Oracle: by hand, and the system's lists."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hostile import BATTERY
from situations import possible, run

from rollwright.grade.sandbox.program import Program

POSSIBLE = possible()


@pytest.fixture(scope="module", params=POSSIBLE)
def found(request: pytest.FixtureRequest) -> dict[str, Any]:
    # Time is short only for those that must use it up.
    programs = [(Program(one.code), 1.0 if one.endings == "timeout" else 20.0) for one in BATTERY.values()]
    result = run(request.param, programs, memory_mb=256, num_processes=24, file_mb=16)
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


def test_all_situations_of_this_machine_are_tried() -> None:
    """By hand: as root nothing is left out but what the kernel refuses; plain always works."""
    assert "user, plain" in POSSIBLE and "user, plain, no Landlock" in POSSIBLE
    assert Path(tempfile.gettempdir()).is_dir()
