"""What a run knows of its tasks, and which of them are in quarantine."""

from __future__ import annotations

from rollwright.runner.settings import Settings
from rollwright.stage import TaskHistory
from rollwright.tree import TaskId


class TaskLog:
    """What the run knows of its tasks (`rollwright.stage.History`).

    Attributes:
        num_bad: visits in a row that ended without any scored rollout, by task.
        passes: how often a task in quarantine is passed over before it is picked again.
    """

    def __init__(self, settings: Settings) -> None:
        self.tasks, self.seed = settings.tasks, settings.seed
        self.num_picked, self.step = 0, 0
        self.num_bad: dict[TaskId, int] = {}
        self.passes: dict[TaskId, int] = {}
        self._tasks: dict[TaskId, TaskHistory] = {}

    def of(self, task: TaskId) -> TaskHistory:
        return self._tasks.setdefault(task, TaskHistory())

    def note_visit(self, task: TaskId, is_bad: bool, settings: Settings) -> None:
        """Note that a visit ended; a task that keeps failing goes into quarantine."""
        if not is_bad:
            self.num_bad.pop(task, None)
            return
        num = self.num_bad[task] = self.num_bad.get(task, 0) + 1
        if 0 < settings.quarantine_after <= num:
            self.passes[task] = settings.quarantine_visits

    def passes_over(self, task: TaskId) -> bool:
        """Say whether a task that was picked is in quarantine; each time shortens its stay by one visit."""
        left = self.passes.get(task, 0)
        if left > 1:
            self.passes[task] = left - 1
        else:
            self.passes.pop(task, None)
        return left > 0
