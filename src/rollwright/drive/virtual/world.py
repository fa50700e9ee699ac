"""Modelled prompts, environments, graders and a learner: what they answer, and how long they take."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from typing import Protocol

from rollwright import rng as randomness
from rollwright.drive.virtual.content import TOKEN
from rollwright.drive.virtual.model import Distribution, LearnerModel, TaskModel, normal_at, share_of
from rollwright.drive.world import Nodes
from rollwright.events import EmitBatch, EnvStep, Event, Observed, Published, Reset, Score, Scored
from rollwright.tree import Group, Node, TaskId

_PROMPT, _OBSERVATION, _END, _REWARD = 0x70726F6D, 0x6F627376, 0x656E6465, 0x72657764  # kinds of noise


class Answers(Protocol):
    """What the driver asks of tasks: a modelled world, or `rollwright.drive.world.World`."""

    def reset(self, command: Reset) -> Event: ...
    def env_step(self, command: EnvStep, task: TaskId, nodes: Nodes) -> Event: ...
    def score(self, command: Score, task: TaskId, nodes: Nodes, truncated: bool) -> Event: ...
    def retire(self, group: str) -> None: ...


class ModelledWorld:
    """Answers that are functions of the task, the trajectory and the position, never of time.

    Args:
        model: lengths and probabilities.
        seed: the run's seed.
    """

    def __init__(self, model: TaskModel, seed: int) -> None:
        self.model, self.seed = model, seed
        self._logits: dict[TaskId, float] = {}

    def reset(self, command: Reset) -> Observed:
        num = self.model.prompt.at(share_of(randomness.stream_key(0, command.task, ""), 0, _PROMPT))
        return Observed(ask=command.ask, tokens=(TOKEN,) * max(1, round(num)))

    def env_step(self, command: EnvStep, task: TaskId, nodes: Nodes) -> Observed:
        key, position = self._place(task, nodes[command.parent])
        num = round(self.model.observation.at(share_of(key, position, _OBSERVATION)))
        is_over = share_of(key, position, _END) < self.model.end_share
        return Observed(ask=command.ask, tokens=(TOKEN,) * num, terminated=is_over)

    def score(self, command: Score, task: TaskId, nodes: Nodes, truncated: bool) -> Scored:
        leaf = nodes[command.leaf]
        if truncated:
            return Scored(ask=command.ask, reward=0.0, status="truncated")
        key, position = self._place(task, leaf)
        is_right = share_of(key, position, _REWARD) < self.success(task, leaf.version or 0)
        return Scored(ask=command.ask, reward=float(is_right), status="right" if is_right else "wrong")

    def retire(self, group: str) -> None:
        pass

    def success(self, task: TaskId, version: int) -> float:
        """Return the probability that a whole rollout of the task is right."""
        logit = self._logits.get(task)
        if logit is None:
            z = normal_at(share_of(randomness.stream_key(0, task, "difficulty"), 0))
            logit = self._logits[task] = self.model.logit + self.model.logit_spread * z
        return 1 / (1 + math.exp(-logit - self.model.logit_gain * version))

    def _place(self, task: TaskId, node: Node) -> tuple[int, int]:
        return randomness.stream_key(self.seed, task, node.stream), node.start + node.num_steps


class Line:
    """Calls that wait in one line for ``num`` servers, first come first served; None is any number."""

    def __init__(self, num: int | None) -> None:
        self._free_at = None if num is None else [0.0] * num
        self.busy_seconds = self.wait_seconds = 0.0
        self.num_calls = 0

    def serve(self, now: float, seconds: float) -> float:
        """Return when a call of ``seconds`` that arrives now is done."""
        start = now
        if self._free_at is not None:
            start = max(now, self._free_at[0])
            heapq.heapreplace(self._free_at, start + seconds)
        self.num_calls += 1
        self.busy_seconds += seconds
        self.wait_seconds += start - now
        return start + seconds


def call_seconds(duration: Distribution, seed: int, ask: str) -> float:
    """Return the seconds of the call that answers ``ask``: the same in every schedule."""
    return duration.at(share_of(randomness.stream_key(seed, ask, "seconds"), 0))


class ModelledLearner:
    """Publishes the next version after the modelled time of an update."""

    def __init__(self, model: LearnerModel) -> None:
        self.model = model

    def __call__(self, batch: EmitBatch) -> Published:
        return Published(step=batch.step, version=batch.version + 1, learner_tokens=num_tokens(batch.groups))


def num_tokens(groups: Sequence[Group]) -> int:
    """Return the tokens that a learner reads: prompt and response of every trajectory."""
    return sum(num for group in groups for t in group.trajectories for _, num in group.path(t.leaf))
