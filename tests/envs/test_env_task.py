"""Environments as tasks: any point of an episode can be gone on from, whatever keeps its state."""

from __future__ import annotations

import pytest
from env_help import WALKS, OwnWalk, Walk
from hypothesis import given, settings
from hypothesis import strategies as st

from rollwright.envs import EnvTask, Observation, env_task
from rollwright.errors import ConfigError, DataError, EnvironmentFault
from rollwright.tasks.api import Task

TURNS = st.lists(st.sampled_from(["+", "-", "?", "x"]), max_size=9)


def play(task, state, turns):
    """Play turns from a state until it is over; return the states and observations on the way."""
    states, seen = [state], []
    for turn in turns:
        if states[-1].is_over:
            break
        state, observation = task.step(states[-1], turn)
        states.append(state)
        seen.append(observation)
    return states, seen


def by_hand(seed, turns):
    """The oracle: the environment alone, played once from its reset."""
    env = Walk()
    prompt, seen = env.reset(seed), []
    for turn in turns:
        seen.append(env.step(turn))
        if seen[-1].terminated or seen[-1].truncated:
            break
    return prompt, seen


@pytest.mark.parametrize("make", WALKS)
@given(turns=TURNS, others=TURNS, at=st.integers(0, 9), number=st.integers(0, 3))
@settings(max_examples=60, deadline=None)
def test_a_branch_is_a_fresh_replay(make, turns, others, at, number):
    """Oracle: the environment played alone. Broken by: stepping the kept copy instead of a copy of it."""
    task = env_task(make)
    task_id = f"{task.name}/train/{number}"
    states, seen = play(task, task.reset(task_id), turns)
    prompt, right = by_hand(2 * number, turns)
    assert (task.prompt(task_id), seen) == (prompt, right)
    at = min(at, len(states) - 1)
    _, branch = play(task, states[at], others)
    assert seen[:at] + branch == by_hand(2 * number, turns[:at] + others)[1]
    again, rest = play(task, states[at], turns[at:])  # the first line goes on as if nothing had been
    assert rest == seen[at:]
    assert [task.signature(state) for state in again] == [task.signature(state) for state in states[at:]]


@pytest.mark.parametrize("make", WALKS)
def test_it_is_a_task(make):
    """Oracle: the protocol's fields, and the parity of seeds by split."""
    task: Task = env_task(make, "walk", num_train=3, num_test=2, success=1.0)
    assert [task.ids(split)[0] for split in ("train", "test")] == ["walk/train/0", "walk/test/0"]
    assert [task.seed(i) for split in ("train", "test") for i in task.ids(split)] == [0, 2, 4, 1, 3]
    assert (task.max_turns, task.max_tokens, task.context, task.stop_strings) == (8, 4, 200, ())
    with pytest.raises(DataError, match="unknown task id"):
        task.prompt("walk/train/3")


def test_grades():
    """Oracle: by hand. Broken by: a score of 0 where there was no reward."""
    task = env_task(Walk)
    task_id = next(i for i in task.ids("train") if "from 0" in task.prompt(i))
    states, _ = play(task, task.reset(task_id), "+++")
    assert states[-1].terminated and not states[-1].truncated
    right = task.grade(task_id, states[-1], list("+++"), False)
    assert (right.score, right.status) == (1.0, "right")
    unscored = task.grade(task_id, states[1], ["+"], True)
    assert (unscored.score, unscored.status) == (None, "not_scored")
    late = play(task, task.reset(task_id), "+-+-+-")[0][-1]
    assert (late.terminated, late.truncated) == (False, True)
    assert task.grade(task_id, late, list("+-+-+-"), True).status == "truncated"
    with pytest.raises(EnvironmentFault, match="over"):
        task.step(late, "+")


def test_an_episode_without_branches_is_played_once():
    """Oracle: a count of steps. Broken by: replaying from the start at every turn."""
    steps = []

    class Counted(Walk):
        def step(self, turn):
            steps.append(turn)
            return super().step(turn)

    task = env_task(Counted)
    states, _ = play(task, task.reset("counted/train/0"), "+-+-")
    assert len(steps) == 4
    task.step(states[2], "-")
    assert len(steps) == 4 + 2 + 1


def test_environments_are_closed():
    """Oracle: a count of what is open. Broken by: leaving a replayed or a finished environment open."""
    is_open = []

    class Open(Walk):
        def __init__(self):
            super().__init__()
            is_open.append(self)

        def close(self):
            is_open.remove(self)

    task = env_task(Open)
    assert not is_open
    states, _ = play(task, task.reset("open/train/0"), "-" * 6)
    assert states[-1].is_over and not is_open
    task.step(states[2], "-")
    assert len(is_open) == 1
    task.close()
    assert not is_open
    own = env_task(type("Owned", (Open, OwnWalk), {"forking": "own"}))
    play(own, own.reset("owned/train/0"), "-" * 6)
    assert not is_open


def test_an_environment_that_depends_on_more_is_found_out():
    """Oracle: two episodes that differ. Broken by: trusting a replay."""
    noise = iter(range(1000))

    class Clocked(Walk):
        def seen(self, text):
            return super().seen(f"{text} {next(noise)}")

    task = env_task(Clocked)
    states, _ = play(task, task.reset("clocked/train/0"), "--")
    with pytest.raises(EnvironmentFault, match=r"turn 0 of seed 0 .* more than its seed"):
        task.step(states[1], "-")

    class Anew(Walk):
        def reset(self, seed):
            return f"{next(noise)}"

    task = env_task(Anew)
    assert task.prompt("anew/train/0") and task.step(task.reset("anew/train/0"), "+")
    with pytest.raises(EnvironmentFault, match="cannot be replayed"):
        task.step(task.reset("anew/train/0"), "-")


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (("text", 0.0, False, False, {}), "expected an Observation"),
        (Observation(b"text"), "expected text"),
        (Observation("a", terminated=1), "terminated is 1"),
        (Observation("a", truncated=None), "truncated is None"),
        (Observation("a", reward=float("nan")), "reward is nan"),
        (Observation("a", reward="1"), "reward is '1'"),
        (Observation("a", reward=True), "reward is True"),
        (Observation("a", reward=[1]), r"reward is \[1\]"),
    ],
)
def test_answers_that_are_none(answer, says):
    """Oracle: the error tree. Broken by: taking NaN, a text or a truth value for a reward."""

    class Odd(Walk):
        def step(self, turn):
            return answer

    for forking in ("copy", "replay", "own"):
        task = env_task(Odd, forking=forking)
        with pytest.raises(EnvironmentFault, match=says):
            task.step(task.reset("odd/train/0"), "+")


def test_what_cannot_be_a_task():
    """Oracle: the error tree."""
    with pytest.raises(ConfigError, match="expected an environment"):
        env_task(dict)
    with pytest.raises(ConfigError, match="needs snapshot"):
        env_task(type("Bare", (), {"reset": Walk.reset, "step": Walk.step}), forking="own")
    with pytest.raises(ConfigError, match="expected one of copy, own, replay"):
        env_task(Walk, forking="clone")
    with pytest.raises(ConfigError, match="no setting 'max_turn'"):
        env_task(Walk, max_turn=3)
    assert isinstance(env_task(Walk, max_turns=3), EnvTask)
