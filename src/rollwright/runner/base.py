"""What every part of the runner shares: its state, the views of it, and which groups changed."""

from __future__ import annotations

from typing import Any

from rollwright.errors import ConfigError
from rollwright.events import Abort, AnyCommand, SetTimer
from rollwright.ledger import Ledger
from rollwright.method import Method
from rollwright.runner.batch import Closed, Metrics, in_order, judge
from rollwright.runner.groups import Grower
from rollwright.runner.settings import Settings
from rollwright.runner.state import AskState, GroupState, LiveAsk, Phase
from rollwright.stage import GroupView, StepView, TaskHistory
from rollwright.tree import Group, TaskId


class TaskLog:
    """What the run knows of its tasks (`rollwright.stage.History`)."""

    def __init__(self, settings: Settings) -> None:
        self.tasks, self.seed = settings.tasks, settings.seed
        self.num_picked, self.step = 0, 0
        self._tasks: dict[TaskId, TaskHistory] = {}

    def of(self, task: TaskId) -> TaskHistory:
        return self._tasks.setdefault(task, TaskHistory())


class Base:
    """The state. All of it pickles except the plans' generators, which are built again."""

    def __init__(self, method: Method, settings: Settings, version: int = 0) -> None:
        if not settings.tasks:
            raise ConfigError("the run has no tasks; give a task with at least one instance")
        self.method, self.settings, self.version = method, settings, version
        self.phase, self.step_number, self.round = Phase.NEW, -1, 0
        self.ledger = Ledger()
        self.ledger.grant(settings.budget)
        self.history = TaskLog(settings)
        self.asks: dict[str, LiveAsk] = {}
        self.groups: dict[str, GroupState] = {}  # of this step or carried, in order of opening
        self.held: dict[str, GroupState] = {}  # complete, kept by Replay for a first training later
        self.incomplete: set[str] = set()
        self.touched: dict[str, None] = {}  # groups that changed since they were last looked at
        self.num_steps, self.num_opened = settings.num_steps, 0
        self.replay_state: Any = method.replay.init()
        self.batch: tuple[Group, ...] = ()
        self.step_report: Metrics = {}
        self.stop_reason, self.end_reason, self.is_overdue = "", "", False
        self.num_late = 0
        self.failures: dict[str, int] = {}  # rollouts that failed in this step, by what was said
        self.leaving: list[str] = []  # groups that left the step and are not retired yet
        self.last_at = 0.0
        self.timers: dict[str, SetTimer] = {}
        self.due: dict[str, float] = {}  # seconds of the run at which a timer fires; for reports only
        self.emitted_at = 0.0
        self.closed: list[Closed] = []  # for the record; see take_closed
        self._views: dict[str, GroupView] = {}
        self._view: StepView | None = None  # the last one, until a group changes
        self.grower = Grower(method, settings, self.asks)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "grower"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.grower = Grower(self.method, self.settings, self.asks)
        for group in self.groups.values():
            self.grower.rebuild(group)

    def take_closed(self) -> list[Closed]:
        """Return the groups closed since the last call, with the fate and reason of each leaf."""
        closed, self.closed = self.closed, []
        return closed

    def touch(self, group: GroupState) -> None:
        """Note that the group changed."""
        self.touched[group.id] = None

    def look(self) -> None:
        """Judge the touched groups that are complete, and note which are not and hold the step open."""
        if self.touched:
            self._view = None
        for group_id in self.touched:
            self._views.pop(group_id, None)
            group = self.groups.get(group_id)
            if group is not None and self._is_busy(group):
                self.incomplete.add(group_id)
                continue
            self.incomplete.discard(group_id)
            if group is not None and group.is_complete and group.is_kept is None:
                judge(self.method, group)
        self.touched.clear()

    def _is_busy(self, group: GroupState) -> bool:
        """Whether the group awaits an answer in this step; carried asks wait for the next one."""
        return any(self.asks[ask].state is not AskState.WAITING for ask in group.asks)

    def view(self) -> StepView:
        """Return what Allocate and Control see of the step."""
        self.look()
        whole = (self.step_number, self.version, self.round, len(self.held))
        last = self._view
        if last is not None and whole == (last.step, last.version, last.round, last.num_held):
            return last  # most events are chunks, which change nothing that is seen here
        for group_id, group in self.groups.items():
            if group_id not in self._views:
                self._views[group_id] = _group_view(group)
        self._view = StepView(
            step=self.step_number,
            version=self.version,
            round=self.round,
            num_tasks=self.settings.num_tasks,
            groups=tuple(map(self._views.__getitem__, self.groups)),
            num_held=len(self.held),
        )
        return self._view

    def drop_group(self, group_id: str) -> GroupState:
        """Forget a group of the step and return its state."""
        self._views.pop(group_id, None)
        self._view = None
        self.incomplete.discard(group_id)
        self.leaving.append(group_id)
        return self.groups.pop(group_id)

    def note_failure(self, kind: str, message: str, num: int = 1) -> None:
        """Count ``num`` rollouts that failed, for the step's report."""
        name = f"{message} ({kind})"
        self.failures[name] = self.failures.get(name, 0) + num

    def abort(self, live: LiveAsk, how: str, reason: str = "") -> list[AnyCommand]:
        """Ask for an abort of a live ask: to carry it over, to stop it, or because it failed."""
        live.state, live.on_abort, live.reason = AskState.ABORTING, how, reason  # type: ignore[assignment]
        return [Abort(ask=live.id)]


def _group_view(group: GroupState) -> GroupView:
    return GroupView(
        id=group.id,
        task=group.task,
        num_granted=group.num_granted,
        rewards=tuple(t.reward for t in in_order(group)),
        num_failed=group.num_failed,
        is_complete=group.is_complete,
        is_kept=group.is_kept,
        is_carried=group.is_carried,
        oldest_version=group.oldest_version,
    )
