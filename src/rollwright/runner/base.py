"""What every part of the runner shares: its state, the views of it, and which groups changed."""

from __future__ import annotations

from typing import Any

from rollwright.errors import ConfigError
from rollwright.events import Abort, AnyCommand, SetTimer
from rollwright.ledger import Ledger
from rollwright.method import Method
from rollwright.runner.batch import Closed, in_order, judge
from rollwright.runner.groups import Grower
from rollwright.runner.history import TaskLog
from rollwright.runner.settings import Settings
from rollwright.runner.state import AskState, GroupState, LiveAsk, Phase, StepState
from rollwright.stage import GroupView, StepView
from rollwright.tree import Group

IDLE = (AskState.WAITING, AskState.QUEUED, AskState.PAUSED)  # nobody works on it


class Base:
    """The state. All of it pickles except the plans' generators, which are built again."""

    def __init__(self, method: Method, settings: Settings, version: int = 0) -> None:
        if not settings.tasks:
            raise ConfigError("the run has no tasks; give a task with at least one instance")
        self.method, self.settings, self.version = method, settings, version
        self.max_flying = method.max_flying
        self.is_started, self.is_done = False, False
        self.steps: dict[int, StepState] = {}  # begun and not over, in order
        self.next_step = 0
        self.ledger = Ledger()
        self.ledger.grant(settings.budget)
        self.history = TaskLog(settings)
        self.asks: dict[str, LiveAsk] = {}
        self.groups: dict[str, GroupState] = {}  # of open steps, or carried, in order of opening
        self.held: dict[str, GroupState] = {}  # complete, kept by Replay for a first training later
        self.touched: dict[str, None] = {}  # groups that changed since they were last looked at
        self.num_steps, self.num_opened = settings.num_steps, 0
        self.replay_state: Any = method.replay.init()
        self.stop_reason, self.end_reason = "", ""
        self.num_late = 0
        self.tasks_sampled: set[str] = set()  # of the closed steps; counted in reports
        self.tasks_trained: set[str] = set()
        self.num_received: dict[str, int] = {}  # groups of other runs: taken, and refused by reason
        self.leaving: list[str] = []  # groups that left their step and are not retired yet
        self.last_at = 0.0
        self.timers: dict[str, SetTimer] = {}
        self.due: dict[str, float] = {}  # seconds of the run at which a timer fires; for reports only
        self.line: list[tuple[int, int, int, str]] = []  # a heap of asks that wait for a place in flight
        self.closed: list[Closed] = []  # for the record; see take_closed
        self._views: dict[str, GroupView] = {}
        self._step_views: dict[int, StepView] = {}  # the last ones, until a group changes
        self.grower = Grower(method, settings, self.asks)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "grower"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.grower = Grower(self.method, self.settings, self.asks)
        for group in self.groups.values():
            self.grower.rebuild(group)

    # ------------------------------------------------------------ where the run is

    @property
    def oldest(self) -> StepState | None:
        """The step whose batch is trained next, or is with the learner."""
        return next(iter(self.steps.values()), None)

    @property
    def step_number(self) -> int:
        """The oldest step that is not over; -1 before the start."""
        return next(iter(self.steps), self.next_step) if self.is_started else -1

    @property
    def phase(self) -> Phase:
        """The phase of the oldest step that is not over."""
        if self.is_done or not self.is_started:
            return Phase.DONE if self.is_done else Phase.NEW
        return Phase.ROLLOUTS if self.oldest is None else self.oldest.phase

    @property
    def batch(self) -> tuple[Group, ...]:
        """The groups that the oldest step trains on, once they are chosen."""
        return () if self.oldest is None else self.oldest.batch

    def step_of(self, group: GroupState) -> StepState | None:
        """Return the open step that the group belongs to; None while it waits for one to begin."""
        return self.steps.get(group.step)

    def enter(self, step: StepState, phase: Phase) -> None:
        """Move a step to its next phase."""
        step.phase, step.since = phase, self.last_at

    def take_closed(self, upto: int | None = None) -> list[Closed]:
        """Return the groups closed since the last call, with the fate and reason of each leaf.

        Args:
            upto: the last step whose groups are wanted; None is all.
        """
        taken = [c for c in self.closed if upto is None or c.step <= upto]
        self.closed = [c for c in self.closed if upto is not None and c.step > upto]
        return taken

    # ------------------------------------------------------------ what changed

    def touch(self, group: GroupState) -> None:
        """Note that the group changed."""
        self.touched[group.id] = None

    def look(self) -> None:
        """Judge the touched groups that are complete, and note which are not and hold their step open."""
        for group_id in self.touched:
            self._views.pop(group_id, None)
            group = self.groups.get(group_id)
            if group is None:
                continue
            self._step_views.pop(group.step, None)
            states = {self.asks[ask].state for ask in group.asks}
            # Carried asks wait for the next step.
            is_busy = bool(states - {AskState.WAITING})
            step = self.step_of(group)
            if step is not None:
                (step.incomplete.add if is_busy else step.incomplete.discard)(group_id)
                is_aborting = AskState.ABORTING in states
                (step.aborting.add if is_aborting else step.aborting.discard)(group_id)
            if not is_busy and group.is_complete and group.is_kept is None:
                judge(self.method, group, self.settings.min_group)
        self.touched.clear()

    def view(self, step: StepState | None = None) -> StepView:
        """Return what Allocate and Control see of a step, by default the oldest."""
        self.look()
        step = step or self.oldest
        assert step is not None, "no step is open"
        # What Replay holds, and is not with the learner, goes into the oldest batch that is not made yet.
        is_next = all(other.number >= step.number for other in self.steps.values() if not other.batch)
        num_held = len(self.held.keys() - {group.id for group in self.batch}) if is_next else 0
        whole = (self.version, step.round, num_held)
        last = self._step_views.get(step.number)
        if last is not None and whole == (last.version, last.round, last.num_held):
            return last  # most events are chunks, which change nothing that is seen here
        for group_id in step.groups:
            if group_id not in self._views:
                self._views[group_id] = _group_view(self.groups[group_id])
        view = self._step_views[step.number] = StepView(
            step=step.number,
            version=self.version,
            round=step.round,
            num_tasks=self.settings.num_tasks,
            groups=tuple(map(self._views.__getitem__, step.groups)),
            num_held=num_held,
        )
        return view

    def drop_group(self, group_id: str) -> GroupState:
        """Forget a group that leaves its step and return its state."""
        group = self.groups.pop(group_id)
        self._leave_step(group)
        self.leaving.append(group_id)
        return group

    def _leave_step(self, group: GroupState) -> None:
        self._views.pop(group.id, None)
        self._step_views.pop(group.step, None)
        step = self.step_of(group)
        if step is not None:
            step.groups.pop(group.id, None)
            for some in (step.incomplete, step.aborting, step.must_finish):
                some.discard(group.id)

    def note_failure(self, group: GroupState, kind: str, message: str, num: int = 1) -> None:
        """Count ``num`` rollouts that failed, for the step's report."""
        step = self.step_of(group) or self.oldest
        if step is not None:
            name = f"{message} ({kind})"
            step.failures[name] = step.failures.get(name, 0) + num

    def abort(self, live: LiveAsk, how: str, reason: str = "") -> list[AnyCommand]:
        """Ask for an abort of a live ask: to carry it over, to stop it, or because it failed."""
        self.grower.turn(live, AskState.ABORTING)
        live.on_abort, live.reason = how, reason  # type: ignore[assignment]
        self.touch(self.groups[live.group])
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
