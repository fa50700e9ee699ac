"""Simulate a method: the real runner on a virtual clock, and what it did with the time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from rollwright.drive.virtual.driver import VirtualDriver
from rollwright.drive.virtual.engine import EngineUse
from rollwright.drive.virtual.model import Model
from rollwright.errors import LawBroken
from rollwright.events import AnyCommand, EmitBatch, Report
from rollwright.ledger import Unit
from rollwright.method import Method
from rollwright.runner import Runner, Settings
from rollwright.runner.batch import Closed, age
from rollwright.tree import Origin


class StepTimes(msgspec.Struct, frozen=True):
    """One step: its phases in virtual seconds, and its means. None is not measured in this step."""

    step: int
    rollouts_seconds: float
    learn_seconds: float
    reward_mean: float | None
    length_mean: float | None
    length_max: float | None


class Leaves(msgspec.Struct):
    """Ends of rollouts with one fate: how many, and the sum of the tokens sampled on their paths."""

    num: int = 0
    num_tokens: int = 0


class SimulationReport(msgspec.Struct, frozen=True):
    """What a simulated run did. Equal method, settings and model give equal bytes.

    Args:
        reason: why the run ended.
        seconds: virtual seconds of the whole run.
        num_events: events that the runner took.
        steps: the steps in order.
        sampled_per_second, trained_per_second: tokens; rollouts_per_second: rollouts granted.
        engine_idle_share: of the workers' time, the part in which they neither decode nor prefill.
        slot_idle_share: of the slots' time, the part in which they are free.
        learner_idle_share: of the run's time, the part in which the learner waits.
        queue_seconds_mean: seconds that a request waited for a slot.
        ages: trajectories trained on, by age in versions.
        leaves: the rollouts that ended, by fate: compare what was trained with what was sampled.
        spent, fates, reasons: the ledger.
        engine: what the engine did.
    """

    method: str
    seed: int
    reason: str
    seconds: float
    num_events: int
    steps: tuple[StepTimes, ...]
    sampled_per_second: float
    trained_per_second: float
    rollouts_per_second: float
    engine_idle_share: float
    slot_idle_share: float
    learner_idle_share: float
    queue_seconds_mean: float
    ages: dict[int, int]
    leaves: dict[str, Leaves]
    spent: dict[str, float]
    fates: dict[str, int]
    reasons: dict[str, int]
    engine: EngineUse

    def to_json(self) -> bytes:
        """Return the report as JSON."""
        return msgspec.json.encode(self)

    def lines(self) -> list[str]:
        """Return the report as lines for a person."""
        totals = [step.rollouts_seconds + step.learn_seconds for step in self.steps]
        mean = f"{sum(totals) / len(totals):.1f} s" if totals else "none"
        return [
            f"{self.method}, seed {self.seed}: {self.reason}; {self.seconds:.1f} virtual seconds",
            f"steps        {len(totals)}, mean {mean}, longest {max(totals, default=0.0):.1f} s",
            f"throughput   {self.sampled_per_second:.0f} sampled tokens/s, "
            f"{self.trained_per_second:.0f} trained tokens/s, {self.rollouts_per_second:.2f} rollouts/s",
            f"idle         engines {self.engine_idle_share:.1%}, slots {self.slot_idle_share:.1%}, "
            f"learner {self.learner_idle_share:.1%}",
            "age          " + ", ".join(f"{age}: {num}" for age, num in self.ages.items()),
            "tokens       " + ", ".join(f"{fate} {num}" for fate, num in self.fates.items() if num),
        ]


class Recorder:
    """Notes when batches are emitted, when steps end and what became of rollouts.

    Give `watch` to a driver as ``on_command`` and `close` as ``on_closed``.
    """

    def __init__(self) -> None:
        self.steps: list[StepTimes] = []
        self.ages: Counter[int] = Counter()
        self.leaves: dict[str, Leaves] = {}
        self._started = 0.0
        self._emitted: float | None = None

    def watch(self, now: float, command: AnyCommand) -> None:
        """Take note of a command at ``now`` virtual seconds."""
        if isinstance(command, EmitBatch):
            self._emitted = now
            for group in command.groups:
                for trajectory in group.trajectories:
                    if not trajectory.replayed:
                        self.ages[age(group, trajectory.leaf, command.version)] += 1
        elif isinstance(command, Report):
            emitted = now if self._emitted is None else self._emitted
            metrics = command.metrics
            self.steps.append(
                StepTimes(
                    step=command.step,
                    rollouts_seconds=emitted - self._started,
                    learn_seconds=now - emitted,
                    reward_mean=metrics.get("reward_mean"),
                    length_mean=metrics.get("length_mean"),
                    length_max=metrics.get("length_max"),
                )
            )
            self._started, self._emitted = now, None

    def close(self, closed: Sequence[Closed]) -> None:
        """Take note of groups that a step closed."""
        for one in closed:
            for leaf, (fate, reason) in one.fates.items():
                if reason == "replayed":
                    continue  # counted when it was sampled
                leaves = self.leaves.setdefault(fate.value, Leaves())
                leaves.num += 1
                for node, num in one.group.path(leaf):
                    leaves.num_tokens += num if node.origin is Origin.SAMPLED else 0


def simulate(method: Method, settings: Settings, model: Model | None = None) -> SimulationReport:
    """Run a method on a virtual clock and report on it.

    Args:
        method: any method that needs of the engine only what the model gives.
        settings: as for a real run.
        model: what is assumed of the world; None takes every default.

    Raises:
        ConfigError: the method needs what a modelled engine cannot give.
        LawBroken: the ledger does not balance, or engine and ledger disagree.

    Example:
        >>> from rollwright.discovery import load_method
        >>> settings = Settings(
        ...     seed=1, tasks=("t/0", "t/1"), num_steps=2, num_tasks=2, context=1024, max_tokens=512
        ... )
        >>> report = simulate(load_method("grpo"), settings)
        >>> len(report.steps), report.reason
        (2, 'all steps done')
    """
    recorder, runner = Recorder(), Runner(method, settings)
    driver = VirtualDriver(runner, model or Model(), on_command=recorder.watch, on_closed=recorder.close)
    reason = driver.run()
    return make_report(driver, recorder, reason or "stopped")


def make_report(driver: VirtualDriver, recorder: Recorder, reason: str) -> SimulationReport:
    """Return the report of a driver whose run has ended, after checking that its books agree.

    Raises:
        LawBroken: the ledger does not balance, or it holds other tokens than the engine reported.
    """
    runner, seconds = driver.runner, driver.now
    ledger, use = runner.ledger, driver.engine.account()
    ledger.check()
    if ledger.spent[Unit.SAMPLED.value] != use.num_made:
        raise LawBroken(
            f"the engine reported {use.num_made} tokens, the ledger has {ledger.spent[Unit.SAMPLED.value]}"
        )
    size = driver.model.engine

    def share(busy: float, whole: float) -> float:
        return 1 - busy / whole if whole else 0.0

    def rate(amount: float) -> float:
        return amount / seconds if seconds else 0.0

    return SimulationReport(
        method=runner.method.name,
        seed=runner.settings.seed,
        reason=reason,
        seconds=seconds,
        num_events=driver.num_events,
        steps=tuple(recorder.steps),
        sampled_per_second=rate(use.num_made),
        trained_per_second=rate(ledger.fates["trained"]),
        rollouts_per_second=rate(ledger.spent[Unit.ROLLOUTS.value]),
        engine_idle_share=share(use.busy_seconds, seconds * size.num_workers),
        slot_idle_share=share(use.slot_seconds, seconds * size.num_workers * size.num_slots),
        learner_idle_share=share(driver.learner.busy_seconds, seconds),
        queue_seconds_mean=use.queue_seconds / use.num_requests if use.num_requests else 0.0,
        ages=dict(sorted(recorder.ages.items())),
        leaves=dict(sorted(recorder.leaves.items())),
        spent=dict(ledger.spent),
        fates=dict(ledger.fates),
        reasons=dict(sorted(ledger.reasons.items())),
        engine=use,
    )
