"""The course of the steps: open, allocate, roll out in rounds, close, carry over, go on."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rollwright import rng as randomness
from rollwright.events import AnyCommand, CancelTimer, Reset, SetTimer
from rollwright.ledger import Unit
from rollwright.runner.learning import Learning
from rollwright.runner.state import AskState, GroupState, LiveAsk, Phase, StepState
from rollwright.stage import Grant, Left
from rollwright.tree import TaskId


class Steps(Learning):
    """The part of the runner that moves from step to step."""

    # ------------------------------------------------------------ opening

    def advance(self) -> list[AnyCommand]:
        """Train the oldest step if it is rolled out, open every step that may begin, or end the run."""
        commands: list[AnyCommand] = []
        while self.is_started and not self.is_done:
            oldest = self.oldest
            if oldest is not None and oldest.phase is Phase.READY:
                commands += self.learn(oldest)
            elif not self._why_no_more() and self.next_step - self.step_number <= self.num_ahead:
                commands += self._open_step()
            elif oldest is None:
                commands += self.finish(self._why_no_more())
            else:
                break
        return commands

    @property
    def num_ahead(self) -> int:
        return 0 if self.settings.is_evaluation else self.settings.num_ahead

    def _why_no_more(self) -> str:
        """Return why no further step may begin; empty if one may."""
        if self.next_step >= self.num_steps:
            return "all steps done"
        exhausted = self.ledger.exhausted
        return self.stop_reason or (f"the budget of {exhausted} is spent" if exhausted else "")

    def _open_step(self) -> list[AnyCommand]:
        """Open the next step, carried work first."""
        number, self.next_step = self.next_step, self.next_step + 1
        step = self.steps[number] = StepState(number, since=self.last_at)
        commands: list[AnyCommand] = [self.set_rollout_timer(step)]
        carried = [group for group in self.groups.values() if group.step == number]
        for group in carried:
            step.groups[group.id] = None
            group.is_carried = True
            self.touch(group)
        return commands + self._go_on(carried) + self.ask_allocate(step)

    def _go_on(self, groups: Sequence[GroupState]) -> list[AnyCommand]:
        """Submit what waits in these groups, in the order in which it was asked."""
        mine = {group.id for group in groups}
        commands: list[AnyCommand] = []
        for live in [x for x in self.asks.values() if x.state is AskState.WAITING and x.group in mine]:
            live.on_abort = "carry"
            commands += self.resubmit(live)
        return commands

    # ------------------------------------------------------------ rounds

    def ask_allocate(self, step: StepState) -> list[AnyCommand]:
        """Ask for a round of a step, or end its rollouts if there is none."""
        if step.round and (self.ledger.exhausted or self.stop_reason or step.is_overdue):
            return self._end_rollouts(step)
        left = Left(self.ledger.left(Unit.ROLLOUTS), self.ledger.left(Unit.SAMPLED))
        grant = self.method.allocate.grant(self.view(step), left)
        step.round += 1
        commands = self.open_granted(step, grant)
        self.look()
        return commands if commands or step.incomplete else self._end_rollouts(step)

    def open_granted(self, step: StepState, grant: Grant, *labels: object) -> list[AnyCommand]:
        """Open the new tasks and the extra rollouts of a grant; ``labels`` tell a round's grants apart."""
        commands: list[AnyCommand] = []
        for task in self._pick(step, grant.new_tasks, labels):
            commands += self._open(step, task, grant.each)
        for group_id, num in grant.extra.items():
            commands += self._grant(self.groups[group_id], num)
        return commands

    def _pick(self, step: StepState, num: int, labels: Sequence[object]) -> list[TaskId]:
        """Let Select pick; for a task in quarantine it is asked for another one."""
        picked: list[TaskId] = []
        self.history.step = step.number
        stream = randomness.generator(self.settings.seed, "select", step.number, step.round, *labels)
        most = num + len(self.settings.tasks) * self.settings.quarantine_visits
        while (missing := num - len(picked)) and most > 0:
            some = self.method.select.pick(self.history, missing, stream)
            self.history.num_picked += len(some)
            for task in some:
                self.history.of(task).last_step = step.number
            picked += [task for task in some if not self.history.passes_over(task)]
            most -= len(some)
            if len(some) < missing:
                break  # it has no more
        return picked

    def _open(self, step: StepState, task: TaskId, num: int) -> list[AnyCommand]:
        history = self.history.of(task)
        visit = history.visits
        group = GroupState(f"{task}#{visit}", task, visit, self.num_opened, step.number, step.number)
        history.visits = visit + 1
        self.num_opened += 1
        self.groups[group.id] = group
        step.groups[group.id] = None
        ask = f"{group.id}/root"
        command = Reset(ask=ask, group=group.id, task=task)
        self.asks[ask] = LiveAsk(ask, "reset", group.id, -1, command)
        group.asks.add(ask)
        return [command, *self._grant(group, num)]

    def _grant(self, group: GroupState, num: int) -> list[AnyCommand]:
        self.touch(group)
        if num <= 0 or group.is_broken:
            return []
        group.num_granted += num
        group.is_kept = None
        self.ledger.spend(Unit.ROLLOUTS, num)
        if not group.root:
            group.queued_plans.append(num)
            return []
        return self.grower.start_plan(group, num)

    def settle_rounds(self) -> list[AnyCommand]:
        """End what is closed, train what is ready, and ask for more where nothing is in flight."""
        commands: list[AnyCommand] = []
        self.look()
        for step in list(self.steps.values()):
            is_open = step.aborting or step.incomplete & step.must_finish
            if step.phase is Phase.CLOSING and not is_open:
                commands += self._end_rollouts(step)
        commands += self.advance()
        self.look()
        while (idle := self._idle_step()) is not None and not self.is_done:
            commands += self.ask_allocate(idle) + self.advance()
        return commands

    def _idle_step(self) -> StepState | None:
        idle = (s for s in self.steps.values() if s.phase is Phase.ROLLOUTS and not s.incomplete)
        return next(idle, None)

    def set_rollout_timer(self, step: StepState) -> SetTimer:
        timer, seconds = f"rollouts:{step.number}", self.settings.rollout_deadline
        return SetTimer(timer=timer, seconds=seconds, what="rollouts of the step")

    # ------------------------------------------------------------ closing and carrying over

    def close_step(self, step: StepState, unsent: Collection[str]) -> list[AnyCommand]:
        """End a step's rollouts; no engine has the unsent asks yet.

        What is not complete goes on in a later step: without a pause if one is open, else it is interrupted.
        A group that may not be carried that far is waited for.
        """
        self.enter(step, Phase.CLOSING)
        self.look()
        target = self._next_for_carried(step)
        moving = [group for group in self._members(step) if not group.is_complete]
        step.must_finish = {group.id for group in moving if self.may_not_pass(group, target - 1)}
        moving = [group for group in moving if group.id not in step.must_finish]
        if target in self.steps:
            return self._move(step, moving, target)
        mine = {group.id for group in moving}
        commands: list[AnyCommand] = []
        for live in [x for x in self.asks.values() if x.kind == "tokens" and x.group in mine]:
            if live.is_flying:
                commands += self.abort(live, "carry") if live.id not in unsent else []
            elif live.state in (AskState.QUEUED, AskState.PAUSED):
                commands += self.unpause(live)
                self.grower.turn(live, AskState.WAITING)
                self.touch(self.groups[live.group])
        return commands

    def _members(self, step: StepState) -> list[GroupState]:
        return [self.groups[group_id] for group_id in step.groups]

    def _next_for_carried(self, step: StepState) -> int:
        """Return the step in which the groups that this one does not complete go on."""
        later = (s.number for s in self.steps.values() if s.number > step.number)
        return next((n for n in later if self.steps[n].phase is Phase.ROLLOUTS), self.next_step)

    def _end_rollouts(self, step: StepState) -> list[AnyCommand]:
        """Nothing is in flight for the step any more: it is ready for the learner; the rest is carried."""
        self.look()
        target = self._next_for_carried(step)
        rest = [group for group in self._members(step) if not group.is_complete]
        late = [group for group in rest if self.may_not_pass(group, target - 1)]
        if late:
            # They were interrupted for a step that has closed meanwhile, and are too old for the next one.
            self.enter(step, Phase.CLOSING)
            step.must_finish = {group.id for group in late}
            return self._go_on(late)
        commands: list[AnyCommand] = [CancelTimer(timer=f"rollouts:{step.number}")]
        self.enter(step, Phase.READY)
        commands += self._move(step, rest, target)
        for group in self._members(step):
            self.remember(group)
        return commands

    def _move(self, step: StepState, groups: Sequence[GroupState], target: int) -> list[AnyCommand]:
        """Carry groups over to a later step, which may be open already."""
        later = self.steps.get(target)
        for group in groups:
            self._leave_step(group)
            group.step = target
            if later is not None:
                later.groups[group.id] = None
                group.is_carried = True
            self.touch(group)
        if later is None:
            return []
        later.groups = {g.id: None for g in sorted(self._members(later), key=lambda g: g.order)}
        self.look()
        return self._go_on(groups)
