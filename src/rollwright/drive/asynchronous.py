"""The asynchronous driver: engine, environments, graders and learner in threads of their own.

This thread alone runs the runner and writes the journal, so what is recorded, replayed and resumed is as
with every other driver. Threads overlap where their work does not hold Python's lock: in PyTorch's kernels,
in sandboxes and in calls over a network.
"""

from __future__ import annotations

import itertools
import queue
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from rollwright.drive.base import BaseDriver, Sink
from rollwright.drive.engine_thread import (
    Aborted,
    Broken,
    Chunks,
    EngineThread,
    InPlace,
    Publish,
    Refused,
    Said,
)
from rollwright.drive.pool import Done, Pool
from rollwright.drive.world import World
from rollwright.engine.api import Engine, ended
from rollwright.errors import EngineError, LawBroken
from rollwright.events import (
    Abort,
    AnyCommand,
    AnyEvent,
    EmitBatch,
    EnvStep,
    Failed,
    Published,
    Report,
    Reset,
    Score,
    Submit,
)
from rollwright.runner import Runner
from rollwright.tree import path_to

TICK = 0.5  # seconds after which a stop is seen at the latest


@dataclass(frozen=True, slots=True)
class Limits:
    """How many calls there are at once, and the seconds after which each is given up.

    Args:
        num_graders, num_environments: threads, ≥ 1. More than one needs a task whose grader (environment) may
            be called from several threads at once.
        grader_s, environment_s: for one grade, and for one prompt or environment step.
        engine_s: for one step of the engine or one change of its weights. An engine that takes longer ends
            the run: nothing else can sample.
        publish: see `EngineThread`.
    """

    num_graders: int = 1
    num_environments: int = 1
    grader_s: float = 600.0
    environment_s: float = 600.0
    engine_s: float = 600.0
    publish: Publish = "interrupt"


class AsyncDriver(BaseDriver):
    """Run a runner to its end while rollouts, grades and updates overlap.

    Args:
        runner: the state machine, fresh or folded from a journal.
        engine: samples tokens, from weights of its own.
        world: prompts, environments and grades.
        train: makes an update from a batch and returns what will be published.
        load: copies the learner's weights into the engine's model; called while neither is at work.
        journal, on_report, clock, started_at: as for `BaseDriver`. The learner is idle during ``on_report``.
        limits: threads and deadlines.

    Attributes:
        num_abandoned: threads of graders and environments that were given up.
        is_learning: an update is under way: the learner's weights are in change.
    """

    def __init__(
        self,
        runner: Runner,
        engine: Engine,
        world: World,
        train: Callable[[EmitBatch], Published],
        load: Callable[[], None],
        journal: Sink | None = None,
        on_report: Callable[[Report], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
        started_at: float = 0.0,
        limits: Limits | None = None,
    ) -> None:
        super().__init__(runner, journal, on_report, clock, started_at)
        self.world, self.train, self.limits = world, train, limits or Limits()
        self._inbox: queue.SimpleQueue[Said | Done] = queue.SimpleQueue()
        self._engine, self._load = engine, load
        self._calls: dict[int, AnyCommand] = {}  # what the pools have
        self._numbers = itertools.count()
        self._flying: set[str] = set()  # asks that the engine has
        self._aborting: set[str] = set()
        self._update: Published | None = None  # made, and not in place yet

    def run(self, is_resumed: bool = False, extend_to: int | None = None) -> str | None:
        """Run until the runner finishes or `stop` is called; see `BaseDriver.run`.

        Raises:
            EngineError: the engine failed, or did not answer in time.
        """
        put, some = self._inbox.put, self.limits
        self.engine = EngineThread(self._engine, put, self._load, some.publish, self.clock)
        self.graders = Pool("grader", some.num_graders, some.grader_s, put, self.clock)
        self.environments = Pool("environment", some.num_environments, some.environment_s, put, self.clock)
        self.learner = Pool("learner", 1, None, put, self.clock)
        try:
            reason = super().run(is_resumed, extend_to)
            if self.is_stopping and self.finished is None:
                self._finish()
            return reason
        finally:
            for pool in (self.graders, self.environments, self.learner):
                pool.close()
            self.engine.close(min(10.0, self.limits.engine_s))

    @property
    def num_abandoned(self) -> int:
        return self.graders.num_abandoned + self.environments.num_abandoned

    @property
    def is_learning(self) -> bool:
        return any(isinstance(command, EmitBatch) for command in self._calls.values())

    # ------------------------------------------------------------ commands

    def execute(self, command: AnyCommand) -> Sequence[AnyEvent]:
        """Send one command on its way."""
        if isinstance(command, (Submit, Score, EnvStep, Reset)) and not self.is_wanted(command):
            return ()
        if isinstance(command, Submit):
            self._flying.add(command.ask)
            self.engine.submit(command, self.prefix_of(command))
        elif isinstance(command, Abort):
            if command.ask in self._flying:
                self._aborting.add(command.ask)
                self.engine.abort(command.ask)
        elif isinstance(command, (Score, EnvStep, Reset)):
            pool = self.graders if isinstance(command, Score) else self.environments
            self._call(pool, command, self._work(command))
        elif isinstance(command, EmitBatch):
            if not self.is_stopping:
                self._call(self.learner, command, lambda: self.train(command))
        else:
            self.note(command)
        return ()

    def retire(self, group: str) -> None:
        """Forget the keys and the environment states of a group."""
        self.engine.retire(group)
        self.world.retire(group)

    def _call(self, pool: Pool, command: AnyCommand, work: Callable[[], object]) -> None:
        key = next(self._numbers)
        self._calls[key] = command
        pool.call(key, work)

    def _work(self, command: Score | EnvStep | Reset) -> Callable[[], object]:
        """Return the call for a grader or an environment, with a copy of the path that it needs."""
        if isinstance(command, Reset):
            return lambda: self.world.reset(command)
        group = self.runner.groups[command.group]
        leaf = command.parent if isinstance(command, EnvStep) else command.leaf
        nodes = {node.id: node for node, _ in path_to(group.nodes, leaf)}
        if isinstance(command, EnvStep):
            return lambda: self.world.env_step(command, group.task, nodes)
        truncated = group.trajectories[leaf].truncated
        return lambda: self.world.score(command, group.task, nodes, truncated)

    # ------------------------------------------------------------ answers

    def wait(self) -> list[AnyEvent]:
        """Return what was answered, or given up, since the last time; wait until something is."""
        events = self._expired()
        if not (events or self._calls or self._flying or self.is_retrying or self._update):
            raise LawBroken(f"the run waits for nothing: {self.runner.waits()}")
        events += self._said(0.0 if events else self._patience())
        return events

    def abort_answers(self) -> list[AnyEvent]:
        """Return what comes until every abort is answered: an ask's chunks come before that answer."""
        events: list[AnyEvent] = []
        until = self.clock() + self.limits.engine_s
        while self._aborting:
            events += self._said(TICK)
            self._check_engine()
            if self.clock() > until:
                raise EngineError(f"the engine did not abort {sorted(self._aborting)[:3]} in time")
        return events

    def _patience(self) -> float:
        """Return the seconds until something must be looked at."""
        times = [pool.next_expiry() for pool in (self.graders, self.environments)]
        soonest = min((at for at in times if at is not None), default=self.clock() + TICK)
        until_due = min(self.deadlines.values(), default=self.now + TICK) - self.now
        return max(0.0, min(TICK, until_due, soonest - self.clock()))

    def _said(self, seconds: float) -> list[AnyEvent]:
        """Return the events of all that the threads have said, the first within so many seconds."""
        said: list[Said | Done] = []
        try:
            said.append(self._inbox.get(timeout=seconds) if seconds > 0 else self._inbox.get_nowait())
            while True:
                said.append(self._inbox.get_nowait())
        except queue.Empty:
            pass
        self._check_engine()
        return [event for one in said for event in self._events_of(one)]

    def _events_of(self, said: Said | Done) -> Iterable[AnyEvent]:
        if isinstance(said, Chunks):
            self._flying -= ended(said.events)
            return said.events
        if isinstance(said, Refused):
            self._flying.discard(said.event.ask)
            return [said.event]
        if isinstance(said, Aborted):
            self._aborting.discard(said.ask)
            self._flying.discard(said.ask)
            return [] if said.event is None else [said.event]
        if isinstance(said, InPlace):
            update, self._update = self._update, None
            assert update is not None and update.version == said.version
            return [update]
        if isinstance(said, Broken):
            raise said.error
        return self._done(said)

    def _done(self, done: Done) -> Iterable[AnyEvent]:
        command = self._calls.pop(done.key)
        if isinstance(command, EmitBatch):
            if isinstance(done.error, Exception):
                return [self.learner_failed(command, done.error)]
            if done.error is None:
                self._update = done.result
                self.engine.publish(done.result.version)
                return []
        if done.error is not None:
            raise done.error  # the world answers for what is an Exception; this is an interrupt or an exit
        return [done.result]

    def _expired(self) -> list[AnyEvent]:
        """Give up the calls that overran."""
        events: list[AnyEvent] = []
        for pool in (self.graders, self.environments):
            for key in pool.expire():
                command = self._calls.pop(key)
                assert isinstance(command, (Score, EnvStep, Reset))
                said = f"no answer within {pool.seconds:g} s; its thread was left behind"
                events.append(Failed(ask=command.ask, kind=pool.name, message=said))
        return events

    def _check_engine(self) -> None:
        since = self.engine.busy_since
        if since is not None and self.clock() - since > self.limits.engine_s:
            raise EngineError(
                f"the engine did not come back within {self.limits.engine_s:g} s; what was acknowledged is in"
                " the journal. Raise deadlines.engine_s if its steps may take so long"
            )

    def _finish(self) -> None:
        """After a stop: record what has come already, and the update that is under way."""
        self.feed(self._said(0.0))
        until = self.clock() + self.runner.settings.learn_deadline
        while (self.is_learning or self._update) and self.finished is None and self.clock() < until:
            self.feed(self._said(TICK))
