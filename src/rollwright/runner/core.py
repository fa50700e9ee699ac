"""The runner: a pure state machine from events to commands. No clock, no sockets, no torch, no threads.

It is the only place that orders, spends, draws randomness and asks for I/O. Its state pickles; folding
the journal's events through a fresh runner gives the same commands and the same state.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rollwright.errors import LawBroken
from rollwright.events import (
    Abort,
    AnyCommand,
    AnyEvent,
    BudgetChanged,
    CancelTimer,
    EmitBatch,
    EnvStep,
    Event,
    Extended,
    Failed,
    Observed,
    Published,
    Reset,
    Resumed,
    Sampled,
    Score,
    Scored,
    SetTimer,
    Started,
    StopAsked,
    Submit,
    TimerFired,
    WorkerLost,
)
from rollwright.runner.state import AskState, LiveAsk, Phase
from rollwright.runner.steps import Steps
from rollwright.runner.waits import Wait, What, what_of
from rollwright.stage import PRECEDENCE, Action, Close, ForkAt, Grant, Stop


class Runner(Steps):
    """Fold events into commands.

    Args:
        method: the stages.
        settings: limits and names of the run.
        version: the policy's version at the start.
    """

    def step(self, event: AnyEvent) -> list[AnyCommand]:
        """Take one event and return what is to be done now, in order."""
        self.last_at = max(self.last_at, event.at)
        commands = self._dispatch(event)
        if self.method.control and self.phase is Phase.ROLLOUTS:
            commands += self._control(event, commands)
        commands = self._admit(event, [command for command in commands if not self._defer(command)])
        commands += self._admit(event, self.settle_rounds())
        for command in commands:
            self._note(command)
        return commands

    def _note(self, command: AnyCommand) -> None:
        """Remember which timers are set, and since when an answer is owed."""
        if isinstance(command, SetTimer):
            self.timers[command.timer] = command
            self.due[command.timer] = self.last_at + command.seconds
        elif isinstance(command, CancelTimer):
            self.timers.pop(command.timer, None)
        elif isinstance(command, (Submit, Score, EnvStep, Reset, Abort)):
            live = self.asks.get(command.ask)
            if live is not None:
                live.since = self.last_at
        elif isinstance(command, EmitBatch):
            self.emitted_at = self.last_at

    def _dispatch(self, event: AnyEvent) -> list[AnyCommand]:
        if isinstance(event, (Sampled, Observed, Scored, Failed)):
            return self.answer(event)
        if isinstance(event, Published):
            return self.published(event)
        if isinstance(event, Started):
            if self.phase is not Phase.NEW:
                raise LawBroken("the run was started twice")
            return self.begin_step()
        if isinstance(event, TimerFired):
            return self._timer(event.timer)
        if isinstance(event, WorkerLost):
            lost = [self.asks[ask] for ask in event.asks if ask in self.asks]
            return [command for live in lost for command in self.redo(live)]
        if isinstance(event, Resumed):
            return self._resume()
        if isinstance(event, Extended):
            return self._extend(event.num_steps)
        if isinstance(event, BudgetChanged):
            self.ledger.grant(event.granted)
        elif isinstance(event, StopAsked):
            self.stop_reason = self.stop_reason or "stopped by the user"
        return []

    def _defer(self, command: AnyCommand) -> bool:
        """Keep new sampling back while the step closes, while the learner works and after the end."""
        if self.phase is Phase.ROLLOUTS or not isinstance(command, Submit):
            return False
        self.asks[command.ask].state = AskState.WAITING
        return True

    def _admit(self, event: Event, commands: list[AnyCommand]) -> list[AnyCommand]:
        """Keep at most ``max_flying`` asks for tokens in flight; the next in line takes a freed place."""
        limit = self.method.max_flying
        is_chunk = isinstance(event, Sampled) and event.stop is None and not commands
        if limit is None or is_chunk or self.phase is not Phase.ROLLOUTS:
            return commands
        fresh = {command.ask: command for command in commands if isinstance(command, Submit)}
        kept: list[AnyCommand] = [command for command in commands if not isinstance(command, Submit)]
        num, waiting = 0, []
        for place, live in enumerate(self.asks.values()):
            if live.kind == "tokens":
                if live.id in fresh or live.state is AskState.WAITING:
                    waiting.append((-live.priority, self.groups[live.group].order, place, live))
                else:
                    num += 1
        waiting.sort(key=lambda one: one[:3])
        sent = {one[3].id: one[3] for one in waiting[: max(0, limit - num)]}
        for *_, live in waiting:
            if live.id in sent:
                kept += [fresh[live.id]] if live.id in fresh else self.resubmit(live)
            elif live.id in fresh:
                live.state = AskState.WAITING
                self.touch(self.groups[live.group])
        return kept

    def _extend(self, num_steps: int) -> list[AnyCommand]:
        self.num_steps = num_steps
        return self.reopen() if self.phase is Phase.DONE else []

    def _resume(self) -> list[AnyCommand]:
        self.stop_reason = ""
        if self.phase is Phase.NEW:
            return self.begin_step()
        if self.phase is Phase.DONE:
            return self.reopen()
        commands = [command for live in list(self.asks.values()) for command in self.redo(live)]
        if self.phase is Phase.LEARNING:
            commands.append(EmitBatch(step=self.step_number, version=self.version, groups=self.batch))
        return [*commands, *self.timers.values()]

    # ------------------------------------------------------------ control

    def _control(self, event: Event, decided: Sequence[AnyCommand]) -> list[AnyCommand]:
        view = self.view()
        actions: list[Action] = [action for stage in self.method.control for action in stage(event, view)]
        actions.sort(key=lambda action: PRECEDENCE.index(type(action)))
        commands: list[AnyCommand] = []
        is_done: set[str] = set()
        for action in actions:
            if isinstance(action, Close):
                return self._close({command.ask for command in decided if isinstance(command, Submit)})
            if isinstance(action, Grant):
                commands += self.open_granted(action, "now", self.num_opened)
                continue
            live = self.asks.get(action.ask)
            if live is None or live.kind != "tokens" or not live.is_flying:
                continue
            if action.ask in is_done:
                continue
            if isinstance(action, ForkAt):
                commands += self.grower.fork_live(self.groups[live.group], live, action.at, action.num)
                continue
            is_done.add(action.ask)
            is_stop = isinstance(action, Stop)
            commands += self.abort(live, "stop" if is_stop else "carry", getattr(action, "reason", ""))
        return commands

    def _close(self, unsent: Collection[str]) -> list[AnyCommand]:
        """End the step's rollouts: every live ask is carried over; no engine has the unsent ones yet."""
        self.phase = Phase.CLOSING
        flying = [live for live in self.asks.values() if live.kind == "tokens" and live.is_flying]
        return [c for live in flying if live.id not in unsent for c in self.abort(live, "carry")]

    # ------------------------------------------------------------ waits

    def waits(self) -> list[Wait]:
        """Return every open wait, in the order in which the steps and their asks began."""
        if self.phase in (Phase.NEW, Phase.DONE):
            return []
        step, phase = self.step_number, self.phase
        found: dict[What, list[LiveAsk]] = {}
        for live in self.asks.values():
            found.setdefault(what_of(live), []).append(live)
        timer = f"{'learn' if phase is Phase.LEARNING else 'rollouts'}:{step}"
        deadline = self.due[timer] if timer in self.timers else None
        waits = []
        for what, lives in found.items():
            since = min(live.since for live in lives)
            name = "" if what == "next step" else timer
            at = None if what == "next step" else deadline
            waits.append(Wait(step, phase.value, what, since, at, name, tuple(x.id for x in lives)))
        if phase is Phase.LEARNING:
            waits.append(Wait(step, phase.value, "learner", self.emitted_at, deadline, timer))
        return waits

    def _timer(self, timer: str) -> list[AnyCommand]:
        if self.timers.pop(timer, None) is None:
            return []
        if timer == f"learn:{self.step_number}" and self.phase is Phase.LEARNING:
            return self.finish(f"the learner did not answer within {self.settings.learn_deadline} s")
        if timer != f"rollouts:{self.step_number}" or self.phase not in (Phase.ROLLOUTS, Phase.CLOSING):
            return []
        self.is_overdue = True
        overdue = [command for live in list(self.asks.values()) for command in self._overdue(live)]
        # The aborts, and what follows from them, are waits again.
        return [*overdue, self.set_rollout_timer()]

    def _overdue(self, live: LiveAsk) -> list[AnyCommand]:
        """Give up what was not answered in time; a step that closes waits for its aborts only."""
        if live.state is AskState.ABORTING:
            return self.redo(live)
        if live.state is AskState.WAITING or self.phase is Phase.CLOSING:
            return []
        self.touch(self.groups[live.group])
        if live.kind == "tokens":
            return self.abort(live, "fail", "no answer in time")
        return self.lose(self.groups[live.group], live, "deadline", "no answer in time")
