"""Batches that are spread over environments, and within them go where rewards should differ most."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rollwright.errors import ConfigError
from rollwright.stage import History
from rollwright.stages.select._task_graph import Batch, Graph, Tags
from rollwright.tree import TaskId


@dataclass(frozen=True, slots=True)
class EnvQuotas:
    """Pick greedily by predicted variance and coverage, within a quota for each environment.

    score(i) = v̂ᵢ + coverage·(1/√(1 + nᵢ) + 1/√(1 + n_env(i)/size_env(i)))/2 − similarity·maxⱼ∈batch J(i, j)

    v̂ᵢ = (nᵢ·vᵢ + strength·pᵢ)/(nᵢ + strength) is the variance of a task's rewards so far (n of them), pulled
    towards what its neighbours in the graph say, pᵢ: the mean variance of the tasks that share something with
    it, weighed by their rewards and by what they share, the rarer the more. Within an environment tasks share
    that, and each tag that both have; across environments they share tags that begin with ``across``. A task
    without neighbours that were seen is given the mean of all. J is Jaccard's index of two tasks' tags.
    Nothing is sampled to find out: only what training has rolled out counts.

    Args:
        quota: share of a batch that one environment may have, in (0, 1]; at least one task of each.
        coverage: weight of the bonus for tasks and environments that were seen little, ≥ 0.
        similarity: weight of the penalty for tasks like those that the batch has, ≥ 0.
        strength: rewards that the neighbours' word counts for, > 0.
        depth: parts of a task's id, between slashes, that name its environment, ≥ 1.
        tags: what each task shares with others (tools, states, checks), in the order of tags that one likes.
        across: begins tags that join environments, too.

    Edge cases: no task is twice in a step, so a batch is smaller where tasks or quotas run out; with one
    environment there is no quota. Ties go by a shuffle of the seed and step.
    Source: EnvSched (2026), abstract; the formulae are our reading.
    """

    quota: float = 0.5
    coverage: float = 0.1
    similarity: float = 0.05
    strength: float = 8.0
    depth: int = 1
    tags: Tags = ()
    across: str = "~"

    def __post_init__(self) -> None:
        if not (0 < self.quota <= 1 and self.coverage >= 0 and self.similarity >= 0):
            raise ConfigError(
                f"EnvQuotas: quota = {self.quota}, coverage = {self.coverage}, similarity ="
                f" {self.similarity}; expected quota in (0, 1], the others ≥ 0"
            )
        if not self.strength > 0 or self.depth < 1:
            raise ConfigError(
                f"EnvQuotas: strength = {self.strength}, depth = {self.depth}; expected strength > 0 and"
                " depth ≥ 1"
            )

    def pick(self, history: History, num_tasks: int, rng: np.random.Generator) -> Sequence[TaskId]:
        graph = Graph.of(history.tasks, self.tags, self.depth, self.across)
        num_N, variance_N = seen(history)
        score_N = graph.predict(num_N, variance_N, self.strength)
        visits_N = np.array([history.of(task).visits for task in history.tasks], dtype=np.float64)
        score_N += self.coverage * graph.bonus(visits_N)
        # What earlier rounds of this step picked belongs to the same batch.
        begun = [i for i, task in enumerate(history.tasks) if history.of(task).last_step == history.step]
        share = self.quota if graph.num_envs > 1 else 1.0
        limit = max(1, math.ceil(round(share * (len(begun) + num_tasks), 9)))
        batch = Batch(graph, begun, limit, self.similarity)
        order = rng.permutation(len(history.tasks))  # ties go to the one that stands first
        return [history.tasks[i] for i in batch.fill(score_N, order, num_tasks)]


def seen(history: History) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return how many rewards each task has, and their variance (0 where fewer than two), [N] each."""
    nums, variances = [], []
    for task in history.tasks:
        of = history.of(task)
        mean = of.reward_sum / of.num_scored if of.num_scored else 0.0
        nums.append(float(of.num_scored) if of.num_scored > 1 else 0.0)
        variances.append(max(0.0, of.square_sum / of.num_scored - mean * mean) if of.num_scored > 1 else 0.0)
    return np.array(nums), np.array(variances)
