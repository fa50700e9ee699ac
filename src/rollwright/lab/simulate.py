"""Simulate a method: the real runner on a virtual clock, and what it did with the time."""

from __future__ import annotations

import msgspec

from rollwright import rng as randomness
from rollwright.drive.virtual.content import ModelledContent
from rollwright.drive.virtual.course import EngineUse
from rollwright.drive.virtual.driver import VirtualDriver
from rollwright.drive.virtual.model import Model
from rollwright.errors import LawBroken
from rollwright.events import EnvStep, Score
from rollwright.lab.distance import ks_distance
from rollwright.lab.simulation.record import Leaves, Recorder, StepTimes
from rollwright.ledger import Unit
from rollwright.method import Method
from rollwright.runner import Runner, Settings
from rollwright.tree import Origin

__all__ = ["Leaves", "Recorder", "SimulationReport", "StepTimes", "make_report", "simulate"]


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
        env_idle_share, grader_idle_share: of the servers' time, the free part; None where their number has
            no limit.
        queue_seconds_mean: seconds that a request waited for a slot.
        cost: workers and learner, by their prices; workers that train count as workers.
        length_distance: Kolmogorov-Smirnov distance of the lengths of trained rollouts from those of all
            that were begun; None without any.
        splits: workers that trained from the start and after each step, where a planner moves them.
        ages: trajectories trained on, by age in versions.
        kinds: trajectories trained on, by the first part of their task's id.
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
    env_idle_share: float | None
    grader_idle_share: float | None
    queue_seconds_mean: float
    cost: float
    length_distance: float | None
    splits: tuple[int, ...]
    ages: dict[int, int]
    kinds: dict[str, int]
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
            f"bias         lengths trained against lengths sampled: distance {self.length_distance or 0:.3f}",
            *([f"cost         {self.cost:.2f}"] if self.cost else []),
            "age          " + ", ".join(f"{age}: {num}" for age, num in self.ages.items()),
            "tokens       " + ", ".join(f"{fate} {num}" for fate, num in self.fates.items() if num),
        ]


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
    num_slots = sum(driver.engine.fleet.num_slots)

    def rate(amount: float) -> float:
        return amount / seconds if seconds else 0.0

    begun = [*recorder.trained, *recorder.dropped, *_unfinished(driver)]
    env, grader = driver.lines[EnvStep][0], driver.lines[Score][0]
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
        engine_idle_share=_free(use.busy_seconds, seconds * len(driver.engine.workers) - use.lent_seconds),
        slot_idle_share=_free(use.slot_seconds, seconds * num_slots),
        learner_idle_share=_free(driver.learner.busy_seconds, seconds),
        env_idle_share=None if env.num is None else _free(env.busy_seconds, seconds * env.num),
        grader_idle_share=None if grader.num is None else _free(grader.busy_seconds, seconds * grader.num),
        queue_seconds_mean=use.queue_seconds / use.num_requests if use.num_requests else 0.0,
        cost=_cost(driver),
        length_distance=ks_distance(recorder.trained, begun),
        splits=() if driver.elastic is None else tuple(driver.elastic.splits),
        ages=dict(sorted(recorder.ages.items())),
        kinds=dict(sorted(recorder.kinds.items())),
        leaves=dict(sorted(recorder.leaves.items())),
        spent=dict(ledger.spent),
        fates=dict(ledger.fates),
        reasons=dict(sorted(ledger.reasons.items())),
        engine=use,
    )


def _free(busy: float, whole: float) -> float:
    return 1 - busy / whole if whole else 0.0


def _cost(driver: VirtualDriver) -> float:
    """Return the price of the run: every worker from its start to its end."""
    learner = driver.model.learner
    price = sum(worker.model.price for worker in driver.engine.workers) + learner.price * learner.num_workers
    return price * driver.now / 3600


def _unfinished(driver: VirtualDriver) -> list[int]:
    """Return the sampled tokens of each rollout that is begun and was not closed.

    One of a single turn counts with the length that it will have, of which the model knows; else those
    that take longest would be taken for short ones.
    """
    runner, content = driver.runner, driver.engine.content
    settings, found = runner.settings, []
    for group in [*runner.groups.values(), *runner.held.values()]:
        made: dict[str, int] = dict.fromkeys(group.streams, 0)
        for node in group.nodes.values():
            if node.origin is Origin.SAMPLED:
                made[node.stream] += node.num_steps
        for stream, num in made.items():
            if isinstance(content, ModelledContent) and not settings.is_dialogue and "~" not in stream:
                key = randomness.stream_key(settings.seed, group.task, stream)
                start = group.nodes[group.root].num_steps
                num = min(content.length(group.task, key, start, runner.version), settings.max_tokens)
            found.append(num)
    return found
