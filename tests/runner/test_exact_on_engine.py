"""Runner, driver and the real engine together: every trained token sampled again on its own."""

import dataclasses

import numpy as np
import pytest
import torch

from rollwright import rng
from rollwright.discovery import load_method
from rollwright.drive.inline import InlineDriver
from rollwright.drive.world import World
from rollwright.engine.inprocess import LocalEngine
from rollwright.engine.noise import step_words
from rollwright.engine.sampler import Controls, draw
from rollwright.events import Published
from rollwright.runner import Runner
from rollwright.testing.chaos import Meddle
from rollwright.testing.decoded import tiny_decoder
from rollwright.testing.fake import ToyTask, ToyTokenizer
from rollwright.testing.hand import plain_method
from rollwright.testing.scenarios import Scenario
from rollwright.tree import Origin

LATR = load_method("latr", each=3, tau_abs=0.15, tau_rel=0.3, lookahead=3)
METHODS = {
    "forks, stops and carries": plain_method(3, control=(Meddle(3),)),
    "a tree with carries": dataclasses.replace(LATR, control=(Meddle(3, forks=False),)),
    "april": load_method("april", each=3),
}


def play(method, turns, max_batch):
    task = ToyTask(num_tasks=6, max_turns=turns, max_tokens=8, context=40)
    scenario = Scenario("engine", task, {"num_steps": 3, "num_tasks": 3, "chunk": 2})
    model, batches = tiny_decoder(), []

    def train(batch):
        batches.append(batch)
        return Published(step=batch.step, version=batch.version + 1)

    runner = Runner(method, scenario.settings_of())
    world = World(task, ToyTokenizer(), (0,))
    InlineDriver(runner, LocalEngine(model, max_batch=max_batch), world, train).run()
    return model, [group for batch in batches for group in batch.groups]


@torch.no_grad()
def sample_again(model, prefix, node, num, task):
    """Return token and logprob of each step of a node from a plain forward pass of its whole path."""
    tokens = [*prefix, *node.tokens[:num]]
    logits_LV = model.logits(model.hidden_packed(torch.tensor(tokens), [len(tokens)]))
    key = rng.stream_key(1, task, node.stream)
    plain = Controls(
        temperature=np.ones(1, np.float32),
        top_p=np.ones(1, np.float32),
        top_k=np.zeros(1, np.int64),
        min_p=np.zeros(1, np.float32),
        forced=np.full(1, -1),
    )
    for i in range(num):
        words = step_words(np.array([key]), np.array([node.start + i]))
        drawn = draw(logits_LV[len(prefix) + i - 1][None], plain, words)
        yield int(drawn.tokens[0]), float(drawn.logps[0])


@pytest.mark.parametrize("turns", [1, 3])
@pytest.mark.parametrize("name", sorted(METHODS))
def test_every_trained_token_is_what_its_stream_says(name, turns):
    """Slow reference: two sequences at a time, chunks of two, branches and interruptions change nothing."""
    model, groups = play(METHODS[name], turns, max_batch=2)
    num_checked = 0
    for group in groups:
        for trajectory in group.trajectories:
            prefix = []
            for node, num in group.path(trajectory.leaf):
                if node.origin is Origin.SAMPLED and num:
                    for i, (token, logp) in enumerate(sample_again(model, prefix, node, num, group.task)):
                        if i < node.forced:
                            continue
                        num_checked += 1
                        assert token == node.tokens[i], f"{node.id} step {i}"
                        assert logp == pytest.approx(node.logprobs[i], abs=1e-4)
                prefix += node.tokens[:num]
    assert num_checked > 30
