"""Environments of tokens: they get the ids that were sampled, and their ids are what the model reads."""

from __future__ import annotations

import pytest

from rollwright.drive.world import World
from rollwright.envs import Observation, env_task
from rollwright.envs.check import check_env
from rollwright.errors import EnvironmentFault
from rollwright.events import EnvStep, Score
from rollwright.tree import Node, Origin


class Sums:
    """Answers a turn with the sum of its ids, as one id; a turn of three ids ends it."""

    takes_tokens = True
    max_turns = 5

    def reset(self, seed):
        self.total = seed
        return f"{seed}"

    def step(self, turn):
        assert isinstance(turn, tuple)
        self.total += sum(turn)
        is_over = len(turn) == 3
        return Observation("", is_over, reward=float(self.total) if is_over else None, tokens=(self.total, 7))

    def sample_turn(self, rng):
        return tuple(int(k) for k in rng.integers(0, 9, int(rng.integers(1, 4))))


class Letters:
    def encode(self, text):
        return [ord(letter) for letter in text]

    def decode(self, ids):
        raise AssertionError("nothing is decoded where tokens are taken")


def node(name, parent, tokens, origin):
    logprobs = (0.0,) * len(tokens) if origin is Origin.SAMPLED else None
    at = 0 if parent is None else len(parent.tokens)
    return Node(name, parent and parent.id, at, origin, tokens, logprobs=logprobs)


def test_tokens_in_tokens_out():
    """Oracle: by hand, the end token 0 among the ids. Broken by: decoding a turn, dropping its end."""
    world = World(env_task(Sums), Letters(), eos_ids=(0,))
    root = node("g/r", None, (48,), Origin.PROMPT)
    first = node("g/1", root, (5, 0), Origin.SAMPLED)
    nodes = {n.id: n for n in (root, first)}
    seen = world.env_step(EnvStep(ask="a", group="g", parent="g/1"), "sums/train/0", nodes)
    assert (seen.tokens, seen.terminated) == ((5, 7), False)
    told = node("g/2", first, seen.tokens, Origin.OBSERVATION)
    last = node("g/3", told, (1, 2, 0), Origin.SAMPLED)
    nodes |= {told.id: told, last.id: last}
    seen = world.env_step(EnvStep(ask="b", group="g", parent="g/3"), "sums/train/0", nodes)
    assert (seen.tokens, seen.terminated, seen.reward) == ((8, 7), True, 8.0)
    end = node("g/4", last, seen.tokens, Origin.OBSERVATION)
    nodes[end.id] = end
    scored = world.score(Score(ask="c", group="g", leaf="g/4"), "sums/train/0", nodes, False)
    assert (scored.reward, scored.status) == (8.0, "right")


def test_check_env():
    """Oracle: the checks, each of which is tested by itself."""
    report = check_env(Sums)
    assert report.is_right, report.findings


def test_tokens_that_are_none():
    """Oracle: the error tree. Broken by: texts or negative ids among the tokens."""
    for bad in (("a",), (-1,), (True,)):

        class Odd(Sums):
            def step(self, turn):
                return Observation("", tokens=bad)  # noqa: B023 - used in this round only

        task = env_task(Odd)
        with pytest.raises(EnvironmentFault, match="whole numbers"):
            task.step(task.reset("odd/train/0"), (1,))
