"""The virtual driver: the real runner on a virtual clock, with a modelled world around it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from rollwright.drive.inline import Sink
from rollwright.drive.virtual.clock import Clock
from rollwright.drive.virtual.content import Content, ModelledContent, Request
from rollwright.drive.virtual.elastic import Elastic
from rollwright.drive.virtual.engine import VirtualEngine
from rollwright.drive.virtual.learner import LearnerTime, next_version
from rollwright.drive.virtual.model import Model
from rollwright.drive.virtual.world import Answers, Line, ModelledWorld, call_seconds
from rollwright.errors import ConfigError, LawBroken
from rollwright.events import (
    Abort,
    AnyCommand,
    AnyEvent,
    CancelTimer,
    EmitBatch,
    EnvStep,
    Event,
    Finish,
    Observed,
    Published,
    Report,
    Reset,
    Resumed,
    Retire,
    Score,
    Scored,
    SetTimer,
    Started,
    Submit,
    TimerFired,
)
from rollwright.runner import Runner
from rollwright.runner.batch import Closed
from rollwright.runner.state import Phase
from rollwright.tree import Node, path_to

Watch = Callable[[float, AnyCommand], None]


class VirtualDriver:
    """Run a runner to its end without waiting.

    Args:
        runner: the state machine, fresh or folded from a journal.
        model: times and sizes.
        content: what the engine answers; None is the model's.
        world: prompts, environments and grades; None is the model's.
        train: gives the update of a batch; None is the model's. The learner's time is the model's.
        journal: keeps every event before it is acted upon.
        on_command: called with (virtual seconds, command) for each command.
        on_closed: called with the groups that a step closed, before its report is handed on.
        started_at: virtual seconds at which the run goes on.

    Raises:
        ConfigError: the method needs something of the engine that the content does not give.
    """

    def __init__(
        self,
        runner: Runner,
        model: Model,
        content: Content | None = None,
        world: Answers | None = None,
        train: Callable[[EmitBatch], Published] | None = None,
        journal: Sink | None = None,
        on_command: Watch | None = None,
        on_closed: Callable[[Sequence[Closed]], None] | None = None,
        started_at: float = 0.0,
    ) -> None:
        self.runner, self.model, self.journal = runner, model, journal
        self.on_command, self.on_closed = on_command, on_closed
        seed = runner.settings.seed
        content = content or ModelledContent(model)
        missing = runner.method.engine_needs - content.gives
        if missing:
            raise ConfigError(
                f"method {runner.method.name!r} needs {sorted(missing)} of the engine; these answers"
                f" give {sorted(content.gives)}: run it with a real engine, or give a content that has them"
            )
        self.clock = Clock(started_at)
        self.engine = VirtualEngine(
            model.engine, content, self.clock, seed, runner.version, model.placement, model.others
        )
        self.world: Answers = world or ModelledWorld(model, seed)
        self.train = train or next_version
        self.learner = LearnerTime(model.learner)
        self.elastic = None if model.planner is None else Elastic(model.planner, self.engine, self.learner)
        services = model.services
        self.lines = {
            Reset: (Line(None), services.reset),
            EnvStep: (Line(services.num_envs), services.env_step),
            Score: (Line(services.num_graders), services.grade),
        }
        self.finished: str | None = None
        self.is_stopping = False
        self.num_events = 0
        self._rollouts_since, self._arithmetic_before = started_at, 0.0
        self._timers: dict[str, int] = {}
        self._num_timers = 0
        self._num_owed = 0  # answers of the world and the learner that are planned

    @property
    def now(self) -> float:
        return self.clock.now

    def run(self, is_resumed: bool = False) -> str | None:
        """Run until the runner finishes or `stop` is called; return the reason, None when stopped.

        Raises:
            LawBroken: the runner waits, but nothing is under way.
        """
        self.feed([Resumed(at=self.now) if is_resumed else Started(at=self.now)])
        if self.runner.phase is not Phase.DONE:
            self.finished = None  # an end that the restart undid
        while self.finished is None and not self.is_stopping:
            is_retrying = any(timer.startswith("retry:") for timer in self._timers)
            if not (self._num_owed or self.engine.num_live or is_retrying):
                raise LawBroken(
                    f"the run waits for nothing in phase {self.runner.phase.value}: {list(self.runner.asks)}"
                )
            events = self.clock.advance()
            if events:
                self.feed(events)
        return self.finished

    def stop(self) -> None:
        """Stop after what is being done now."""
        self.is_stopping = True

    def feed(self, events: Sequence[AnyEvent]) -> None:
        """Give events of this instant to the runner, journal them, and carry out what it wants."""
        while events:
            commands: list[AnyCommand] = []
            for event in events:
                decided = self.runner.step(event)
                if self.journal is not None:
                    self.journal.append(event, decided)
                commands += decided
                if self.model.learner.streams and isinstance(event, Scored):
                    self._work_ahead(event.ask.rpartition("/")[0])
            if self.journal is not None:
                self.journal.flush()
            self.num_events += len(events)
            events = [answer for command in commands for answer in self.execute(command)]

    # ------------------------------------------------------------ commands

    def execute(self, command: AnyCommand) -> Sequence[AnyEvent]:
        """Carry out one command; return the answers that are there at once."""
        if isinstance(command, Report):
            closed = self.runner.take_closed()
            if self.on_closed is not None:
                self.on_closed(closed)
        if self.on_command is not None:
            self.on_command(self.now, command)
        if isinstance(command, Submit):
            self.engine.submit(self._request(command))
        elif isinstance(command, (Reset, EnvStep, Score)):
            if isinstance(command, Score):
                stream = self.runner.groups[command.group].nodes[command.leaf].stream
                self.engine.finish(command.group, stream)
            line, duration = self.lines[type(command)]
            seconds = call_seconds(duration, self.runner.settings.seed, command.ask)
            self._owe(line.serve(self.now, seconds), self._answer, command)
        elif isinstance(command, Abort):
            # An ask that ended at the same instant needs no abort any more.
            return (self.engine.abort(command.ask),) if command.ask in self.engine.live else ()
        elif isinstance(command, EmitBatch):
            self._owe(self.learner.update(command, self.now, self._free_seconds()), self._publish, command)
        else:
            self._note(command)
        return ()

    def _free_seconds(self) -> float:
        """Return the time since the last update in which a worker's arithmetic was free, on average."""
        used = self.engine.arithmetic_seconds() - self._arithmetic_before
        return max(0.0, self.now - self._rollouts_since - used / len(self.engine.workers))

    def _request(self, command: Submit) -> Request:
        nodes = self.runner.groups[command.group].nodes
        path: list[tuple[Node, int]] = path_to(nodes, command.parent)
        path[-1] = (path[-1][0], command.at)
        return Request(command, self.runner.asks[command.ask].stream, path)

    def _note(self, command: AnyCommand) -> None:
        if isinstance(command, SetTimer):
            self._num_timers += 1
            self._timers[command.timer] = self._num_timers
            self.clock.plan(self.now + command.seconds, self._fire, command.timer, self._num_timers)
        elif isinstance(command, CancelTimer):
            self._timers.pop(command.timer, None)
        elif isinstance(command, Retire):
            self.engine.retire(command.group)
            self.world.retire(command.group)
        elif isinstance(command, Finish):
            self.finished = command.reason
        else:
            assert isinstance(command, Report)

    # ------------------------------------------------------------ what the clock brings

    def _owe(self, time: float, action: Callable[..., Sequence[AnyEvent]], command: AnyCommand) -> None:
        self._num_owed += 1
        self.clock.plan(time, action, command)

    def _fire(self, timer: str, number: int) -> Sequence[AnyEvent]:
        if self._timers.get(timer) != number:
            return ()
        del self._timers[timer]
        return (TimerFired(timer=timer, at=self.now),)

    def _answer(self, command: Reset | EnvStep | Score) -> Sequence[AnyEvent]:
        self._num_owed -= 1
        if command.ask not in self.runner.asks:
            return ()  # given up meanwhile; its group may be gone
        if isinstance(command, Reset):
            return (self._stamped(self.world.reset(command)),)
        group = self.runner.groups[command.group]
        if isinstance(command, EnvStep):
            answer = self.world.env_step(command, group.task, group.nodes)
            if isinstance(answer, Observed):
                self.engine.hear(group.id, self.runner.asks[command.ask].stream, answer)
            return (self._stamped(answer),)
        truncated = group.trajectories[command.leaf].truncated
        return (self._stamped(self.world.score(command, group.task, group.nodes, truncated)),)

    def _publish(self, command: EmitBatch) -> Sequence[AnyEvent]:
        self._num_owed -= 1
        self._rollouts_since, self._arithmetic_before = self.now, self.engine.arithmetic_seconds()
        published = self.train(command)
        events: list[AnyEvent] = [*self.engine.publish(published.version), self._stamped(published)]
        return events if self.elastic is None else [*events, *self.elastic.plan(self.now)]

    def _work_ahead(self, group_id: str) -> None:
        """Let the learner begin with a group that is complete."""
        group = self.runner.groups.get(group_id)
        if group is not None and group.is_complete and not group.is_broken:
            paths = [path_to(group.nodes, leaf) for leaf in group.trajectories]
            num = sum(num for path in paths for _, num in path)
            self.learner.work_ahead(group_id, num, self.now)

    def _stamped(self, event: Event) -> AnyEvent:
        return msgspec.structs.replace(event, at=self.now)  # type: ignore[return-value]
