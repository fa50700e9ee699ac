"""What controls decide while tokens flow, how many asks fly, and what timers end."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

from rollwright.events import AnyCommand, Event, Submit
from rollwright.runner.state import AskState, GroupState, LiveAsk, Phase, StepState
from rollwright.runner.steps import Steps
from rollwright.stage import PRECEDENCE, Action, Close, ForkAt, Grant, Stop


class Flow(Steps):
    """The part of the runner that steers what is in flight."""

    # ------------------------------------------------------------ controls

    def control(self, event: Event, decided: Sequence[AnyCommand]) -> list[AnyCommand]:
        """Ask the controls of every step that the event is about, and do what they say."""
        live = self.asks.get(getattr(event, "ask", ""))
        about = None if live is None else self.groups[live.group].step
        rolling = [step for step in self.steps.values() if step.phase is Phase.ROLLOUTS]
        commands: list[AnyCommand] = []
        for step in rolling:
            if about in (None, step.number):
                commands += self._control(step, event, [*decided, *commands])
        return commands

    def _control(self, step: StepState, event: Event, decided: Sequence[AnyCommand]) -> list[AnyCommand]:
        view = self.view(step)
        actions: list[Action] = [action for stage in self.method.control for action in stage(event, view)]
        actions.sort(key=lambda action: PRECEDENCE.index(type(action)))
        commands: list[AnyCommand] = []
        is_done: set[str] = set()
        for action in actions:
            if isinstance(action, Close):
                return self.close_step(step, {c.ask for c in decided if isinstance(c, Submit)})
            if isinstance(action, Grant):
                commands += self.open_granted(step, action, "now", self.num_opened)
                continue
            live = self.asks.get(action.ask)
            if live is None or live.kind != "tokens" or not live.is_flying or action.ask in is_done:
                continue
            group = self.groups[live.group]
            if isinstance(action, ForkAt):
                commands += self.grower.fork_live(group, live, action.at, action.num)
                continue
            is_stop = isinstance(action, Stop)
            if not is_stop and self.may_not_pass(group, group.step):
                continue  # it may not be carried over
            is_done.add(action.ask)
            commands += self.abort(live, "stop" if is_stop else "carry", getattr(action, "reason", ""))
        return commands

    # ------------------------------------------------------------ what may fly

    def defer(self, command: AnyCommand) -> bool:
        """Keep new sampling back whose step closes, has not begun, or is over."""
        if not isinstance(command, Submit) or self._may_sample(self.groups[command.group]):
            return False
        self.grower.turn(self.asks[command.ask], AskState.WAITING)
        self.touch(self.groups[command.group])
        return True

    def _may_sample(self, group: GroupState) -> bool:
        step = self.step_of(group)
        if step is None or self.is_done:
            return False
        return step.phase is Phase.ROLLOUTS or group.id in step.must_finish

    def admit(self, commands: list[AnyCommand]) -> list[AnyCommand]:
        """Keep at most ``max_flying`` asks for tokens in flight; the next in line takes a freed place."""
        limit = self.max_flying
        if limit is None:
            return commands
        fresh = {command.ask: command for command in commands if isinstance(command, Submit)}
        kept: list[AnyCommand] = [command for command in commands if not isinstance(command, Submit)]
        for ask in fresh:
            live = self.asks[ask]
            self.grower.turn(live, AskState.QUEUED)
            heappush(self.line, (*self._place(live), ask))
        while self.line and self.grower.num_flying < limit:
            ask = heappop(self.line)[-1]
            waiting = self.asks.get(ask)
            if waiting is None or waiting.state is not AskState.QUEUED:
                continue  # it was given up or carried over meanwhile
            self.grower.turn(waiting, AskState.FLYING)
            kept += [fresh[ask]] if ask in fresh else self.resubmit(waiting)
        return kept

    def _place(self, live: LiveAsk) -> tuple[int, int, int]:
        group = self.groups[live.group]
        return -live.priority, group.order, live.number

    # ------------------------------------------------------------ timers

    def fired(self, timer: str) -> list[AnyCommand]:
        """Give up what a timer was set for, or try again what it held back."""
        self.due.pop(timer, None)
        if self.timers.pop(timer, None) is None or self.is_done:
            return []
        kind, _, name = timer.partition(":")
        if kind == "retry":
            live = self.asks.get(name)
            return self.resubmit(live) if live is not None and live.state is AskState.PAUSED else []
        step = self.steps.get(int(name))
        if step is None:
            return []
        if kind == "learn":
            if step.phase is not Phase.LEARNING:
                return []
            return self.finish(f"the learner did not answer within {self.settings.learn_deadline} s")
        if step.phase not in (Phase.ROLLOUTS, Phase.CLOSING):
            return []
        step.is_overdue = True
        lives = [live for live in self.asks.values() if live.group in step.groups]
        overdue = [command for live in lives for command in self._overdue(step, live)]
        # The aborts, and what follows from them, are waits again.
        return [*overdue, self.set_rollout_timer(step)]

    def _overdue(self, step: StepState, live: LiveAsk) -> list[AnyCommand]:
        """Give up what was not answered in time; what a closing step will not train it does not wait for."""
        if live.state is AskState.ABORTING:
            return self.redo(live)
        is_ours = step.phase is Phase.ROLLOUTS or live.group in step.must_finish
        if live.state is AskState.WAITING or not is_ours:
            return []
        self.touch(self.groups[live.group])
        if live.state is AskState.QUEUED:  # it never had a chance
            self.grower.turn(live, AskState.WAITING)
            return []
        if live.kind == "tokens" and live.is_flying:
            return self.abort(live, "fail", "no answer in time")
        commands = self.unpause(live)
        return commands + self.lose(self.groups[live.group], live, "deadline", "no answer in time")
