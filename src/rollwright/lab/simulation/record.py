"""What a simulated run's record keeps: times of steps, ages, lengths, fates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from rollwright.events import AnyCommand, EmitBatch, Report, Reset, Score
from rollwright.ledger import Fate
from rollwright.runner.batch import Closed, age
from rollwright.tree import GroupId, Origin


class StepTimes(msgspec.Struct, frozen=True):
    """One step: its phases in virtual seconds, and its means. None is not measured in this step.

    Args:
        rollouts_seconds: from the last step's end until the batch was there: the learner waits.
        learn_seconds: from then to the new weights.
        tail_seconds: of the rollouts that ended since the last batch, from the end of the first nine
            tenths to the end of the last; 0 without any.
        num_trained: response tokens trained on.
    """

    step: int
    rollouts_seconds: float
    learn_seconds: float
    reward_mean: float | None
    length_mean: float | None
    length_max: float | None
    tail_seconds: float = 0.0
    num_trained: int = 0


class Leaves(msgspec.Struct):
    """Ends of rollouts with one fate: how many, and the sum of the tokens sampled on their paths."""

    num: int = 0
    num_tokens: int = 0


class Recorder:
    """Notes when batches are emitted, when steps end and what became of rollouts.

    Give `watch` to a driver as ``on_command`` and `close` as ``on_closed``.

    Attributes:
        trained, dropped: lengths of the rollouts that were trained on, in order, and of those that were not.
        kinds: trained rollouts by the first part of their task's id.
        waits: seconds from a group's opening to the batch that trained it, one per group.
    """

    def __init__(self) -> None:
        self.steps: list[StepTimes] = []
        self.ages: Counter[int] = Counter()
        self.leaves: dict[str, Leaves] = {}
        self.trained: list[int] = []
        self.dropped: list[int] = []
        self.kinds: Counter[str] = Counter()
        self.waits: list[float] = []
        self._started = 0.0
        self._emitted: dict[int, float] = {}
        self._trained: dict[int, int] = {}
        self._tails: dict[int, float] = {}
        self._ends: list[float] = []
        self._opened: dict[GroupId, float] = {}

    def watch(self, now: float, command: AnyCommand) -> None:
        """Take note of a command at ``now`` virtual seconds."""
        if isinstance(command, Score):
            self._ends.append(now)
        elif isinstance(command, Reset):
            self._opened.setdefault(command.group, now)
        elif isinstance(command, EmitBatch):
            self._emit(now, command)
        elif isinstance(command, Report):
            self._report(now, command)

    def _emit(self, now: float, batch: EmitBatch) -> None:
        self._emitted[batch.step] = now
        num = 0
        for group in batch.groups:
            self.waits.append(now - self._opened.pop(group.id, now))
            for trajectory in group.trajectories:
                path = group.path(trajectory.leaf)
                length = sum(n for node, n in path if node.origin is Origin.SAMPLED)
                num += length
                if not trajectory.replayed:
                    self.ages[age(group, trajectory.leaf, batch.version)] += 1
                    self.trained.append(length)
                    self.kinds[group.task.partition("/")[0]] += 1
        self._trained[batch.step] = num
        ends, self._ends = sorted(self._ends), []
        self._tails[batch.step] = ends[-1] - ends[int(0.9 * (len(ends) - 1))] if ends else 0.0

    def _report(self, now: float, report: Report) -> None:
        emitted = self._emitted.pop(report.step, now)
        metrics = report.metrics
        self.steps.append(
            StepTimes(
                step=report.step,
                rollouts_seconds=max(0.0, emitted - self._started),
                learn_seconds=now - max(emitted, self._started),
                reward_mean=metrics.get("reward_mean"),
                length_mean=metrics.get("length_mean"),
                length_max=metrics.get("length_max"),
                tail_seconds=self._tails.pop(report.step, 0.0),
                num_trained=self._trained.pop(report.step, 0),
            )
        )
        self._started = now

    def close(self, closed: Sequence[Closed]) -> None:
        """Take note of groups that a step closed."""
        for one in closed:
            for leaf, (fate, reason) in one.fates.items():
                if reason == "replayed":
                    continue  # counted when it was sampled
                leaves = self.leaves.setdefault(fate.value, Leaves())
                leaves.num += 1
                path = one.group.path(leaf)
                length = sum(num for node, num in path if node.origin is Origin.SAMPLED)
                leaves.num_tokens += length
                if fate is not Fate.TRAINED:
                    self.dropped.append(length)
