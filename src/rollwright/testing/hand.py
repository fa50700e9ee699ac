"""Drive a runner by hand: every answer is given by the test, and what is owed is always known."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from rollwright.events import (
    Abort,
    AnyCommand,
    AnyEvent,
    CancelTimer,
    EmitBatch,
    EnvStep,
    Failed,
    Finish,
    Observed,
    Published,
    Report,
    Reset,
    Resumed,
    Retire,
    Sampled,
    Score,
    Scored,
    SetTimer,
    Started,
    Submit,
)
from rollwright.method import Method
from rollwright.runner import Runner, Settings
from rollwright.stages.allocate.even import Even
from rollwright.stages.credit.group_norm import GroupNorm
from rollwright.stages.generate.independent import Independent
from rollwright.stages.replay.fresh import Fresh
from rollwright.stages.select.shuffled import Shuffled
from rollwright.tree import Group, StopReason


def plain_method(each: int = 4, **changes: Any) -> Method:
    """Return GRPO's pure stages without objective and reduce: enough for a runner, no torch."""
    method = Method(
        name="plain",
        select=Shuffled(),
        allocate=Even(each),
        generate=Independent(),
        replay=Fresh(),
        objective=None,  # type: ignore[arg-type]
        reduce=None,  # type: ignore[arg-type]
        credit=(GroupNorm(),),
    )
    return dataclasses.replace(method, **changes)


def plain_settings(**changes: Any) -> Settings:
    """Return settings of a tiny run over the tasks t/0 ... t/9."""
    fields: dict[str, Any] = {
        "seed": 7,
        "tasks": tuple(f"t/{i}" for i in range(10)),
        "num_steps": 2,
        "num_tasks": 2,
        "context": 64,
        "max_tokens": 8,
        "retries": 0,
    }
    return Settings(**{**fields, **changes})


class Hand:
    """A runner with the driver's duties kept in the open.

    ``owed`` holds the commands without an answer by ask, ``aborts`` the asks to abort, ``batch`` what
    the learner has, ``timers`` what is set, ``journal`` every event with its commands.
    """

    def __init__(self, method: Method | None = None, **changes: Any) -> None:
        self.method = method if method is not None else plain_method()
        self.settings = plain_settings(**changes)
        self.runner = Runner(self.method, self.settings)
        self.journal: list[tuple[AnyEvent, list[AnyCommand]]] = []
        self.owed: dict[str, AnyCommand] = {}
        self.aborts: dict[str, None] = {}
        self.timers: dict[str, SetTimer] = {}
        self.batch: EmitBatch | None = None
        self.batches: list[EmitBatch] = []
        self.reports: list[Report] = []
        self.retired: list[str] = []
        self.finished: str | None = None

    # ------------------------------------------------------------ events

    def send(self, event: AnyEvent) -> list[AnyCommand]:
        """Give one event; check the ledger's law; note what is owed now."""
        if isinstance(event, (Observed, Scored, Failed)) or (
            isinstance(event, Sampled) and event.stop is not None
        ):
            self.owed.pop(event.ask, None)
            self.aborts.pop(event.ask, None)
        if isinstance(event, Published):
            self.batch = None
        commands = self.runner.step(event)
        self.runner.ledger.check()
        self.journal.append((event, commands))
        for command in commands:
            self._note(command)
        return commands

    def _note(self, command: AnyCommand) -> None:
        if isinstance(command, (Reset, Submit, EnvStep, Score)):
            self.owed[command.ask] = command
        elif isinstance(command, Abort):
            assert command.ask in self.owed, f"abort of {command.ask}, which the driver never got"
            self.aborts[command.ask] = None
        elif isinstance(command, EmitBatch):
            self.batch = command
            self.batches.append(command)
        elif isinstance(command, SetTimer):
            self.timers[command.timer] = command
        elif isinstance(command, CancelTimer):
            self.timers.pop(command.timer, None)
        elif isinstance(command, Report):
            self.reports.append(command)
        elif isinstance(command, Retire):
            self.retired.append(command.group)
        elif isinstance(command, Finish):
            self.finished = command.reason

    @property
    def is_stuck(self) -> bool:
        """Whether the run is neither over nor waiting for any answer."""
        return self.finished is None and not self.owed and not self.aborts and self.batch is None

    # ------------------------------------------------------------ answers

    def start(self, prompt: Sequence[int] = (1, 2)) -> list[AnyCommand]:
        """Start the run and answer the resets with ``prompt``."""
        commands = self.send(Started())
        return commands + self.reset(prompt)

    def reset(self, prompt: Sequence[int] = (1, 2)) -> list[AnyCommand]:
        """Answer every owed reset with ``prompt``."""
        asks = [ask for ask, command in self.owed.items() if isinstance(command, Reset)]
        return [c for ask in asks for c in self.send(Observed(ask=ask, tokens=tuple(prompt)))]

    def sample(
        self,
        ask: str,
        tokens: Sequence[int],
        stop: StopReason | None = StopReason.EOS,
        version: int | None = None,
        **fields: Any,
    ) -> list[AnyCommand]:
        """Answer a submit with ``tokens``, each at logprob -0.5."""
        tokens = tuple(tokens)
        return self.send(
            Sampled(
                ask=ask,
                tokens=tokens,
                logprobs=(-0.5,) * len(tokens),
                version=self.runner.version if version is None else version,
                stop=stop,
                **fields,
            )
        )

    def observe(self, ask: str, tokens: Sequence[int] = (), **fields: Any) -> list[AnyCommand]:
        """Answer an environment step."""
        return self.send(Observed(ask=ask, tokens=tuple(tokens), **fields))

    def score(self, ask: str, reward: float | None, status: str = "right") -> list[AnyCommand]:
        """Answer a score."""
        return self.send(Scored(ask=ask, reward=reward, status=status))

    def fail(self, ask: str, kind: str = "engine", message: str = "lost") -> list[AnyCommand]:
        """Let an ask fail."""
        return self.send(Failed(ask=ask, kind=kind, message=message))

    def publish(self, version: int | None = None) -> list[AnyCommand]:
        """Answer the batch with new weights."""
        assert self.batch is not None, "no batch is with the learner"
        version = self.batch.version + 1 if version is None else version
        return self.send(Published(step=self.batch.step, version=version, learner_tokens=1))

    def resume(self) -> list[AnyCommand]:
        """Lose everything in flight and resume, as after a crash of the driver."""
        self.owed.clear()
        self.aborts.clear()
        self.batch = None
        return self.send(Resumed())

    def asks(self, kind: type) -> list[str]:
        """Return the owed asks of one kind of command, in order."""
        return [ask for ask, command in self.owed.items() if isinstance(command, kind)]

    def finish_rollouts(self, rewards: Sequence[float | None], tokens: Sequence[int] = (3, 0)) -> None:
        """Let every owed sampling end with ``tokens``, then score with ``rewards`` in order, repeated."""
        for ask in self.asks(Submit):
            self.sample(ask, tokens)
        for i, ask in enumerate(self.asks(Score)):
            reward = rewards[i % len(rewards)]
            self.score(ask, reward, "right" if reward is not None else "no_answer")

    # ------------------------------------------------------------ what came of it

    def response_versions(self, group: Group, index: int) -> list[int]:
        """Return the versions of a trained trajectory's response steps; -1 where not sampled."""
        trajectory = next(t for t in group.trajectories if t.index == index)
        return [int(version) for version in group.response(trajectory).versions]
