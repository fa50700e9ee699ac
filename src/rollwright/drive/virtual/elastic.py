"""Workers that change between rollouts and training, as a planner says."""

from __future__ import annotations

from rollwright.drive.virtual.engine import VirtualEngine
from rollwright.drive.virtual.learner import LearnerTime
from rollwright.drive.virtual.model import Planner, StepCost
from rollwright.events import Sampled


class Elastic:
    """Asks a planner after each update, and moves workers.

    Args:
        planner: says how many of all workers train.
        engine: whose first kind of workers may be lent.
        learner: which is quicker with them.
    """

    def __init__(self, planner: Planner, engine: VirtualEngine, learner: LearnerTime) -> None:
        self.planner, self.engine, self.learner = planner, engine, learner
        self.costs: list[StepCost] = []
        self.splits: list[int] = []
        self._last = (0.0, 0.0, 0.0)  # engine busy, learner's token seconds, time: at the last plan
        self._move()  # nobody has work yet

    def plan(self, now: float) -> list[Sampled]:
        """Note what the last step took, and move workers; return what those that move had made."""
        busy, trained = self.engine.account().busy_seconds, self.learner.token_seconds
        before = self._last
        self._last = (busy, trained, now)
        self.costs.append(StepCost(busy - before[0], now - before[2], trained - before[1]))
        return self._move()

    def _move(self) -> list[Sampled]:
        own, num_rolling = self.learner.model.num_workers, self.engine.model.num_workers
        wanted = self.planner.num_training(self.costs, num_rolling + own, self.learner.num_workers)
        lent = min(max(0, wanted - own), num_rolling - 1)
        self.learner.num_lent = lent
        self.splits.append(lent + own)
        return self.engine.lend(lent)
