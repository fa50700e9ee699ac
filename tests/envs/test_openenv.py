"""OpenEnv, against a real server of the real package, which has an environment of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from pathlib import Path

import pytest

from rollwright.envs import env_task
from rollwright.envs.adapters.openenv import OpenEnv
from rollwright.envs.check import check_env
from rollwright.errors import EnvironmentFault

pytestmark = pytest.mark.slow
HOME = Path(os.environ.get("ROLLWRIGHT_CACHE", Path.home() / ".cache/rollwright")) / "openenv"

SERVER = """
import random, sys, time, uvicorn
from openenv.core.env_server import Action, Environment, Observation, State, create_fastapi_app

class Say(Action):
    message: str

class Told(Observation):
    text: str

class Walk(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed=None, episode_id=None, **more):
        self.dice, self.num = random.Random(seed), 0
        self.place = self.dice.randint(-1, 1)
        return Told(text=f"walk from {self.place} to 2")

    def step(self, action, timeout_s=None, **more):
        if action.message == "sleep":
            time.sleep(3)
        if action.message == "break":
            raise RuntimeError("a bug")
        self.num += 1
        self.place += {"+": 1, "-": -1, "?": self.dice.choice((-1, 1))}.get(action.message, 0)
        is_there, is_late = self.place == 2, self.num == 5
        reward = 1.0 if is_there else 0.0 if is_late else None
        return Told(text=f"at {self.place}", done=is_there or is_late, reward=reward,
                    metadata={"truncated": is_late and not is_there})

    @property
    def state(self):
        return State(step_count=self.num)

app = create_fastapi_app(Walk, Say, Told, max_concurrent_envs=64)
uvicorn.run(app, port=int(sys.argv[1]), log_level="error")
"""


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    assert (HOME / "bin/python").exists(), "run tools/make_openenv_env.sh first; `make test-all` does"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    file = tmp_path_factory.mktemp("openenv") / "server.py"
    file.write_text(SERVER)
    server = subprocess.Popen([str(HOME / "bin/python"), str(file), str(port)])
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline and server.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            break
        except OSError:
            time.sleep(0.2)
    yield f"http://127.0.0.1:{port}"
    server.terminate()
    server.wait(10)


def test_episodes(url):
    """Oracle: the server's code, by hand. Broken by: a session that branches share."""
    task = env_task(lambda: OpenEnv(url), "walk")
    try:
        task_id = next(i for i in task.ids("train")[:40] if "from 0" in task.prompt(i))
        assert task.prompt(task_id) == "walk from 0 to 2\n"
        one, seen = task.step(task.reset(task_id), "+")
        assert (seen.text, seen.terminated, seen.truncated, seen.reward) == ("at 1\n", False, False, None)
        two, seen = task.step(one, "+")
        assert (seen.text, seen.terminated, seen.truncated, seen.reward) == ("at 2\n", True, False, 1.0)
        other, seen = task.step(one, "-")
        assert seen.text == "at 0\n", "the branch goes on from the first turn"
        for turn in "-++":
            other, seen = task.step(other, turn)
        assert (seen.text, seen.terminated, seen.truncated, seen.reward) == ("at 1\n", False, True, 0.0)
        assert task.grade(task_id, two, [], False).status == "right"
        assert task.grade(task_id, other, [], True).status == "truncated"
    finally:
        task.close()


def test_failures(url):
    """Oracle: the error tree and a clock. Broken by: an answer that comes late taken for the next one's."""
    env = OpenEnv(url, seconds=20)
    env.reset(0)
    with pytest.raises(EnvironmentFault, match=r"fails at step: .*a bug"):
        env.step("break")
    env.close()
    env = OpenEnv(url, seconds=20)
    env.reset(0)
    env.seconds, start = 0.5, time.monotonic()
    with pytest.raises(EnvironmentFault, match="does not answer step: TimeoutError"):
        env.step("sleep")
    assert time.monotonic() - start < 2.5
    env.seconds = 20
    assert env.reset(0).startswith("walk from"), "a new session"
    env.close()
    odd = OpenEnv(url, act=lambda text: {"speech": text})
    odd.reset(0)
    assert odd.step("+").text.startswith("error: ") and not odd.step("+").terminated
    odd.close()
    with pytest.raises(EnvironmentFault, match="does not answer reset"):
        OpenEnv("http://127.0.0.1:9", seconds=2).reset(0)


def test_check_env(url):
    """Oracle: the checks, each of which is tested by itself."""

    class Played(OpenEnv):
        max_turns = 6

        def __init__(self):
            super().__init__(url)

        def sample_turn(self, rng):
            return "+-?x"[int(rng.integers(4))]

    report = check_env(Played, num=3)
    assert report.is_right, report.findings
