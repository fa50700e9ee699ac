"""Batches that are spread over environments, and within them go where rewards should differ most."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rollwright.errors import ConfigError
from rollwright.stage import History
from rollwright.tree import TaskId

Tags = tuple[tuple[TaskId, tuple[str, ...]], ...]


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
        graph = Graph.of(history.tasks, self)
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


@dataclass(frozen=True)
class Graph:
    """Which tasks share what.

    Args:
        env_N: number of each task's environment, [N].
        joins_NK: whether a task hangs on a join (its environment, a tag in it, a tag across), [N, K].
        tags_NM: whether a task has a tag, [N, M]; for similarity.
    """

    env_N: NDArray[np.int64]
    joins_NK: NDArray[np.float64]
    tags_NM: NDArray[np.float64]
    num_envs: int = field(default=1)

    @classmethod
    def of(cls, tasks: Sequence[TaskId], stage: EnvQuotas) -> Graph:
        task_to_tags: Mapping[TaskId, tuple[str, ...]] = dict(stage.tags)
        envs = ["/".join(task.split("/")[: stage.depth]) for task in tasks]
        names = {env: i for i, env in enumerate(dict.fromkeys(envs))}
        joins: list[list[str]] = []
        for task, env in zip(tasks, envs, strict=True):
            inside = [
                f"{env} {tag}" for tag in task_to_tags.get(task, ()) if not tag.startswith(stage.across)
            ]
            across = [tag for tag in task_to_tags.get(task, ()) if tag.startswith(stage.across)]
            joins.append([env, *inside, *across])
        return cls(
            env_N=np.array([names[env] for env in envs]),
            joins_NK=_incidence(joins),
            tags_NM=_incidence([list(task_to_tags.get(task, ())) for task in tasks]),
            num_envs=len(names),
        )

    def predict(
        self, num_N: NDArray[np.float64], variance_N: NDArray[np.float64], strength: float
    ) -> NDArray[np.float64]:
        """Return each task's predicted reward variance, [N]; 0.25, that of a coin, while nothing is known.

        A task's own rewards count for itself, not again among its neighbours.
        """
        total = float(num_N.sum())
        overall = float(num_N @ variance_N) / total if total else 0.25
        weight_N, mass_N = self._of_neighbours(num_N), self._of_neighbours(num_N * variance_N)
        near_N = np.where(weight_N > 0, mass_N / np.maximum(weight_N, 1e-9), overall)
        predicted: NDArray[np.float64] = (num_N * variance_N + strength * near_N) / (num_N + strength)
        return predicted

    def _of_neighbours(self, value_N: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return Σⱼ≠ᵢ wᵢⱼ·valueⱼ, [N], with wᵢⱼ = Σ over what both hang on of 1/(how many hang on it)."""
        share_NK = self.joins_NK / self.joins_NK.sum(axis=0)
        found: NDArray[np.float64] = share_NK @ (value_N @ self.joins_NK) - share_NK.sum(axis=1) * value_N
        return found

    def bonus(self, visits_N: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return what speaks for tasks and environments that were seen little, [N] in (0, 1]."""
        sizes, visits = np.bincount(self.env_N), np.bincount(self.env_N, visits_N)
        of_env_N = (1 / np.sqrt(1 + visits / sizes))[self.env_N]
        bonus: NDArray[np.float64] = (1 / np.sqrt(1 + visits_N) + of_env_N) / 2
        return bonus

    def similar(self, i: int) -> NDArray[np.float64]:
        """Return Jaccard's index of the tags of task i and of every task, [N]; 0 for tasks without tags."""
        both_N = self.tags_NM @ self.tags_NM[i]
        either_N = self.tags_NM.sum(axis=1) + self.tags_NM[i].sum() - both_N
        index: NDArray[np.float64] = both_N / np.maximum(either_N, 1.0)
        return index


def _incidence(rows: Sequence[Sequence[str]]) -> NDArray[np.float64]:
    columns = {name: k for k, name in enumerate(dict.fromkeys(name for row in rows for name in row))}
    found = np.zeros((len(rows), len(columns)))
    for i, row in enumerate(rows):
        found[i, [columns[name] for name in row]] = 1.0
    return found


def seen(history: History) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return how many rewards each task has, and their variance (0 where fewer than two), [N] each."""
    nums, variances = [], []
    for task in history.tasks:
        of = history.of(task)
        mean = of.reward_sum / of.num_scored if of.num_scored else 0.0
        nums.append(float(of.num_scored) if of.num_scored > 1 else 0.0)
        variances.append(max(0.0, of.square_sum / of.num_scored - mean * mean) if of.num_scored > 1 else 0.0)
    return np.array(nums), np.array(variances)


class Batch:
    """A batch that is filled greedily.

    Args:
        begun: tasks that it has already.
        limit: tasks that one environment may have in it.
        similarity: weight of the penalty.
    """

    def __init__(self, graph: Graph, begun: Sequence[int], limit: int, similarity: float) -> None:
        self.graph, self.limit, self.similarity = graph, limit, similarity
        num = len(graph.env_N)
        self.used = np.zeros(graph.num_envs, dtype=np.int64)
        self.is_open_N, self.likeness_N = np.ones(num, dtype=bool), np.zeros(num)
        for i in begun:
            self._take(i)

    def fill(self, score_N: NDArray[np.float64], order: NDArray[np.int64], num_tasks: int) -> list[int]:
        """Return up to ``num_tasks`` further tasks, the best first."""
        chosen: list[int] = []
        while len(chosen) < num_tasks and self.is_open_N.any():
            value_N = np.where(self.is_open_N, score_N - self.similarity * self.likeness_N, -np.inf)
            chosen.append(int(order[np.argmax(value_N[order])]))
            self._take(chosen[-1])
        return chosen

    def _take(self, i: int) -> None:
        env = self.graph.env_N[i]
        self.is_open_N[i] = False
        self.used[env] += 1
        if self.used[env] >= self.limit:
            self.is_open_N &= self.graph.env_N != env
        if self.similarity:
            self.likeness_N = np.maximum(self.likeness_N, self.graph.similar(i))
