"""Modelled prompts, environments, graders and a learner: what they answer, and how long they take."""

from __future__ import annotations

import heapq
import math
from typing import Protocol

from rollwright import rng as randomness
from rollwright.drive.virtual.content import TOKEN, is_hard, normal_of
from rollwright.drive.virtual.distributions import Distribution, share_of
from rollwright.drive.virtual.model import Model
from rollwright.drive.world import Nodes
from rollwright.events import EnvStep, Event, Observed, Reset, Score, Scored
from rollwright.tree import Node, TaskId

# Kinds of noise.
_PROMPT, _OBSERVATION, _END, _REWARD, _TOOL = 0x70726F6D, 0x6F627376, 0x656E6465, 0x72657764, 0x746F6F6C


class Answers(Protocol):
    """What the driver asks of tasks: a modelled world, or `rollwright.drive.world.World`."""

    def reset(self, command: Reset) -> Event: ...
    def env_step(self, command: EnvStep, task: TaskId, nodes: Nodes) -> Event: ...
    def score(self, command: Score, task: TaskId, nodes: Nodes, truncated: bool) -> Event: ...
    def retire(self, group: str) -> None: ...


class ModelledWorld:
    """Answers that are functions of the task, the trajectory and the position, never of time.

    Args:
        model: of its tasks, lengths and probabilities.
        seed: the run's seed.
    """

    def __init__(self, model: Model, seed: int) -> None:
        self.model, self.seed = model, seed

    def reset(self, command: Reset) -> Observed:
        share = share_of(randomness.stream_key(0, command.task, ""), 0, _PROMPT)
        num = self.model.tasks_of(command.task).prompt.at(share)
        return Observed(ask=command.ask, tokens=(TOKEN,) * max(1, round(num)))

    def env_step(self, command: EnvStep, task: TaskId, nodes: Nodes) -> Observed:
        key, position = self._place(task, nodes[command.parent])
        tasks = self.model.tasks_of(task)
        num = round(tasks.observation.at(share_of(key, position, _OBSERVATION)))
        end_share, outcome = tasks.end_share, ""
        if (hard := tasks.hard) is not None:
            is_one = is_hard(hard, key)
            end_share = hard.end_share if is_one else end_share
            error_share = hard.error_share if is_one else hard.easy_error_share
            outcome = "error" if share_of(key, position, _TOOL) < error_share else "success"
        is_over = share_of(key, position, _END) < end_share
        return Observed(ask=command.ask, tokens=(TOKEN,) * num, terminated=is_over, outcome=outcome)

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
        tasks = self.model.tasks_of(task)
        logit = tasks.logit + tasks.logit_spread * normal_of(task, "difficulty")
        return 1 / (1 + math.exp(-logit - tasks.logit_gain * version))

    def _place(self, task: TaskId, node: Node) -> tuple[int, int]:
        return randomness.stream_key(self.seed, task, node.stream), node.start + node.num_steps


class Line:
    """Calls that wait in one line for ``num`` servers, first come first served; None is any number."""

    def __init__(self, num: int | None) -> None:
        self.num = num
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
