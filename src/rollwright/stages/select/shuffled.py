"""Every task once per epoch, in an order that depends on the seed and the epoch alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rollwright import rng as randomness
from rollwright.stage import History
from rollwright.tree import TaskId


@dataclass(frozen=True, slots=True)
class Shuffled:
    """Pick the next tasks of the epoch's permutation.

    The position is the number of tasks picked so far, so a resumed run goes on with the same task. A pick
    that spans the end of an epoch may hold a task twice: two visits, two groups.
    """

    def pick(self, history: History, num_tasks: int, rng: np.random.Generator) -> Sequence[TaskId]:
        num = len(history.tasks)
        picked = []
        orders: dict[int, np.ndarray[tuple[int], np.dtype[np.int64]]] = {}
        for position in range(history.num_picked, history.num_picked + num_tasks):
            epoch = position // num
            if epoch not in orders:
                orders[epoch] = randomness.generator(history.seed, "epoch", epoch).permutation(num)
            picked.append(history.tasks[orders[epoch][position % num]])
        return picked
