"""A graph of tasks through what they share, and batches that are filled along it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rollwright.tree import TaskId

Tags = tuple[tuple[TaskId, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True, eq=False)
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
    def of(cls, tasks: Sequence[TaskId], tags: Tags, depth: int, across: str) -> Graph:
        """Return the graph of these tasks; the arguments are those of `EnvQuotas`."""
        task_to_tags: Mapping[TaskId, tuple[str, ...]] = dict(tags)
        envs = ["/".join(task.split("/")[:depth]) for task in tasks]
        names = {env: i for i, env in enumerate(dict.fromkeys(envs))}
        joins: list[list[str]] = []
        for task, env in zip(tasks, envs, strict=True):
            inside = [f"{env} {tag}" for tag in task_to_tags.get(task, ()) if not tag.startswith(across)]
            beyond = [tag for tag in task_to_tags.get(task, ()) if tag.startswith(across)]
            joins.append([env, *inside, *beyond])
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
