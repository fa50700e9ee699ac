"""Dialogues with tools."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollwright.envs import Effect, Tool, env_task
from rollwright.envs.check import check_env
from rollwright.envs.tool_env import ToolEnvironment, ToolError
from rollwright.envs.tool_text import render_call
from rollwright.errors import EnvironmentFault

WORD = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}


class Notes(ToolEnvironment):
    """Write words down; the answer should be the number of different ones."""

    tools = (
        Tool("count", "How many words there are.", effect=Effect.READ),
        Tool("add", "Write a word down.", WORD),
        Tool("break", "Raise."),
    )
    max_turns = 6

    def start(self, seed):
        self.words = {f"w{seed}"}
        return f"Seed {seed}. How many words are there?"

    def call(self, tool, arguments):
        if tool.name == "break":
            raise RuntimeError("a bug of ours")
        if tool.name == "add":
            if not arguments["word"]:
                raise ToolError("a word has letters")
            self.words.add(arguments["word"])
        return f"{len(self.words)} words"

    def finish(self, answer):
        return float(answer.strip() == str(len(self.words)))

    def signature(self):
        return " ".join(sorted(self.words))

    def sample_turn(self, rng):
        turns = [CALL("count"), CALL("add", word="a"), CALL("add", word="b"), CALL("nothing"), "2"]
        return turns[int(rng.integers(len(turns)))]


def CALL(name, **arguments):
    return render_call(name, arguments, "hermes")


def texts(turns, make=Notes):
    task = env_task(make)
    state, seen = task.reset("notes/train/0"), []
    for turn in turns:
        state, observation = task.step(state, turn)
        seen.append(observation)
    return seen


def test_a_dialogue():
    """Oracle: by hand. Broken by: running only the first call of a turn, or ending after a complaint."""
    both = "First " + CALL("add", word="a") + CALL("count") + "."
    wrong = CALL("add", word=3) + CALL("sub") + '<tool_call>{"name": </tool_call>' + CALL("add", word="")
    seen = texts([both, wrong, CALL("count"), "2"])
    answers = [
        text.partition("\n")[2].partition("\n")[0] for text in seen[0].text.split("<tool_response>")[1:]
    ]
    assert answers == ["2 words", "2 words"]
    complaints = seen[1].text.replace("<tool_response>\n", "").split("\n</tool_response>\n")[:-1]
    assert [line.partition(":")[0] for line in complaints] == ["error"] * 4
    assert "not of type 'string'" in complaints[0] and "no tool 'sub'" in complaints[1]
    assert "not valid JSON" in complaints[2] and complaints[3] == "error: a word has letters"
    assert "2 words" in seen[2].text, "what was complained about changed nothing"
    assert [(s.terminated, s.reward) for s in seen] == [(False, None)] * 3 + [(True, 1.0)]
    assert texts(["3"])[0].reward == 0.0


def test_the_prompt_lists_the_tools():
    """Oracle: the descriptions read back."""
    prompt = env_task(Notes).prompt("notes/train/2")
    lines = [
        json.loads(line) for line in prompt.splitlines() if line.startswith('{"name": ') and "desc" in line
    ]
    assert [line["name"] for line in lines] == ["count", "add", "break"] and "Seed 4." in prompt


def test_a_tool_that_fails_is_no_answer():
    """Oracle: the error tree. Broken by: telling the model of our own failures, or scoring them."""
    with pytest.raises(RuntimeError, match="a bug of ours"):
        texts([CALL("break")])


def test_many_calls_in_a_turn():
    """Oracle: a count. Broken by: carrying out whatever number of calls a looping model writes."""
    seen = texts([CALL("count") * 300])
    assert seen[0].text.count("1 words") == 16 and seen[0].text.count("not carried out") == 284


@given(
    st.lists(st.sampled_from(["count", "add a", "add b", "add", "nothing"]), max_size=6), st.integers(0, 6)
)
@settings(max_examples=40, deadline=None)
def test_branches(names, at):
    """Oracle: a fresh replay; the words are compared as a set. Broken by: sharing the set of words."""
    turns = [CALL(n.split()[0], **({"word": n.split()[1]} if " " in n else {})) for n in names]
    task = env_task(Notes)
    states = [task.reset("notes/train/1")]
    for turn in turns:
        states.append(task.step(states[-1], turn)[0])
    at = min(at, len(turns))
    marks = [task.signature(state) for state in states]
    task.step(states[at], CALL("add", word="z"))
    assert [task.signature(state) for state in states] == marks
    _, last = task.step(states[-1], CALL("count"))
    right = {"w2"} | {n.split()[1] for n in names if " " in n}
    assert f"{len(right)} words" in last.text


class Thief(Notes):
    def call(self, tool, arguments):
        answer = super().call(tool, arguments)
        if tool.name == "count":
            self.words.add(f"stolen {len(self.words)}")
        return answer


def test_check_env_on_tools():
    """Oracle: by hand: reading must not write. Broken by: trusting the declared effect."""
    report = check_env(Notes, num=6)
    assert report.is_right and not [f for f in report.findings if f.check == "tools" and f.skipped]
    found = {f.check: f.problem for f in check_env(Thief, num=6).findings if f.problem}
    assert list(found) == ["tools"] and "calls only count" in found["tools"]


def test_a_missing_part():
    """Oracle: the base asks for its parts."""
    with pytest.raises(NotImplementedError):
        env_task(ToolEnvironment).prompt("toolenvironment/train/0")
    assert issubclass(EnvironmentFault, Exception)
