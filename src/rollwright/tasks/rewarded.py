"""Any task with a user's reward function in the place of its grader."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from rollwright.grade.reward import Call, Reward, RewardFunction, load_reward, load_rewards
from rollwright.grade.verdict import Status
from rollwright.tasks.api import Observation, Record, Task, Verdict
from rollwright.tree import TaskId


@dataclass(frozen=True, slots=True)
class Rewarded:
    """``task``, graded by user reward functions.

    The score is the weighted sum of the functions' numbers; a function that returns None does not count.
    Where any function fails, the trajectory is not scored. A function sees the first turn's prompt, all
    sampled turns joined as the completion, and the fields of the task's row where it has rows. Each
    function's own number is kept in the verdict's rewards, without its weight.
    """

    wants_record: ClassVar[bool] = True

    task: Task
    rewards: tuple[Reward, ...]

    @property
    def name(self) -> str:
        return self.task.name

    @property
    def grader_version(self) -> str:
        return "reward:" + "+".join(reward.name for reward in self.rewards)

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

    def grade(
        self,
        task_id: TaskId,
        state: Any,
        turns: Sequence[str],
        truncated: bool,
        record: Record | None = None,
    ) -> Verdict:
        row: Mapping[str, Any] = self.task.row(task_id) if hasattr(self.task, "row") else {}
        known = (None, None) if record is None else (record.ids, record.version)
        call = Call(self.prompt(task_id), tuple(turns), row, self.name, *known)
        verdicts = [reward.many([call])[0] for reward in self.rewards]
        return _together(self.rewards, verdicts, truncated)


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
