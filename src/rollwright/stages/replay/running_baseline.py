"""A baseline from the rewards of earlier batches, for methods without groups."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import ClassVar

import msgspec
import numpy as np

from rollwright.errors import ConfigError
from rollwright.stages.estimate.running_mean import RunningMean
from rollwright.tree import Group, GroupId

State = tuple[float, int]


@dataclass(frozen=True, slots=True)
class RunningBaseline:
    """Return the fresh groups, each with the running mean of the rewards before this batch as its baseline.

    b = `RunningMean` over the scores of all earlier batches; this batch's enter after it was fixed

    So no rollout's own reward, nor that of a sibling, is in its baseline: it is unbiased whatever the mean
    is.

    Args:
        start: the baseline of the first batch.
        decay: of the mean, in [0, 1]; `RunningMean`.

    Source: the single-rollout recipe (2026) names a running baseline; the form is our reading.
    """

    gives: ClassVar[frozenset[str]] = frozenset({"baseline"})

    start: float = 0.0
    decay: float = 0.99

    def __post_init__(self) -> None:
        if not math.isfinite(self.start):
            raise ConfigError(f"RunningBaseline: start = {self.start}; expected a finite number")
        RunningMean(self.decay)

    def init(self) -> State:
        return self.start, 0

    def exchange(
        self, state: State, fresh: Sequence[Group], version: int, rng: np.random.Generator, num_tasks: int
    ) -> tuple[State, Sequence[Group]]:
        mean = RunningMean(self.decay, *state)
        based = [msgspec.structs.replace(group, baseline=mean.predict(group.task)) for group in fresh]
        for group in fresh:
            for t in group.trajectories:
                mean = mean if t.score is None else mean.update(group.task, t.score)
        return (mean.mean, mean.num), based

    def holds(self, state: State) -> Collection[GroupId]:
        return ()
