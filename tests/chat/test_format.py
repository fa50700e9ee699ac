"""Prompts and observations of tasks through a chat template, and through the world of a run."""

from __future__ import annotations

import pytest
from chat_help import CHATML, DEFAULT_SYSTEM, TRIMMING, VOCAB, Words

from rollwright.chat import ChatFormat, ChatTemplate
from rollwright.drive.world import World
from rollwright.errors import DataError
from rollwright.events import EnvStep, Failed, Reset
from rollwright.tasks.api import Observation
from rollwright.tree import Node, Origin

PROMPT = (1, 5, 3, 11, 4, 3, 1, 2, 3)


class Talk:
    """A task that says q, then q2, then nothing."""

    name, max_turns = "talk", 3

    def prompt(self, task_id):
        return "q"

    def reset(self, task_id):
        return 0

    def step(self, state, text):
        return state + 1, Observation("q2" if state == 0 else "", terminated=state > 0)


def chat(text: str = CHATML) -> ChatFormat:
    return ChatFormat(ChatTemplate(text), Words(VOCAB))


@pytest.mark.parametrize(
    ("said", "want"),
    [
        ((10, 4), (3, 1, 5, 3, 13, 4, 3, 1, 2, 3)),
        ((10,), (4, 3, 1, 5, 3, 13, 4, 3, 1, 2, 3)),
        ((), (4, 3, 1, 5, 3, 13, 4, 3, 1, 2, 3)),
    ],
)
def test_what_stands_between_two_turns(said, want):
    """Oracle: hand. The template's end comes first exactly where none was sampled."""
    assert chat().prompt("q") == PROMPT
    assert chat().reply("q", said, "q2") == want


def test_a_system_prompt_is_not_written_again():
    """Oracle: hand. Broken by: rendering the new message alone."""
    assert chat(DEFAULT_SYSTEM).reply("q", (10, 4), "q2") == chat().reply("q", (10, 4), "q2")


def test_a_template_that_rewrites_is_refused():
    """Oracle: the message shows the difference. Broken by: cutting at the length of the text before."""
    with pytest.raises(DataError, match=r"in one row.*character"):
        chat(TRIMMING).reply("q", (3, 10, 4), "q2")


def test_the_world_talks_through_the_template():
    """Oracle: hand: prompt and observation of a two-turn path, and a last turn that is not answered."""
    world = World(Talk(), Words(VOCAB), (4,), chat())
    asked = world.reset(Reset(ask="g/0", group="g", task="talk/train/0"))
    assert asked.tokens == PROMPT
    root = Node("g/0", None, 0, Origin.PROMPT, asked.tokens)
    # sampled in two nodes, as a carried turn is
    half = Node("g/1", "g/0", 9, Origin.SAMPLED, (14,), logprobs=(-1.0,))
    turn = Node("g/2", "g/1", 1, Origin.SAMPLED, (15, 4), logprobs=(-1.0, -1.0))
    nodes = {node.id: node for node in (root, half, turn)}
    told = world.env_step(EnvStep(ask="g/3", group="g", parent="g/2"), "talk/train/0", nodes)
    assert told.tokens == (3, 1, 5, 3, 13, 4, 3, 1, 2, 3) and not told.terminated
    nodes["g/3"] = Node("g/3", "g/2", 2, Origin.OBSERVATION, told.tokens)
    nodes["g/4"] = Node("g/4", "g/3", 10, Origin.SAMPLED, (12,), logprobs=(-1.0,))
    last = world.env_step(EnvStep(ask="g/5", group="g", parent="g/4"), "talk/train/0", nodes)
    assert last.terminated and last.tokens == ()


def test_without_a_template_texts_are_as_they_were():
    """Oracle: hand."""
    world = World(Talk(), Words(VOCAB), (4,))
    assert world.reset(Reset(ask="g/0", group="g", task="talk/train/0")).tokens == (11,)


def test_a_template_that_refuses_is_a_failure_not_a_reward():
    """Oracle: the event. Broken by: letting the error out of the world."""
    world = World(Talk(), Words(VOCAB), (4,), chat("{{ raise_exception('no') }}"))
    failed = world.reset(Reset(ask="g/0", group="g", task="talk/train/0"))
    assert isinstance(failed, Failed) and failed.kind == "data" and "no" in failed.message
