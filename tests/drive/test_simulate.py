"""Whole simulated runs: closed forms, conservation, determinism, lengths, waits and ages."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from drive_help import run_virtual, small_model

from rollwright.drive.virtual import (
    Constant,
    Empirical,
    EngineModel,
    LearnerModel,
    LogNormal,
    Model,
    ServiceModel,
    TaskModel,
    VirtualDriver,
)
from rollwright.drive.virtual.distributions import share_of
from rollwright.errors import ConfigError, LawBroken
from rollwright.events import Event, TimerFired
from rollwright.lab.simulate import Recorder, make_report, simulate
from rollwright.runner import Runner
from rollwright.stage import Action, Close, Grant, Left, StepView
from rollwright.testing.fake import ToyTask
from rollwright.testing.hand import plain_method, plain_settings

TASKS = tuple(f"t/{i}" for i in range(40))


def settings(**changes: Any) -> Any:
    fields: dict[str, Any] = {"tasks": TASKS, "num_steps": 3, "num_tasks": 8, "context": 4096}
    return plain_settings(**{**fields, "max_tokens": 2048, "chunk": 64, "rollout_deadline": 1e6, **changes})


def plain_model(response: Any = None, **engine: Any) -> Model:
    """Return a model in which nothing but decoding takes time."""
    return Model(
        engine=EngineModel(
            **{"step_seconds": 1.0, "sequence_seconds": 0.25, "prefill_seconds": 0.0, **engine}
        ),
        tasks=TaskModel(prompt=Constant(16), response=response or Constant(100)),
        services=ServiceModel(Constant(0.0), Constant(0.0), Constant(0.0)),
        learner=LearnerModel(0.0, 0.0),
    )


@dataclass(frozen=True, slots=True)
class CloseEarly:
    """Close a step once this many groups are complete."""

    num: int

    def __call__(self, event: Event, view: StepView) -> Sequence[Action]:
        return [Close("target")] if view.num_complete >= self.num else []


@dataclass(frozen=True, slots=True)
class TopUp:
    """Keep ``num_tasks`` groups in work."""

    each: int

    def grant(self, step: StepView, left: Left) -> Grant:
        num = step.num_tasks - len(step.groups)
        return Grant(num, self.each) if step.round == 0 and num > 0 else Grant()


# ------------------------------------------------------------ closed forms


def test_equal_lengths_take_what_the_equations_say():
    """Oracle: closed form. 8 groups of 4 on one worker with 32 slots, 100 tokens each:
    a step is 100 · (1 + 0.25 · 32) of rollouts, 0.5 of grading, 2 + tokens · 0.001 of learning.
    """
    model = dataclasses.replace(
        plain_model(num_workers=1, num_slots=32),
        services=ServiceModel(Constant(0.0), Constant(0.0), Constant(0.5)),
        learner=LearnerModel(2.0, 0.001),
    )
    report = simulate(plain_method(), settings(), model)
    rollouts, learning = 100 * 9.0 + 0.5, 2.0 + 32 * (16 + 100) * 0.001
    for step in report.steps:
        assert step.rollouts_seconds == pytest.approx(rollouts, rel=1e-12)
        assert step.learn_seconds == pytest.approx(learning, rel=1e-12)
    whole = 3 * (rollouts + learning)
    assert report.seconds == pytest.approx(whole, rel=1e-12)
    assert report.engine_idle_share == pytest.approx(1 - 3 * 900 / whole, rel=1e-12)
    assert report.slot_idle_share == pytest.approx(1 - 3 * 900 / whole, rel=1e-12)
    assert report.learner_idle_share == pytest.approx(1 - 3 * learning / whole, rel=1e-12)
    assert report.sampled_per_second == pytest.approx(3 * 3200 / whole, rel=1e-12)
    assert report.ages == {0: 96}


def test_one_slot_takes_the_sum_of_all_lengths():
    """Oracle: closed form. One worker, one slot: the time is the tokens times 1.25, and no engine idles."""
    report = simulate(plain_method(), settings(), plain_model(LogNormal(50, 1), num_workers=1, num_slots=1))
    assert report.seconds == pytest.approx(1.25 * report.spent["sampled_tokens"], rel=1e-9)
    assert report.engine_idle_share == pytest.approx(0.0, abs=1e-9)


def test_enough_slots_take_the_longest_length():
    """Oracle: closed form. A slot each and no cost per sequence: a step takes its longest rollout."""
    model = plain_model(LogNormal(50, 1), num_workers=4, num_slots=8, sequence_seconds=0.0)
    for step in simulate(plain_method(), settings(), model).steps:
        assert step.rollouts_seconds == pytest.approx(step.length_max, rel=1e-9)


@pytest.mark.parametrize(("num", "seconds"), [(None, 3.0), (1, 32 * 3.0), (5, 7 * 3.0), (40, 3.0)])
def test_graders_work_in_line(num, seconds):
    """Oracle: closed form. 32 grades that arrive at once take ceil(32 / servers) times one grade."""
    services = ServiceModel(Constant(0.0), Constant(0.0), Constant(3.0), num_graders=num)
    model = dataclasses.replace(plain_model(num_workers=1, num_slots=32), services=services)
    report = simulate(plain_method(), settings(num_steps=1), model)
    assert report.seconds == pytest.approx(900.0 + seconds, rel=1e-12)


def test_dialogues_pay_for_every_environment_step():
    """Oracle: closed form. Three turns of 10 tokens, an environment of 7 s, prefill of what is new only."""
    model = plain_model(Constant(10), num_workers=1, num_slots=1, prefill_seconds=0.5)
    tasks = TaskModel(Constant(16), Constant(10), Constant(4), end_share=0.0)
    services = ServiceModel(Constant(0.0), Constant(7.0), Constant(0.0))
    model = dataclasses.replace(model, tasks=tasks, services=services)
    one = {"num_steps": 1, "num_tasks": 1, "max_turns": 3, "is_dialogue": True}
    report = simulate(plain_method(1), settings(**one), model)
    prefill = (16 + 4 + 4) * 0.5
    assert report.seconds == pytest.approx(3 * 10 * 1.25 + prefill + 3 * 7.0, rel=1e-12)
    assert report.spent["prefilled_tokens"] == 24
    assert report.spent["env_steps"] == 3


# ------------------------------------------------------------ distributions


@pytest.mark.parametrize(
    ("law", "mean", "median"),
    [
        (Constant(7), 7, 7),
        (LogNormal(100, 1), 100 * math.exp(0.5), 100),
        (LogNormal(100, 0), 100, 100),
        (Empirical((1, 2, 3, 4, 90)), 20, 3),
    ],
)
def test_draws_follow_their_law(law, mean, median):
    """Oracle: closed form of mean and median, within four standard errors of 20,000 draws."""
    draws = np.array([law.at(share_of(12345, t)) for t in range(20_000)])
    assert abs(draws.mean() - mean) <= 4 * draws.std() / math.sqrt(len(draws))
    assert np.median(draws) == pytest.approx(median, rel=0.05)


def test_shares_are_uniform_and_independent_of_their_purpose():
    """Oracle: closed form of a uniform variable's mean, variance and correlation (4 standard errors)."""
    a = np.array([share_of(9, t) for t in range(20_000)])
    b = np.array([share_of(9, t, purpose=77) for t in range(20_000)])
    assert abs(a.mean() - 0.5) < 4 / math.sqrt(12 * 20_000)
    assert abs(a.var() - 1 / 12) < 4 * 0.0745 / math.sqrt(20_000)
    assert abs(np.corrcoef(a, b)[0, 1]) < 4 / math.sqrt(20_000)
    assert a.min() > 0 and a.max() < 1


def test_rewards_follow_the_model():
    """Oracle: closed form. Without spread, sigmoid(logit) of the rollouts are right (4 standard errors)."""
    tasks = TaskModel(Constant(4), Constant(4), logit=-1.0, logit_spread=0.0)
    model = dataclasses.replace(plain_model(num_workers=4), tasks=tasks)
    report = simulate(plain_method(8), settings(num_steps=20, num_tasks=20), model)
    p, num = 1 / (1 + math.e), 20 * 20 * 8
    share = sum(step.reward_mean for step in report.steps) / 20
    assert abs(share - p) < 4 * math.sqrt(p * (1 - p) / num)


def test_cut_rollouts_are_wrong():
    """Oracle: by hand. Every turn is cut by its limit and every task is certain: the reward is 0, else 1."""
    tasks = TaskModel(Constant(4), Constant(50), logit=60.0, logit_spread=0.0)
    model = dataclasses.replace(plain_model(), tasks=tasks)
    assert [s.reward_mean for s in simulate(plain_method(), settings(max_tokens=49), model).steps] == [0] * 3
    assert [s.reward_mean for s in simulate(plain_method(), settings(max_tokens=50), model).steps] == [1] * 3


def test_dialogues_end_after_each_turn_with_the_same_probability():
    """Oracle: closed form. With end_share 1/2, a quarter of the dialogues has two turns (4 std errors)."""
    tasks = TaskModel(Constant(4), Constant(4), Constant(2), end_share=0.5)
    model = dataclasses.replace(plain_model(), tasks=tasks)
    found: list[int] = []

    def note(closed: Sequence[Any]) -> None:
        found.extend(t.num_turns for one in closed for t in one.group.trajectories)

    dialogue = {"max_turns": 20, "is_dialogue": True, "num_steps": 2, "num_tasks": 40}
    VirtualDriver(Runner(plain_method(8), settings(**dialogue)), model, on_closed=note).run()
    for turns in (1, 2, 3):
        p = 0.5**turns
        share = sum(num == turns for num in found) / len(found)
        assert abs(share - p) < 4 * math.sqrt(p * (1 - p) / len(found))


# ------------------------------------------------------------ metamorphic


def lengths_of(model: Model, method: Any = None, **changes: Any) -> dict[str, int]:
    """Return the sampled length of every trained trajectory by task, visit and sample."""
    found: dict[str, int] = {}

    def note(closed: Sequence[Any]) -> None:
        for one in closed:
            for t in one.group.trajectories:
                response = one.group.response(t)
                found[f"{one.group.id} {t.index}"] = int(response.is_sampled.sum())

    runner = Runner(method or plain_method(), settings(**changes))
    VirtualDriver(runner, model, on_closed=note).run()
    return found


def test_lengths_do_not_depend_on_the_schedule():
    """Oracle: metamorphic. One slot, many workers, other costs, failing workers: the same lengths.

    Kills: a length that is drawn when it is scheduled, or again when it is resumed.
    """
    tail = LogNormal(80, 1)
    first = lengths_of(plain_model(tail))
    assert len(first) == 96 and len(set(first.values())) > 50
    assert lengths_of(plain_model(tail, num_workers=1, num_slots=1)) == first
    assert lengths_of(plain_model(tail, num_workers=30, num_slots=2, step_seconds=0.5)) == first
    rough = plain_model(tail, failure_seconds=150.0, restart_seconds=9.0)
    assert lengths_of(rough) == first
    assert lengths_of(rough, chunk=7) == first
    assert lengths_of(plain_model(tail), seed=8) != first


def test_an_interrupted_turn_goes_on_to_the_same_end():
    """Oracle: metamorphic. Rollouts that are carried from step to step end where they would have ended."""
    tail = LogNormal(80, 1)
    whole = lengths_of(plain_model(tail), num_steps=1)
    cut = plain_method(allocate=TopUp(4), control=(CloseEarly(2),))
    parts = lengths_of(plain_model(tail), cut, num_steps=6)
    both = whole.keys() & parts.keys()
    assert len(both) >= 16
    assert {key: whole[key] for key in both} == {key: parts[key] for key in both}


def test_the_same_seed_gives_the_same_bytes():
    """Oracle: metamorphic; case D01 (another seed gives another run)."""
    model = plain_model(LogNormal(80, 1), failure_seconds=500.0)
    first = simulate(plain_method(), settings(), model).to_json()
    assert simulate(plain_method(), settings(), model).to_json() == first
    assert simulate(plain_method(), settings(seed=8), model).to_json() != first


def test_twice_as_slow_takes_twice_as_long():
    """Oracle: metamorphic. All times doubled: every time of the report doubles, all else stays."""
    slow = {"step_seconds": 2.0, "sequence_seconds": 0.5}
    once = simulate(plain_method(), settings(), plain_model(LogNormal(80, 1)))
    twice = simulate(plain_method(), settings(), plain_model(LogNormal(80, 1), **slow))
    assert twice.seconds == 2 * once.seconds
    assert twice.fates == once.fates
    assert twice.engine_idle_share == once.engine_idle_share


# ------------------------------------------------------------ conservation and ages


def test_nothing_is_lost_when_workers_fail():
    """Oracle: conservation. Every rollout that was granted ends in exactly one fate, every reported token
    is in the ledger, and the time of the steps adds up to the time of the run."""
    model = plain_model(LogNormal(80, 1), num_workers=4, failure_seconds=100.0, restart_seconds=20.0)
    report = simulate(plain_method(), settings(), model)
    assert report.engine.num_failures > 10 and report.engine.num_lost > 0
    assert report.leaves.keys() == {"trained"}
    assert report.leaves["trained"].num == report.spent["rollouts"] == 96
    assert report.leaves["trained"].num_tokens == report.fates["trained"] == report.spent["sampled_tokens"]
    assert report.engine.num_made == report.spent["sampled_tokens"]
    assert report.engine.num_prefilled >= report.spent["prefilled_tokens"]
    total = sum(step.rollouts_seconds + step.learn_seconds for step in report.steps)
    assert total == pytest.approx(report.seconds, rel=1e-12)


def test_a_report_of_wrong_books_is_refused():
    """Oracle: the contract. A token that the ledger does not know is an error, not a figure."""
    driver = VirtualDriver(Runner(plain_method(), settings()), plain_model())
    reason = driver.run()
    driver.engine.use.num_made += 1
    with pytest.raises(LawBroken, match="the engine reported"):
        make_report(driver, Recorder(), reason or "")


def test_carried_rollouts_have_an_age():
    """Oracle: by hand. Each step closes at two of four groups; a group that was begun a step earlier
    under the version before is one version old, and slow ones grow older still."""
    method = plain_method(allocate=TopUp(4), control=(CloseEarly(2),))
    model = plain_model(LogNormal(80, 1.5), num_workers=2, num_slots=8)
    report = simulate(method, settings(num_steps=12, num_tasks=4), model)
    assert sum(report.ages.values()) == sum(leaves.num for leaves in report.leaves.values())
    assert report.ages[0] > 0 and report.ages[1] > 0 and max(report.ages) >= 2
    fresh = simulate(plain_method(), settings(num_steps=12, num_tasks=4), model)
    assert fresh.ages.keys() == {0}
    assert report.seconds < fresh.seconds


# ------------------------------------------------------------ waits


def test_deadlines_fire_on_the_virtual_clock():
    """Oracle: by hand. All workers fail for good soon: the step is given up at its deadline, and what
    was made by then is booked as failed."""
    model = plain_model(Constant(2000), num_workers=1, failure_seconds=50.0, restart_seconds=1e9)
    report = simulate(plain_method(), settings(num_steps=1, rollout_deadline=500.0), model)
    assert report.seconds == 500.0
    assert report.fates["trained"] == 0
    assert report.fates["failed"] == report.spent["sampled_tokens"]


def test_a_deadline_that_was_met_does_not_fire():
    """Oracle: by hand. Each step takes 1000 s of at most 1500; over three steps no timer fires."""

    class Events(list[Event]):
        def append(self, event: Event, commands: Any = ()) -> None:
            super().append(event)

        def flush(self) -> None: ...

    events = Events()
    runner = Runner(plain_method(), settings(rollout_deadline=1500.0))
    driver = VirtualDriver(runner, plain_model(num_workers=1, num_slots=32), journal=events)
    assert driver.run() == "all steps done"
    assert driver.now == 2700.0
    assert not [event for event in events if isinstance(event, TimerFired)]
    assert driver.clock.next_at is not None  # the last step's timer is still planned, and void


def test_a_learner_that_is_too_slow_ends_the_run_at_its_deadline():
    """Oracle: by hand. Rollouts take 900 s, the learner would take 80 s and may take 70 s."""
    model = dataclasses.replace(plain_model(num_workers=1, num_slots=32), learner=LearnerModel(80.0, 0.0))
    report = simulate(plain_method(), settings(learn_deadline=70.0), model)
    assert report.seconds == 970.0
    assert "learner did not answer" in report.reason
    assert report.fates["held"] == 3200


def test_a_run_that_waits_for_nothing_is_an_error():
    """Oracle: the contract. An ask that no one answers raises at once; it does not sit out a timer."""
    driver = VirtualDriver(Runner(plain_method(), settings()), plain_model())
    driver.engine.submit = lambda request: None  # type: ignore[method-assign]
    with pytest.raises(LawBroken, match="waits for nothing in phase rollouts"):
        driver.run()


def test_a_method_that_needs_more_than_the_model_gives_is_refused():
    """Oracle: the contract. No entropies are made up."""

    @dataclass(frozen=True, slots=True)
    class Curious(CloseEarly):
        needs = frozenset({"entropy"})

    with pytest.raises(ConfigError, match="needs \\['entropy'\\] of the engine"):
        simulate(plain_method(control=(Curious(1),)), settings())
    run_virtual(ToyTask(), plain_method(control=(Curious(100),)), small_model())  # these answers have them


@pytest.mark.parametrize(
    "build",
    [
        lambda: EngineModel(num_workers=0),
        lambda: EngineModel(step_seconds=0.0),
        lambda: EngineModel(prefill_seconds=math.nan),
        lambda: EngineModel(failure_seconds=0.0),
        lambda: LogNormal(0.0, 1.0),
        lambda: LogNormal(1.0, -1.0),
        lambda: Empirical(()),
        lambda: Empirical((1.0, -2.0)),
        lambda: Constant(math.inf),
        lambda: TaskModel(end_share=1.5),
        lambda: ServiceModel(num_graders=0),
        lambda: LearnerModel(-1.0),
    ],
)
def test_a_model_that_cannot_be_is_refused(build):
    """Oracle: the contract. The message names the value and what was expected."""
    with pytest.raises(ConfigError, match=r"expected|no values"):
        build()
