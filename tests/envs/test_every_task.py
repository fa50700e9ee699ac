"""Every task that is registered, whoever wrote it: any point of an episode can be gone on from."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollwright.envs._episodes import draw_turns, mark_of, play
from rollwright.envs.check import check_env
from rollwright.rng import generator
from rollwright.tasks.registry import load_task, task_factories

_NEED_A_NAME = {"gym": "gym:leg_counting", "gymnasium": "gymnasium:FrozenLake-v1"}
_LEFT_OUT = {"jsonl", "textarena", "openenv", "verifiers"}  # their own tests have rows, games and servers
SPECS = [_NEED_A_NAME.get(name, name) for name in sorted(task_factories()) if name not in _LEFT_OUT]
_TASKS = {}


def task_of(spec):
    """Make each task once: some take a while."""
    if spec not in _TASKS:
        _TASKS[spec] = load_task(spec, **({"size": 40} if spec.startswith("gym:") else {}))
    return _TASKS[spec]


SEVERAL_TURNS = [spec for spec in SPECS if task_of(spec).max_turns > 1]


def test_the_tasks_are_found():
    """Oracle: the tasks that there are at least. Broken by: a registry that finds nothing."""
    assert {"lake", "calc", "gymnasium:FrozenLake-v1"} <= set(SEVERAL_TURNS) and len(SPECS) > len(
        SEVERAL_TURNS
    )


@pytest.mark.parametrize("spec", SEVERAL_TURNS)
@given(seed=st.integers(0, 2**20), number=st.integers(0, 9), at=st.integers(0, 12))
@settings(max_examples=8, deadline=None)
def test_a_branch_is_a_fresh_replay(spec, seed, number, at):
    """Oracle: the same turns played from the reset. Broken by: a state that a step changes."""
    task = task_of(spec)
    task_id = task.ids("train")[number]
    turns = draw_turns(task, task_id, generator(seed, "turns"), min(task.max_turns, 8))
    others = draw_turns(task, task_id, generator(seed, "others"), min(task.max_turns, 8))
    episode = play(task, task.reset(task_id), turns)
    at = min(at, max(len(episode.turns) - 1, 0))
    branch = play(task, episode.states[at], others)
    assert [mark_of(task, state) for state in episode.states] == episode.marks
    whole = play(task, task.reset(task_id), [*episode.turns[:at], *branch.turns])
    assert (whole.seen[at:], whole.marks[at:]) == (branch.seen, branch.marks)
    again = play(task, episode.states[at], episode.turns[at:])
    assert (again.seen, again.marks) == (episode.seen[at:], episode.marks[at:])


@pytest.mark.parametrize("spec", SPECS)
def test_check_env(spec):
    """Oracle: the checks, each of which is tested by itself."""
    options = {"size": 40} if spec.startswith("gym:") else {}
    report = check_env(lambda: load_task(spec, **options), num=2, max_turns=6)
    assert report.is_right, [finding for finding in report.findings if finding.problem]
