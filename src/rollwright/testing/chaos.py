"""A driver that does its worst: random order of answers, failures, lost workers, crashes, late answers.

Everything that happens is recorded, so that the run can be folded through a fresh runner, and every
sampled token can be computed again from its prefix, stream and version alone.
"""

from __future__ import annotations

import pickle
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from rollwright import rng as randomness
from rollwright.drive.world import World
from rollwright.events import (
    Abort,
    AnyCommand,
    AnyEvent,
    CancelTimer,
    EmitBatch,
    EnvStep,
    Event,
    Failed,
    Finish,
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
from rollwright.method import Method
from rollwright.runner import Runner, Settings
from rollwright.stage import Action, Carry, Close, ForkAt, StepView, Stop
from rollwright.testing.fake import FakeEngine, ToyTask, ToyTokenizer, toy_logits, toy_sample
from rollwright.tree import Group, Origin, StopReason, path_to


@dataclass(frozen=True, slots=True)
class Odds:
    """Chances of what may go wrong at each event, in [0, 1]."""

    fail: float = 0.0
    lose_worker: float = 0.0
    interrupt: float = 0.0
    fire_timer: float = 0.0
    crash: float = 0.0
    pickle: float = 0.0
    stop: float = 0.0
    late: float = 0.0


@dataclass(frozen=True, slots=True)
class Meddle:
    """A control that stops, forks, carries and closes by a hash of what it sees: pure, but wild."""

    share: int = 5  # one of so many chunks is acted upon
    forks: bool = True

    def __call__(self, event: Event, view: StepView) -> Sequence[Action]:
        if not isinstance(event, Sampled) or event.stop is not None or not event.tokens:
            return ()
        bits = randomness.stream_key(0, event.ask, str(event.tokens))
        if bits % self.share:
            return ()
        choices: list[Action] = [
            Stop(event.ask, "meddled"),
            ForkAt(event.ask, 1),
            Carry(event.ask),
            Close("meddled"),
        ]
        if not self.forks:
            del choices[1]
        chosen = [action for i, action in enumerate(choices) if (bits >> (8 + i)) & 1]
        return chosen if view.num_complete else [a for a in chosen if not isinstance(a, Close)]


class Chaos:
    """Run a method on the fake engine with every choice taken by ``random.Random(seed)``.

    Attributes:
        journal: every event with its commands.
        batches: what was trained.
        finished: the reason of the end.
    """

    def __init__(
        self, method: Method, settings: Settings, task: ToyTask, seed: int, odds: Odds | None = None
    ) -> None:
        self.runner = Runner(method, settings)
        self.dice, self.odds = random.Random(seed), odds or Odds()
        self.engine = FakeEngine()
        self.world = World(task, ToyTokenizer(), (0,))
        self.owed: dict[str, AnyCommand] = {}  # resets, environment steps and scores
        self.aborts: dict[str, None] = {}
        self.batch: EmitBatch | None = None
        self.timers: dict[str, None] = {}
        self.journal: list[tuple[AnyEvent, list[AnyCommand]]] = []
        self.batches: list[EmitBatch] = []
        self.opened: list[str] = []  # groups in order of opening
        self.answered: list[AnyEvent] = []
        self.finished: str | None = None

    def run(self, max_events: int = 5000) -> None:
        """Run to the end.

        Raises:
            AssertionError: the run waits for nothing, or does not end.
        """
        self.send(Started())
        while self.finished is None:
            assert len(self.journal) < max_events, f"no end after {max_events} events"
            self.send(self.next_event())

    def send(self, event: AnyEvent) -> None:
        """Give one event to the runner, check the ledger, and note what is owed."""
        commands = self.runner.step(event)
        self.runner.ledger.check()
        self.journal.append((event, commands))
        for command in commands:
            self._take(command)

    def _take(self, command: AnyCommand) -> None:
        if isinstance(command, Submit):
            nodes = self.runner.groups[command.group].nodes
            path = path_to(nodes, command.parent)
            path[-1] = (path[-1][0], command.at)
            is_hung = self.aborts.pop(command.ask, "") is None  # its abort was given up by a deadline
            assert is_hung or command.ask not in self.engine.live, f"{command.ask} was submitted twice"
            self.engine.submit(command, [token for node, num in path for token in node.tokens[:num]])
        elif isinstance(command, (Reset, EnvStep, Score)):
            assert command.ask not in self.owed, f"{command.ask} was asked twice"
            self.owed[command.ask] = command
            if isinstance(command, Reset) and command.group not in self.opened:
                self.opened.append(command.group)
        elif isinstance(command, Abort):
            assert command.ask in self.engine.live, f"abort of {command.ask}, which the engine has not"
            self.aborts[command.ask] = None
        elif isinstance(command, EmitBatch):
            self.batch = command
            if all(command.step != other.step for other in self.batches):
                self.batches.append(command)
        elif isinstance(command, SetTimer):
            self.timers[command.timer] = None
        elif isinstance(command, CancelTimer):
            self.timers.pop(command.timer, None)
        elif isinstance(command, Finish):
            self.finished = command.reason

    # ------------------------------------------------------------ what happens next

    def next_event(self) -> AnyEvent:
        """Choose what happens next among all that may."""
        odds, dice = self.odds, self.dice
        if dice.random() < odds.pickle:
            self.runner = pickle.loads(pickle.dumps(self.runner))
        if dice.random() < odds.crash:
            self.owed, self.aborts, self.batch, self.timers = {}, {}, None, {}
            self.engine.live.clear()
            return Resumed()
        if dice.random() < odds.stop:
            return StopAsked()
        if self.timers and dice.random() < odds.fire_timer:
            timer = dice.choice(list(self.timers))
            del self.timers[timer]
            return TimerFired(timer=timer)
        if self.engine.live and dice.random() < odds.lose_worker:
            return self._lose_worker()
        if self.answered and dice.random() < odds.late:
            return dice.choice(self.answered)
        return self._answer()

    def _lose_worker(self) -> WorkerLost:
        asks = [ask for ask in self.engine.live if self.dice.random() < 0.5]
        for ask in asks:
            if self.odds.late:
                self.answered.append(self.engine.advance(ask))  # it is not as dead as it seems
            self.engine.live.pop(ask, None)
            self.aborts.pop(ask, None)
        return WorkerLost(worker="w", asks=tuple(asks))

    def _answer(self) -> AnyEvent:
        waits = [*self.owed, *self.engine.live, *(["batch"] if self.batch is not None else [])]
        retries = [timer for timer in self.timers if timer.startswith("retry:")]
        assert waits or retries, f"the run waits for nothing in phase {self.runner.phase.value}"
        if not waits or (retries and self.dice.random() < 0.2):
            timer = self.dice.choice(retries)
            del self.timers[timer]
            return TimerFired(timer=timer)
        name = self.dice.choice(waits)
        if name == "batch":
            assert self.batch is not None
            step, version, self.batch = self.batch.step, self.batch.version + 1, None
            self.engine.publish(version)
            return Published(step=step, version=version, learner_tokens=1)
        if self.dice.random() < self.odds.fail:
            self.owed.pop(name, None)
            self.engine.live.pop(name, None)
            self.aborts.pop(name, None)
            return Failed(ask=name, kind="engine", message="chaos")
        if name in self.owed:
            return self._answer_world(self.owed.pop(name))
        if (name in self.aborts and self.dice.random() < 0.7) or self.dice.random() < self.odds.interrupt:
            self.aborts.pop(name, None)
            return self.engine.abort(name)
        event = self.engine.advance(name)
        if event.stop is not None:
            self.aborts.pop(name, None)
            if self.odds.late:
                self.answered.append(event)
        return event

    def _answer_world(self, command: AnyCommand) -> AnyEvent:
        answer: Event
        if command.ask not in self.runner.asks:  # type: ignore[union-attr]
            return Scored(ask=command.ask, reward=1.0, status="given up")  # type: ignore[union-attr]
        if isinstance(command, Reset):
            answer = self.world.reset(command)
        elif isinstance(command, EnvStep):
            group = self.runner.groups[command.group]
            answer = self.world.env_step(command, group.task, group.nodes)
        else:
            assert isinstance(command, Score)
            group = self.runner.groups[command.group]
            truncated = group.trajectories[command.leaf].truncated
            answer = self.world.score(command, group.task, group.nodes, truncated)
        assert isinstance(answer, (Observed, Scored, Failed))
        return answer


# ---------------------------------------------------------------- checks of what was recorded


def decisions(commands: Sequence[AnyCommand]) -> bytes:
    """Return commands as bytes: equal decisions, equal bytes."""
    return msgspec.json.encode(commands)


def check_fold(method: Method, settings: Settings, journal: Sequence[tuple[AnyEvent, Any]]) -> Runner:
    """Fold the events through a fresh runner and compare every decision, byte for byte."""
    runner = Runner(method, settings)
    for i, (event, commands) in enumerate(journal):
        again = runner.step(event)
        assert decisions(again) == decisions(commands), f"event {i} ({event}): other decisions when folded"
    return runner


def check_tokens(group: Group, seed: int, num_words: int = 6) -> int:
    """Sample every trained token of a group again, from its prefix, stream, position and version.

    Returns the number of tokens checked. Replayed nodes keep another visit's streams and are left out.
    """
    num_checked = 0
    for trajectory in group.trajectories:
        if trajectory.replayed:
            continue
        prefix: list[int] = []
        for node, num in group.path(trajectory.leaf):
            if node.origin is Origin.SAMPLED:
                assert (node.version is not None and node.logprobs is not None) or not num
                key = randomness.stream_key(seed, group.task, node.stream)
                for t in range(num):
                    first = node.tokens[t] if t < node.forced else None
                    logits = toy_logits([*prefix, *node.tokens[:t]], num_words, node.version or 0)
                    token, logp, _, _ = toy_sample(logits, key, node.start + t, 1.0, first)
                    assert (token, logp) == (node.tokens[t], (node.logprobs or ())[t]), (
                        f"{node.id} step {t}: recorded {node.tokens[t]}, sampled again {token}"
                    )
                    num_checked += 1
            prefix += node.tokens[:num]
        assert trajectory.stop is not StopReason.FAILED
    return num_checked
