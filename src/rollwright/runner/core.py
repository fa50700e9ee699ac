"""The runner: a pure state machine from events to commands. No clock, no sockets, no torch, no threads.

It is the only place that orders, spends, draws randomness and asks for I/O. Its state pickles; folding
the journal's events through a fresh runner gives the same commands and the same state.
"""

from __future__ import annotations

from collections.abc import Sequence

from rollwright.errors import LawBroken
from rollwright.events import (
    Abort,
    AnyCommand,
    AnyEvent,
    BudgetChanged,
    CancelTimer,
    EnvStep,
    Extended,
    Failed,
    Observed,
    Published,
    Received,
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
from rollwright.runner.flow import Flow
from rollwright.runner.state import Phase
from rollwright.runner.waits import Wait, list_waits


class Runner(Flow):
    """Fold events into commands.

    Args:
        method: the stages.
        settings: limits and names of the run.
        version: the policy's version at the start.
    """

    def step(self, event: AnyEvent) -> list[AnyCommand]:
        """Take one event and return what is to be done now, in order."""
        self.last_at, num_late = max(self.last_at, event.at), self.num_late
        commands = self._dispatch(event)
        if self.method.control and self.num_late == num_late:  # what comes too late did not happen
            commands += self.control(event, commands)
        if not commands and not self.touched and isinstance(event, Sampled) and event.stop is None:
            return []  # a chunk with more to come, as most events are, changes nothing but its ask
        commands = self.admit([command for command in commands if not self.defer(command)])
        commands += self.admit(self.settle_rounds())
        for command in commands:
            self._note(command)
        return commands

    def waits(self) -> list[Wait]:
        """Return every open wait, older steps first."""
        return list_waits(self)

    def _dispatch(self, event: AnyEvent) -> list[AnyCommand]:
        if isinstance(event, (Sampled, Observed, Scored, Failed)):
            return self._answer(event)
        if isinstance(event, Published):
            return self.published(event) + self.advance()
        if isinstance(event, Started):
            if self.is_started:
                raise LawBroken("the run was started twice")
            self.is_started = True
            return self.advance()
        if isinstance(event, TimerFired):
            return self.fired(event.timer)
        if isinstance(event, WorkerLost):
            lost = [self.asks[ask] for ask in event.asks if ask in self.asks]
            return [command for live in lost for command in self.lost_worker(live)]
        if isinstance(event, Resumed):
            return self._resume()
        if isinstance(event, Received):
            self.received(event)
            return []
        if isinstance(event, Extended):
            self.num_steps = event.num_steps
            return self._reopen() if self.is_done else []
        if isinstance(event, BudgetChanged):
            self.ledger.grant(event.granted)
        elif isinstance(event, StopAsked):
            self.stop_reason = self.stop_reason or "stopped by the user"
        return []

    def _answer(self, event: Sampled | Observed | Scored | Failed) -> list[AnyCommand]:
        step = self.oldest
        if isinstance(event, Failed) and step is not None and event.ask == f"learn:{step.number}":
            if self.phase is not Phase.LEARNING:
                self.num_late += 1
                return []
            return [CancelTimer(timer=event.ask), *self.finish(f"the learner failed: {event.message}")]
        return self.answer(event)

    def _note(self, command: AnyCommand) -> None:
        """Remember which timers are set, and since when an answer is owed."""
        if isinstance(command, SetTimer):
            self.timers[command.timer] = command
            self.due[command.timer] = self.last_at + command.seconds
        elif isinstance(command, CancelTimer):
            self.timers.pop(command.timer, None)
            self.due.pop(command.timer, None)
        elif isinstance(command, (Submit, Score, EnvStep, Reset, Abort)):
            live = self.asks.get(command.ask)
            if live is not None:
                live.since = self.last_at

    # ------------------------------------------------------------ going on

    def _resume(self) -> list[AnyCommand]:
        """Ask again for everything that is owed."""
        self.stop_reason = ""
        if not self.is_started:
            self.is_started = True
            return self.advance()
        if self.is_done:
            commands = self._reopen()
            return commands if self.is_done else [*commands, *self._redo_all(commands)]
        commands = self._redo_all()
        step = self.oldest
        if step is not None and step.phase is Phase.LEARNING:
            commands.append(self.emit(step))
        return [*commands, *self.timers.values()]

    def _redo_all(self, besides: Sequence[AnyCommand] = ()) -> list[AnyCommand]:
        done = {getattr(command, "ask", None) for command in besides}
        return [c for live in list(self.asks.values()) if live.id not in done for c in self.redo(live)]

    def _reopen(self) -> list[AnyCommand]:
        """Go on after an end that a restart or an extension may undo, or end again for the same reason."""
        if self.settings.is_evaluation:
            return self.finish(self.end_reason)
        self.is_done, step = False, self.oldest
        if step is not None and step.phase is Phase.LEARNING:  # the learner did not answer
            timers = list(self.timers.values())
            return [*timers, self.begin_learning(step), self.emit(step)]
        self.stop_reason = ""
        return self.advance()
