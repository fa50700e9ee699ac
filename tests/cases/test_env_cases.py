"""Real cases of environments and tool calls: the shared file's, and own ones from public reports."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from rollwright.chat import ChatTemplate, Dialogue
from rollwright.envs import Observation, Tool, env_task, parse_tool_calls
from rollwright.envs.check import check_env

OWN = [json.loads(line) for line in (Path(__file__).parent / "own_env_cases.jsonl").read_text().splitlines()]
CASE = {case["id"]: case for case in OWN}


def test_own_cases_are_whole():
    """Oracle: the shared file's fields; at least fifteen cases, each with a source."""
    assert len(OWN) >= 15 and len(CASE) == len(OWN) == len({case["ref"] for case in OWN})
    fields = {"id", "ref", "kind", "severity", "check", "symptom", "input", "expected", "why", "observed"}
    assert all(set(case) == fields and "#" in case["ref"] for case in OWN)


@pytest.mark.parametrize(
    "case", [case for case in OWN if case["kind"] == "tool-calls"], ids=lambda case: case["id"]
)
def test_tool_call_cases(case):
    """Oracle: the right value by hand, in ``why``. Broken by: what the symptom says."""
    given, right = case["input"], case["expected"]
    tools = [Tool(tool["name"], parameters=tool["parameters"]) for tool in given.get("tools", ())]
    calls = parse_tool_calls(given["text"], given["format"], tools)
    assert [[call.name, call.arguments] for call in calls if call.error is None] == right.get("calls", [])
    errors = [call.error for call in calls if call.error is not None]
    assert len(errors) == len(right.get("errors", ()))
    assert all(part in error for part, error in zip(right.get("errors", ()), errors, strict=True))
    assert all(given["text"][call.start :].startswith(call.raw) for call in calls)


def test_t04_a_call_is_parsed_and_its_text_kept():
    """Case T04, exact: the value for the tool, the bytes for the history, through a whole dialogue."""
    sampled = '{"b":1, "a":"\\u00e9"}'
    text = f'<tool_call>{{"name": "f", "arguments": {sampled}}}</tool_call>'
    (call,) = parse_tool_calls(text, "hermes")
    assert call.arguments == {"b": 1, "a": "é"}
    assert (call.arguments_raw, call.raw) == (sampled, text)

    class Letters:
        eos_ids = (0,)

        def encode(self, text):
            return [ord(letter) for letter in text]

        def decode(self, ids):
            return "".join("" if i == 0 else chr(i) for i in ids)

    template = ChatTemplate("{% for m in messages %}{{ m.role }}:{{ m.content }}\n{% endfor %}")
    talk = Dialogue(template, Letters())
    messages = [{"role": "user", "content": "q"}]
    function = {"name": call.name, "arguments": call.arguments}
    handed = {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "function": function}]}
    messages.append(talk.record(talk.prompt(messages), [*map(ord, text)], message=handed))
    later = talk.prompt([*messages, {"role": "tool", "content": "r"}])
    assert sampled in Letters().decode(later.ids)


class Short:
    """Ends by its rules after ``length`` turns, is cut after ``limit``."""

    max_turns, length, limit = 4, 99, 99

    def reset(self, seed):
        self.num = 0
        return f"seed {seed}\n"

    def step(self, turn):
        self.num += 1
        is_over, is_late = self.num == self.length, self.num == self.limit
        return Observation(f"{self.num} {turn}\n", is_over, is_late and not is_over, 0.0 if is_late else None)

    def sample_turn(self, rng):
        return "ab"[int(rng.integers(2))]


def test_u15_autoreset():
    """Case U15, exact: how many transitions each mode holds, and whose the last observations are."""
    gym = pytest.importorskip("gymnasium")
    import numpy as np

    from rollwright.envs.adapters.gymnasium_vector import VectorEpisodes

    class Count(gym.Env):
        observation_space, action_space = gym.spaces.Discrete(100), gym.spaces.Discrete(2)

        def __init__(self, length):
            self.length, self.first = length, -10

        def reset(self, *, seed=None, options=None):
            self.first += 10
            self.num = self.first
            return self.num, {}

        def step(self, action):
            self.num += 1
            return self.num, 0.0, self.num - self.first == self.length, False, {}

    given, right = CASE["U15"]["input"], CASE["U15"]["expected"]
    for mode, key in (("NEXT_STEP", "next_step"), ("SAME_STEP", "same_step"), ("DISABLED", "disabled")):
        makes = [lambda length=length: Count(length) for length in given["lengths"]]
        vector = gym.vector.SyncVectorEnv(makes, autoreset_mode=gym.vector.AutoresetMode[mode])
        episodes = VectorEpisodes(vector)
        episodes.reset(seed=0)
        found = [t for _ in range(given["steps"]) for t in episodes.step(np.zeros(2, dtype=int))]
        assert [sum(t.index == i for t in found) for i in (0, 1)] == right[key]
        assert all(int(t.next_observation) == int(t.observation) + 1 for t in found)


def test_u16_rules_and_limit_at_once():
    """Case U16, exact, through Gymnasium's own limit."""
    gym = pytest.importorskip("gymnasium")
    from rollwright.envs.adapters.gymnasium import GymnasiumEnv

    class Three(gym.Env):
        observation_space, action_space = gym.spaces.Discrete(9), gym.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            self.num = 0
            return 0, {}

        def step(self, action):
            self.num += 1
            return self.num, 1.0, self.num == 3, False, {}

    gym.register("Three-v0", Three, max_episode_steps=CASE["U16"]["input"]["limit"])
    env = GymnasiumEnv("Three-v0")
    env.reset(0)
    last = [env.step("0") for _ in range(3)][-1]
    alone = gym.make("Three-v0")
    alone.reset()
    assert [alone.step(0) for _ in range(3)][-1][2:4] == (True, True), "the package says both"
    assert {"terminated": last.terminated, "truncated": last.truncated} == CASE["U16"]["expected"]


def test_u17_a_limit_called_an_end():
    """Case U17, exact: check-env asks."""
    report = check_env(type("Cut", (Short,), {"max_turns": 3, "length": 3}))
    (found,) = [finding for finding in report.findings if finding.problem]
    assert {"check": found.check, "note": found.is_note} == CASE["U17"]["expected"]
    assert not [
        f for f in check_env(type("Fine", (Short,), {"max_turns": 3, "limit": 3})).findings if f.problem
    ]


@pytest.mark.parametrize(("case", "part"), [("U18", "lock"), ("U19", "shared")])
def test_u18_u19_what_cannot_be_copied(case, part):
    """Cases U18 and U19, exact: such an environment is played again, and its branches are right."""
    gym = pytest.importorskip("gymnasium")
    from rollwright.envs.adapters.gymnasium import gymnasium_task

    class Odd(gym.Env):
        observation_space, action_space = gym.spaces.Discrete(99), gym.spaces.Discrete(2)
        shared = {"sum": 0}

        def reset(self, *, seed=None, options=None):
            self.total, self.lock = 0, threading.Lock() if part == "lock" else None
            self.shared["sum"] = 0
            return 0, {}

        def step(self, action):
            self.total += 1 + int(action)
            self.shared["sum"] += 1 + int(action)
            seen = self.total if part == "lock" else self.shared["sum"]
            return seen, 0.0, False, False, {}

    gym.register(f"Odd{part}-v0", Odd)
    task = gymnasium_task(f"Odd{part}-v0")
    assert task.forking == CASE[case]["expected"]["forking"]
    if part == "lock":
        one = task.step(task.reset(task.ids("train")[0]), "1")[0]
        assert task.step(one, "1")[1].text == "4\n" and task.step(one, "0")[1].text == "3\n"


def test_u20_a_fork_has_the_dice():
    """Case U20, exact, for each way of keeping a state."""
    import random

    class Dice(Short):
        def reset(self, seed):
            self.dice = random.Random(seed)
            return super().reset(seed)

        def step(self, turn):
            return Observation(f"{super().step(turn).text}{self.dice.random()}\n")

        def snapshot(self):
            return self.num, self.dice.getstate()

        def restore(self, state):
            self.num, self.dice = state[0], random.Random()
            self.dice.setstate(state[1])

    given, right = CASE["U20"]["input"], CASE["U20"]["expected"]
    for forking in ("copy", "own", "replay"):
        task = env_task(Dice, forking=forking)
        one = task.step(task.reset("dice/train/3"), "a")[0]
        answers = {task.step(one, given["turn"])[1].text for _ in range(given["times"])}
        assert len(answers) == right["answers"], forking


def test_u21_a_cut_episode_is_no_success():
    """Case U21, exact."""
    task = env_task(type("Cut", (Short,), {"limit": 1}))
    state, seen = task.step(task.reset("cut/train/0"), "a")
    verdict = task.grade("cut/train/0", state, ["a"], True)
    assert (seen.terminated, seen.truncated) == (False, True)
    assert {"status": verdict.status, "score": verdict.score} == CASE["U21"]["expected"]
