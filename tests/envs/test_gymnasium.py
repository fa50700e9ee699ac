"""Gymnasium's environments, against Gymnasium itself."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollwright.envs import env_task
from rollwright.envs.adapters.gymnasium import GymnasiumEnv
from rollwright.envs.adapters.gymnasium_vector import VectorEpisodes
from rollwright.envs.check import check_env
from rollwright.errors import ConfigError
from rollwright.tasks.registry import load_task

gym = pytest.importorskip("gymnasium")


@pytest.mark.parametrize("forking", ["copy", "replay"])
@given(
    actions=st.lists(st.integers(0, 3), max_size=8),
    other=st.integers(0, 3),
    at=st.integers(0, 8),
    seed=st.integers(0, 2),
)
@settings(max_examples=15, deadline=None)
def test_a_branch_is_a_fresh_replay(forking, actions, other, at, seed):
    """Oracle: Gymnasium played alone, slips included. Broken by: stepping what is kept."""
    task = load_task("gymnasium:FrozenLake-v1", forking=forking)
    task_id = f"{task.name}/train/{seed}"
    alone = gym.make("FrozenLake-v1")
    alone.reset(seed=2 * seed)
    states, right = [task.reset(task_id)], []
    for action in actions:
        if states[-1].is_over:
            break
        if len(states) - 1 == at:
            task.step(states[-1], str(other))
        state, seen = task.step(states[-1], str(action))
        states.append(state)
        place, reward, terminated, truncated, _ = alone.step(action)
        right.append((f"observation {place}", reward, terminated, truncated))
        assert seen.text.strip().endswith(right[-1][0])
        assert (seen.reward, seen.terminated, seen.truncated) == right[-1][1:]


def test_texts_and_actions():
    """Oracle: by hand. Broken by: a bad action that counts as action 0."""
    task = load_task("gymnasium:FrozenLake-v1", actions="left,down,right,up", is_slippery=False)
    task_id = f"{task.name}/train/0"
    assert "one of left, down, right, up" in task.prompt(task_id)
    assert "[S]FFF\nFHFH\nFFFH\nHFFG\nobservation 0" in task.prompt(task_id)
    start = task.reset(task_id)
    down, seen = task.step(start, " down\n")
    assert seen.text == "(Down)\nSFFF\n[F]HFH\nFFFH\nHFFG\nobservation 4\n" or seen.text.endswith(
        "observation 4\n"
    )
    for bad in ("", "dwon", "7", "1.0", "true", "[1]", "1" * 5000, "[" * 5000):
        after, seen = task.step(down, bad)
        assert seen.text.startswith("no action; expected one of left") and seen.reward is None
        assert task.signature(after) == task.signature(down)
    hole, seen = task.step(down, "right")
    assert seen.terminated and not seen.truncated and seen.reward == 0.0 and hole.is_over


def test_numbers_of_several_kinds():
    """Oracle: Gymnasium alone. Broken by: rounding the action, or a scalar for a vector."""
    env, alone = GymnasiumEnv("Pendulum-v1"), gym.make("Pendulum-v1")
    first, _ = alone.reset(seed=5)
    assert env.reset(5).splitlines()[-1] == str([float(f"{x:.6g}") for x in first])
    got, reward, *_ = alone.step(np.array([0.25], dtype=np.float32))
    seen = env.step("[0.25]")
    assert seen.text.strip() == str([float(f"{x:.6g}") for x in got]) and seen.reward == reward
    assert env.step("0.25").text.startswith("no action") and env.step("[9]").text.startswith("no action")


def test_a_limit_is_truncated():
    """Oracle: Gymnasium's TimeLimit. Broken by: one flag for both ends."""
    task = load_task("gymnasium:CartPole-v1", max_episode_steps=3)
    assert (task.max_turns, task.forking) == (3, "copy")
    states, seen = [task.reset("gymnasium:CartPole-v1/test/0")], None
    for turn in "010":
        state, seen = task.step(states[-1], turn)
        states.append(state)
    assert (seen.terminated, seen.truncated) == (False, True) and states[-1].total == 3.0
    assert task.grade("", states[-1], list("010"), True).status == "right", "three is at least one"
    assert load_task("gymnasium:CartPole-v1", success=200.0).success == 200.0


@pytest.mark.parametrize("env_id", ["FrozenLake-v1", "Blackjack-v1"])
def test_check_env(env_id):
    """Oracle: the checks, each of which is tested by itself; the signature moves with place and dice."""
    report = check_env(lambda: load_task(f"gymnasium:{env_id}"), num=1, max_turns=4)
    assert report.is_right, report.findings


def test_names_and_settings():
    """Oracle: the error tree."""
    with pytest.raises(ConfigError, match="FrozenLak"):
        load_task("gymnasium:FrozenLak-v1")
    with pytest.raises(ConfigError, match="refuses the settings"):
        load_task("gymnasium:FrozenLake-v1", size=3)
    with pytest.raises(ConfigError, match="2 names were given"):
        load_task("gymnasium:FrozenLake-v1", actions="a,b")
    assert env_task(lambda: GymnasiumEnv("CartPole-v1"), "mine").name == "mine"


class Counter(gym.Env):
    """Counts its steps; ends after ``last`` of them, truncated where that is even.."""

    observation_space = gym.spaces.Box(0, 10**6, (2,), dtype=np.int64)
    action_space = gym.spaces.Discrete(5)

    def __init__(self, last):
        self.last, self.resets, self.num = last, -1, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.resets, self.num = self.resets + 1, 0
        return np.array([self.resets, 0]), {}

    def step(self, action):
        self.num += 1
        is_over = self.num == self.last
        reward = float(100 * self.resets + 10 * self.num + action)
        observation = np.array([self.resets, self.num])
        return observation, reward, is_over and self.last % 2 == 1, is_over and self.last % 2 == 0, {}


@pytest.mark.parametrize(
    ("mode", "vectorized"),
    [("NEXT_STEP", "sync"), ("SAME_STEP", "sync"), ("DISABLED", "sync"), ("SAME_STEP", "async")],
)
def test_vector_environments(mode, vectorized):
    """Oracle: each environment by itself, closed form. Broken by: keeping the step that only resets, or the
    first observation of the next episode as the last of this one."""
    modes = gym.vector.AutoresetMode
    kind = gym.vector.SyncVectorEnv if vectorized == "sync" else gym.vector.AsyncVectorEnv
    lasts = (1, 2, 3, 5)
    vector = kind([lambda last=last: Counter(last) for last in lasts], autoreset_mode=modes[mode])
    episodes = VectorEpisodes(vector)
    episodes.reset(seed=0)
    rng, found = np.random.default_rng(0), {index: [] for index in range(len(lasts))}
    for _ in range(13):
        for t in episodes.step(rng.integers(0, 5, len(lasts))):
            found[t.index].append(t)
    vector.close()
    for index, last in enumerate(lasts):
        num = 13 if mode != "NEXT_STEP" else sum(1 for k in range(13) if k % (last + 1) != last)
        assert len(found[index]) == num
        for place, t in enumerate(found[index]):
            episode, number = divmod(place, last)
            is_over = number + 1 == last
            assert (t.episode, t.number) == (episode, number)
            assert t.observation.tolist() == [episode, number]
            assert t.next_observation.tolist() == [episode, number + 1]
            assert t.reward == 100 * episode + 10 * (number + 1) + int(t.action)
            assert (t.terminated, t.truncated) == (is_over and last % 2 == 1, is_over and last % 2 == 0)


def test_vector_environments_of_gymnasium():
    """Oracle: single environments with the same seeds and actions, over several episodes."""
    actions = np.random.default_rng(1).integers(0, 2, (60, 3))
    runs = {}
    for mode in gym.vector.AutoresetMode:
        vector = gym.make_vec(
            "CartPole-v1", 3, vectorization_mode="sync", vector_kwargs={"autoreset_mode": mode}
        )
        episodes = VectorEpisodes(vector)
        episodes.reset(seed=[7, 8, 9])
        runs[mode] = [t for row in actions for t in episodes.step(row)]
    for mode, transitions in runs.items():
        for index in range(3):
            alone = gym.make("CartPole-v1")
            observation, _ = alone.reset(seed=7 + index)
            for t in (t for t in transitions if t.index == index):
                np.testing.assert_array_equal(t.observation, observation, err_msg=str(mode))
                observation, reward, terminated, truncated, _ = alone.step(t.action)
                np.testing.assert_array_equal(t.next_observation, observation)
                assert (t.reward, t.terminated, t.truncated) == (reward, terminated, truncated)
                if terminated or truncated:
                    observation, _ = alone.reset()


def test_a_vector_environment_without_a_mode():
    """Oracle: the error tree."""
    vector = gym.make_vec("CartPole-v1", 1, vectorization_mode="sync")
    vector.metadata = {}
    with pytest.raises(ConfigError, match="autoreset mode"):
        VectorEpisodes(vector)
