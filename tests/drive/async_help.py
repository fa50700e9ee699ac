"""Runs of the asynchronous driver on the fake engine, slowed down or broken where a test wants it."""

from __future__ import annotations

import random
import time

from rollwright.discovery import load_method
from rollwright.drive.asynchronous import AsyncDriver, Limits
from rollwright.drive.world import World
from rollwright.events import Published
from rollwright.runner import Runner, Settings
from rollwright.testing.fake import FakeEngine, ToyTask, ToyTokenizer

TASK = ToyTask(num_tasks=6, max_turns=3, max_tokens=9, context=40)


class Journal:
    """Keeps events with their decisions, and where each flush was."""

    def __init__(self):
        self.rows, self.flushed = [], []

    def append(self, event, commands):
        self.rows.append((event, list(commands)))

    def flush(self):
        self.flushed.append(len(self.rows))

    @property
    def events(self):
        return [event for event, _ in self.rows]


class Jitter:
    """A world and an engine that take random times, so that threads meet in random orders."""

    def __init__(self, seed, most=0.002):
        self.dice, self.most = random.Random(seed), most

    def __call__(self):
        time.sleep(self.dice.random() * self.most)


class SlowWorld(World):
    def __init__(self, task, jitter):
        super().__init__(task, ToyTokenizer(), (0,))
        self.jitter = jitter

    def score(self, *given):
        self.jitter()
        return super().score(*given)

    def env_step(self, *given):
        self.jitter()
        return super().env_step(*given)


class SlowEngine(FakeEngine):
    def __init__(self, jitter, **given):
        super().__init__(**given)
        self.jitter = jitter

    def step(self):
        self.jitter()
        return super().step()


def settings_of(task=TASK, **changes):
    fields = {
        "seed": 5,
        "tasks": tuple(task.ids("train")),
        "num_steps": 4,
        "num_tasks": 2,
        "context": task.context,
        "max_tokens": task.max_tokens,
        "max_turns": task.max_turns,
        "is_dialogue": task.max_turns > 1,
        "chunk": 4,
    }
    return Settings(**{**fields, **changes})


def publish(batch):
    return Published(step=batch.step, version=batch.version + 1, learner_tokens=1)


class Run:
    """One run with everything that came of it. ``train`` replaces the learner, ``load`` takes weights."""

    def __init__(
        self,
        method="grpo",
        engine=None,
        world=None,
        train=publish,
        load=lambda: None,
        limits=None,
        runner=None,
        task=TASK,
        **changes,
    ):
        self.settings = settings_of(task, **changes)
        self.method = load_method(method, each=3) if isinstance(method, str) else method
        self.runner = runner or Runner(self.method, self.settings)
        self.batches, self.reports, self.journal = [], [], Journal()

        def learn(batch):
            self.batches.append(batch)
            return train(batch)

        self.engine = engine or FakeEngine(version=self.runner.version)
        self.driver = AsyncDriver(
            self.runner,
            self.engine,
            world or World(task, ToyTokenizer(), (0,)),
            learn,
            load,
            self.journal,
            self.reports.append,
            limits=limits or Limits(),
        )

    def __call__(self, **given):
        self.reason = self.driver.run(**given)
        return self


def rows(batch):
    """Return a batch as its trajectories' tokens, logprobs, versions, rewards and advantages."""
    found = []
    for group in batch.groups:
        for t in group.trajectories:
            response = group.response(t)
            columns = (response.tokens, response.logp_old.tobytes(), response.versions.tobytes())
            found.append((group.id, t.index, columns, t.reward, t.status, t.stop, t.advantages))
    return found
