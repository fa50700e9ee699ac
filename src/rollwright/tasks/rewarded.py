"""Any task with other grades: by reward functions of the user, or shaped by a critic."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from rollwright.grade.reward import Call, Reward, RewardFunction, load_reward, load_rewards
from rollwright.grade.verdict import Status
from rollwright.tasks.api import Observation, Record, Task, Verdict
from rollwright.tree import TaskId


@dataclass(frozen=True, slots=True)
class Around:
    """A task that is ``task`` but for its grades."""

    task: Task

    @property
    def name(self) -> str:
        return self.task.name

    @property
    def max_turns(self) -> int:
        return self.task.max_turns

    @property
    def max_tokens(self) -> int:
        return self.task.max_tokens

    @property
    def context(self) -> int:
        return self.task.context

    @property
    def stop_strings(self) -> tuple[str, ...]:
        return self.task.stop_strings

    def ids(self, split: str) -> Sequence[TaskId]:
        return self.task.ids(split)

    def prompt(self, task_id: TaskId) -> str:
        return self.task.prompt(task_id)

    def reset(self, task_id: TaskId) -> Any:
        return self.task.reset(task_id)

    def step(self, state: Any, text: str) -> tuple[Any, Observation]:
        return self.task.step(state, text)

    def demonstrate(self, task_id: TaskId, rng: Any, noise: float) -> Sequence[str]:
        return self.task.demonstrate(task_id, rng, noise)

    def row(self, task_id: TaskId) -> Mapping[str, Any]:
        """Return the row of an id; a task without rows has none."""
        return self.task.row(task_id) if hasattr(self.task, "row") else {}


@dataclass(frozen=True, slots=True)
class Rewarded(Around):
    """``task``, graded by user reward functions.

    The score is the weighted sum of the functions' numbers; a function that returns None does not count.
    Where any function fails, the trajectory is not scored. A function sees the first turn's prompt, all
    sampled turns joined as the completion, and the fields of the task's row where it has rows. Each
    function's own number is kept in the verdict's rewards, without its weight.
    """

    wants_record: ClassVar[bool] = True

    rewards: tuple[Reward, ...]

    @property
    def grader_version(self) -> str:
        return "reward:" + "+".join(reward.name for reward in self.rewards)

    def grade(
        self,
        task_id: TaskId,
        state: Any,
        turns: Sequence[str],
        truncated: bool,
        record: Record | None = None,
    ) -> Verdict:
        known = (None, None) if record is None else (record.ids, record.version)
        call = Call(self.prompt(task_id), tuple(turns), self.row(task_id), self.name, *known)
        verdicts = [reward.many([call])[0] for reward in self.rewards]
        return _together(self.rewards, verdicts, truncated)


Shape = Callable[[str, Sequence[str], Sequence[Verdict]], Sequence[Verdict]]


@dataclass(frozen=True, slots=True)
class Shaped(Around):
    """``task`` with its verdicts shaped by something that looks at the answers too, such as a critic.

    Args:
        task: gives the verdicts.
        shape: (prompt, answers, verdicts) to verdicts, for example `FlawAware.shape`; it is called with one
            answer, the sampled turns joined.
        grader: its name and version.
    """

    shape: Shape
    grader: str

    @property
    def grader_version(self) -> str:
        return f"{self.grader}>{self.task.grader_version}"

    @property
    def wants_record(self) -> bool:
        return bool(getattr(self.task, "wants_record", False))

    def grade(
        self,
        task_id: TaskId,
        state: Any,
        turns: Sequence[str],
        truncated: bool,
        record: Record | None = None,
    ) -> Verdict:
        more = {"record": record} if self.wants_record else {}
        verdict = self.task.grade(task_id, state, turns, truncated, **more)
        return self.shape(self.prompt(task_id), ["".join(turns)], [verdict])[0]


def _together(rewards: Sequence[Reward], verdicts: Sequence[Verdict], truncated: bool) -> Verdict:
    """Return the sum of the scored verdicts, with each one's own rewards."""
    parts = {name: value for verdict in verdicts for name, value in verdict.rewards.items()}
    detail = "; ".join(verdict.detail for verdict in verdicts if verdict.detail)
    for verdict in verdicts:
        if verdict.status == Status.GRADER_ERROR:
            return replace(verdict, rewards=parts, detail=detail)
    pairs = zip(rewards, verdicts, strict=True)
    scores = [reward.weight * v.score for reward, v in pairs if v.score is not None]
    if not scores:
        return replace(verdicts[0], rewards=parts, detail=detail)
    total = math.fsum(scores)
    status = Status.RIGHT if total >= 1 else Status.TRUNCATED if truncated else Status.WRONG
    extracted = next((v.extracted for v in verdicts if v.extracted is not None), None)
    settings = {f"{v.grader}.{key}": value for v in verdicts for key, value in v.settings.items()}
    grader = "+".join(verdict.grader for verdict in verdicts)
    return Verdict(total, status, extracted, detail, parts, grader=grader, settings=settings)


def with_rewards(
    task: Task, reward: str | RewardFunction | Reward | Sequence[str | RewardFunction | Reward]
) -> Task:
    """Return ``task`` graded by user reward functions; a text may name several, with commas."""
    if isinstance(reward, str):
        return Rewarded(task, tuple(load_rewards(reward)))
    several = [reward] if callable(reward) else list(reward)
    return Rewarded(task, tuple(load_reward(one) for one in several))
