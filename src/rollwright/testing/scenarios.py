"""Small runs on the fake engine that the laws are checked on, and flat views of what they left."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from rollwright.drive.inline import InlineDriver
from rollwright.drive.world import World
from rollwright.errors import LawBroken
from rollwright.events import AnyCommand, AnyEvent, EmitBatch, Observed, Published, Report, Sampled, Score
from rollwright.ledger import Unit
from rollwright.method import Method
from rollwright.runner import Runner, Settings
from rollwright.testing.fake import FakeEngine, ToyTask, ToyTokenizer
from rollwright.tree import Origin

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A toy run in which some kind of method does something that others do not.

    Args:
        name: for messages.
        task: the toy task.
        settings: fields of `rollwright.runner.Settings` beside those that the task gives.
        num_words: the fake policy's vocabulary.
        seed: the run's seed.
    """

    name: str
    task: ToyTask = field(default_factory=ToyTask)
    settings: dict[str, Any] = field(default_factory=dict)
    num_words: int = 6
    seed: int = 1

    def settings_of(self, **changes: Any) -> Settings:
        """Return the runner's settings."""
        fields: dict[str, Any] = {
            "seed": self.seed,
            "tasks": tuple(self.task.ids("train")),
            "num_steps": 3,
            "num_tasks": 4,
            "context": self.task.context,
            "max_tokens": self.task.max_tokens,
            "max_turns": self.task.max_turns,
            "is_dialogue": self.task.max_turns > 1,
            "chunk": 5,
        }
        return Settings(**{**fields, **self.settings, **changes})


SCENARIOS = (
    Scenario("mixed rewards"),
    Scenario("dialogue", ToyTask(max_turns=3)),
    Scenario("mostly wrong", ToyTask(share=0.5)),
    Scenario("long tail", ToyTask(max_tokens=40, context=60), {"chunk": 2}),
    Scenario("tasks met again", ToyTask(num_tasks=4), {"num_steps": 4}),
    Scenario("grader fails", ToyTask(bad="4")),
    Scenario("few words", ToyTask(max_tokens=20), num_words=3),
)


def broken(number: int, name: str, method: Method, seen: str, expected: str) -> LawBroken:
    """Return the error of a law that does not hold."""
    return LawBroken(f"law {number} ({name}), method {method.name}: seen {seen}; expected {expected}")


@dataclass
class Outcome:
    """What a run left.

    Args:
        batches: what was trained, by step.
        reports: one per step.
        events: every event with the commands that answered it.
        runner: the runner at the end.
    """

    runner: Runner
    batches: list[EmitBatch] = field(default_factory=list)
    reports: list[Report] = field(default_factory=list)
    events: list[tuple[AnyEvent, list[AnyCommand]]] = field(default_factory=list)

    def append(self, event: AnyEvent, commands: list[AnyCommand]) -> None:
        """Keep an event (the driver's journal), and check the ledger after it."""
        self.events.append((event, list(commands)))
        self.runner.ledger.check()

    def flush(self) -> None:
        """Nothing is buffered."""

    @property
    def rows(self) -> list[Row]:
        """One row per trained trajectory, of plain values that compare exactly."""
        found: list[Row] = []
        for batch in self.batches:
            for group in batch.groups:
                for t in group.trajectories:
                    response = group.response(t)
                    logps = tuple(None if math.isnan(x) else x for x in response.logp_old)
                    named = (batch.step, group.id, t.index)
                    found.append((*named, response.tokens, logps, t.score, t.advantages))
        return found

    def spent_by_hand(self) -> dict[str, float]:
        """Count from the events what the ledger must have booked."""
        sampled = [event for event, _ in self.events if isinstance(event, Sampled)]
        graded = {c.ask for _, commands in self.events for c in commands if isinstance(c, Score)}
        return {
            Unit.SAMPLED.value: sum(len(event.tokens) for event in sampled),
            Unit.GRADER_CALLS.value: len(graded - set(self.runner.asks)),
            Unit.ENV_STEPS.value: sum(
                isinstance(event, Observed) and not event.ask.endswith("/root") for event, _ in self.events
            ),
        }

    def trained_by_hand(self) -> int:
        """Count the distinct steps on trained paths: what must have the fate trained."""
        steps: set[tuple[str, int]] = set()
        for batch in self.batches:
            for group in batch.groups:
                for t in group.trajectories:
                    if t.reward is None or t.replayed:
                        continue
                    for node, num in group.path(t.leaf):
                        if node.origin is Origin.SAMPLED:
                            steps |= {(node.id, i) for i in range(num)}
        return len(steps)


class FrozenEngine(FakeEngine):
    """A fake engine whose weights never move, whatever is published."""

    def publish(self, version: int) -> None:
        """Keep the weights."""


def play(
    method: Method,
    scenario: Scenario,
    arrival: int | None = None,
    is_frozen: bool = False,
    engine: FakeEngine | None = None,
    **changes: Any,
) -> Outcome:
    """Run a method through a scenario.

    Args:
        arrival: seed of the order in which chunks arrive; None is all in order.
        is_frozen: the weights, and with them the version, never move.
        engine: another engine than the scenario's.
        changes: settings that differ from the scenario's.

    Raises:
        LawBroken: the run broke a law on the way, or did not end by itself.
    """
    made = (FrozenEngine if is_frozen else FakeEngine)(scenario.num_words, arrival)
    outcome = Outcome(Runner(method, scenario.settings_of(**changes)))

    def train(batch: EmitBatch) -> Published:
        outcome.batches.append(batch)
        version = batch.version if is_frozen else batch.version + 1
        return Published(step=batch.step, version=version, learner_tokens=1)

    driver = InlineDriver(
        outcome.runner,
        engine or made,
        World(scenario.task, ToyTokenizer(), (0,)),
        train,
        outcome,  # type: ignore[arg-type]
        outcome.reports.append,
        clock=lambda: 0.0,
    )
    if driver.run() is None:
        raise LawBroken(f"the run of {method.name} in scenario {scenario.name!r} was stopped")
    return outcome


@lru_cache(maxsize=64)
def played(method: Method, name: str) -> Outcome:
    """Return the method's plain run of a scenario; it is looked at by several laws, and only looked at."""
    return play(method, next(scenario for scenario in SCENARIOS if scenario.name == name))
