"""Any task with a user's reward function in the place of its grader."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rollwright.grade.reward import Reward, RewardFunction, load_reward
from rollwright.tasks.api import Observation, Task, Verdict
from rollwright.tree import TaskId


@dataclass(frozen=True, slots=True)
class Rewarded:
    """``task``, graded by user reward functions.

    The score is the sum of the functions' numbers; a function that returns None does not count. Where
    any function fails, the trajectory is not scored. A function sees the first turn's prompt, all
    sampled turns joined as the completion, and the fields of the task's row where it has rows.
    """

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

    def grade(self, task_id: TaskId, state: Any, turns: Sequence[str], truncated: bool) -> Verdict:
        row: Mapping[str, Any] = self.task.row(task_id) if hasattr(self.task, "row") else {}
        verdicts = [reward(self.prompt(task_id), "".join(turns), row) for reward in self.rewards]
        for verdict in verdicts:
            if verdict.status == "grader_error":
                return verdict
        scores = [verdict.score for verdict in verdicts if verdict.score is not None]
        if not scores:
            return verdicts[0]
        total = sum(scores)
        parts = {name: value for verdict in verdicts for name, value in verdict.rewards.items()}
        status = "right" if total >= 1 else "truncated" if truncated else "wrong"
        return Verdict(total, status, rewards=parts)


def with_rewards(task: Task, reward: str | RewardFunction | Sequence[str | RewardFunction]) -> Task:
    """Return ``task`` graded by one or several user reward functions."""
    several = [reward] if isinstance(reward, str) or callable(reward) else list(reward)
    return Rewarded(task, tuple(load_reward(one) for one in several))
