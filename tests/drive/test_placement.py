"""Placements: who goes next and where, on the virtual clock and alone."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import pytest

from rollwright.drive.place.cache_aware import CacheAware
from rollwright.drive.place.feedback_queue import FeedbackQueue, _FeedbackQueue
from rollwright.drive.place.kv_shares import KVShares, _KVShares
from rollwright.drive.place.round_robin import RoundRobin
from rollwright.drive.placement import Fleet, Job, LeastLoaded, Placement
from rollwright.drive.virtual import (
    Constant,
    EngineModel,
    Hard,
    LearnerModel,
    LogNormal,
    Model,
    ServiceModel,
    TaskModel,
)
from rollwright.errors import ConfigError
from rollwright.events import Observed
from rollwright.lab.simulate import SimulationReport, simulate
from rollwright.methods.grpo import grpo
from rollwright.runner import Settings


def job(number: int, **fields: Any) -> Job:
    return Job(f"a{number}", "g", session=f"s{number}", number=number, **fields)


def take_all(placer: Any, fleet: Fleet) -> list[tuple[str, int]]:
    found = []
    while (one := placer.take(fleet)) is not None:
        fleet.seat(one[1])
        found.append((one[0].ask, one[1]))
    return found


# ------------------------------------------------------------ the fleet and one line


def test_the_fleet_agrees_with_a_plain_search() -> None:
    """Oracle: slow reference. After random seats, leaves, closures and openings, the least loaded worker is
    the first of those with the smallest share of their slots."""
    rng = random.Random(1)
    slots = [rng.randint(1, 5) for _ in range(7)]
    pools = [rng.choice("xy") for _ in slots]
    fleet, loads, is_open = Fleet(slots, pools), [0] * 7, [True] * 7
    for _ in range(3000):
        worker = rng.randrange(7)
        what = rng.random()
        if what < 0.45 and loads[worker] < slots[worker]:
            fleet.seat(worker)
            loads[worker] += 1
        elif what < 0.9 and loads[worker]:
            fleet.free(worker)
            loads[worker] -= 1
        elif what >= 0.9:
            is_open[worker] = not is_open[worker]
            fleet.set_open(worker, is_open[worker])
        for pool in "xy":
            free = [w for w in range(7) if is_open[w] and pools[w] == pool and loads[w] < slots[w]]
            want = min(free, key=lambda w: (loads[w] / slots[w], w), default=None)
            assert fleet.least_loaded(pool) == want
            assert fleet.first_fit(job(0), pool) == want


def test_larger_priorities_go_first_then_older_jobs_and_gone_ones_never() -> None:
    """Oracle: by hand."""
    placer, fleet = LeastLoaded().make(), Fleet([2, 2])
    jobs = [job(0), job(1, priority=5), job(2), job(3, priority=5)]
    for one in jobs:
        placer.enter(one)
    jobs[0].is_gone = True
    assert take_all(placer, fleet) == [("a1", 0), ("a3", 1), ("a2", 0)]


def test_a_job_that_does_not_fit_waits_and_holds_the_line() -> None:
    """Oracle: by hand. The first in line needs memory that nobody has: nobody overtakes it."""
    placer, room = LeastLoaded().make(), {0: 10, 1: 10}
    fleet = Fleet([4, 4], fits=lambda worker, one: one.num_context <= room[worker])
    for one in (job(0, num_context=50), job(1, num_context=1)):
        placer.enter(one)
    assert take_all(placer, fleet) == []
    room[1] = 60
    assert take_all(placer, fleet) == [("a0", 1), ("a1", 0)]


# ------------------------------------------------------------ cache-aware (WAR)


def test_cost_is_what_is_not_cached_plus_load() -> None:
    """Oracle: by hand. Worker 0 holds 90 of 100 tokens; the balance says how much load that is worth."""
    for balance, load, want in (
        (100.0, 0, 0),
        (100.0, 3, 0),
        (200.0, 2, 1),
        (0.0, 3, 0),
        (float("inf"), 1, 1),
    ):
        fleet = Fleet([4, 4], cached=lambda worker, one: 90 if worker == 0 else 0, holders=lambda one: [0])
        for _ in range(load):
            fleet.seat(0)
        placer = CacheAware(balance).make()
        placer.enter(job(0, num_context=100))
        found = placer.take(fleet)
        assert found is not None and found[1] == want, (balance, load)


def test_the_trajectory_that_has_come_furthest_goes_first() -> None:
    """Oracle: by hand. By context; a priority decides before it."""
    placer, fleet = CacheAware().make(), Fleet([4])
    for one in (job(0, num_context=5), job(1, num_context=50), job(2, num_context=9, priority=1)):
        placer.enter(one)
    assert [ask for ask, _ in take_all(placer, fleet)] == ["a2", "a1", "a0"]


def agents(placement: Placement, **changes: Any) -> SimulationReport:
    """Simulate dialogues with long contexts on 8 workers, prefill being what costs."""
    model = Model(
        engine=EngineModel(
            num_workers=8, num_slots=8, step_seconds=0.01, sequence_seconds=0.001, prefill_seconds=0.0005
        ),
        tasks=TaskModel(Constant(200), LogNormal(40, 1), Constant(100), end_share=0.1),
        services=ServiceModel(Constant(0), LogNormal(1.0, 1.0), Constant(0)),
        learner=LearnerModel(1.0, 0.0),
        placement=placement,
    )
    settings = Settings(
        seed=0, tasks=tuple(f"agent/{i}" for i in range(40)), num_steps=1, num_tasks=16, context=100_000,
        max_tokens=400, max_turns=16, is_dialogue=True, rollout_deadline=1e9, chunk=0, **changes,
    )  # fmt: skip
    return simulate(grpo(4), settings, model)


def test_war_prefills_less_and_is_done_sooner_than_round_robin() -> None:
    """Oracle: metamorphic. The same dialogues, token for token; fewer tokens prefilled, less time."""
    found = {type(p).__name__: agents(p) for p in (RoundRobin(), LeastLoaded(), CacheAware())}
    print({name: (r.engine.num_prefilled, round(r.seconds, 1)) for name, r in found.items()})
    war, turns = found["CacheAware"], found["RoundRobin"]
    assert war.spent["sampled_tokens"] == turns.spent["sampled_tokens"]
    assert war.fates == turns.fates
    assert war.engine.num_prefilled < 0.5 * turns.engine.num_prefilled
    assert war.seconds < turns.seconds and war.seconds < found["LeastLoaded"].seconds


# ------------------------------------------------------------ feedback queues (Libra)


def observed(outcome: str = "", num: int = 3) -> Observed:
    return Observed(ask="x", tokens=(1,) * num, outcome=outcome)


def test_bad_outcomes_promote_and_good_ones_demote() -> None:
    """Oracle: by hand, outcome after outcome."""
    placer = FeedbackQueue(("a", "b", "c"), step=2, long_tokens=10).make()
    assert isinstance(placer, _FeedbackQueue)
    levels = []
    for outcome in (
        observed("error"), observed("empty"), observed("success"), observed(num=11), observed(num=0),
        observed("error"), observed("error"), observed("success"), observed("success"),
    ):  # fmt: skip
        placer.hear("s", outcome)
        levels.append(placer.level("s"))
    assert levels == [0, 1, 0, 1, 1, 2, 2, 2, 1]
    placer.finish("s")
    assert placer.level("s") == 0


def test_an_idle_pool_takes_from_the_other_queue() -> None:
    """Oracle: by hand. Nothing idles while something waits."""
    placer, fleet = FeedbackQueue().make(), Fleet([1, 1, 1], ["short", "long", "long"])
    for i in range(4):
        placer.enter(job(i))
    assert sorted(take_all(placer, fleet)) == [("a0", 0), ("a1", 1), ("a2", 2)]


def test_nobody_is_overtaken_more_often_than_patience_allows() -> None:
    """Oracle: a count. One ask of the lowest priority among an endless stream of others."""
    for patience in (1, 7, 30):
        placer, fleet = FeedbackQueue(patience=patience).make(), Fleet([1, 1], ["short", "long"])
        placer.enter(job(0, priority=-1))
        num = 0
        for i in range(1, 200):
            placer.enter(job(i, priority=9))
            one = placer.take(fleet)
            assert one is not None
            if one[0].ask == "a0":
                break
            num += 1
        assert num == patience


def libra(placement: Placement, hard: Hard, buckets: bool) -> SimulationReport:
    """Simulate tool users of which some are hard, on 12 devices: 12 workers, or 8 and one of four devices.

    Four devices together take 1 / 3.2 of the time.
    """
    base = EngineModel(num_workers=12, num_slots=24, step_seconds=0.01, sequence_seconds=0.002)
    quick = dataclasses.replace(
        base, num_workers=1, num_slots=24, pool="long", step_seconds=0.01 / 3.2, sequence_seconds=0.002 / 3.2
    )
    short = dataclasses.replace(base, num_workers=8, pool="short")
    model = Model(
        engine=short if buckets else base,
        others=(quick,) if buckets else (),
        tasks=TaskModel(Constant(64), LogNormal(60, 0.7), Constant(20), end_share=0.5, hard=hard),
        services=ServiceModel(Constant(0), Constant(0.05), Constant(0)),
        learner=LearnerModel(0.0, 0.0),
        placement=placement,
    )
    settings = Settings(
        seed=0, tasks=tuple(f"agent/{i}" for i in range(64)), num_steps=2, num_tasks=32, context=100_000,
        max_tokens=600, max_turns=40, is_dialogue=True, rollout_deadline=1e9, chunk=0,
    )  # fmt: skip
    return simulate(grpo(6), settings, model)


def test_feedback_queues_beat_first_come_first_served() -> None:
    """Oracle: metamorphic. With outcomes that tell hard trajectories, the same rollouts take less time than
    in one line; with outcomes that tell nothing the advantage is smaller."""
    telling, silent = Hard(0.12, 0.03, 0.8, 0.1), Hard(0.12, 0.03, 0.3, 0.3)
    fifo = libra(LeastLoaded(), telling, buckets=False)
    told, untold = (libra(FeedbackQueue(), hard, buckets=True) for hard in (telling, silent))
    print("virtual seconds:", fifo.seconds, told.seconds, untold.seconds)
    assert told.fates == fifo.fates
    assert told.seconds < 0.8 * fifo.seconds
    assert told.seconds < untold.seconds


# ------------------------------------------------------------ shares of memory (MISA-T)

MIX = (("rlvr", 0.5), ("agent", 0.5))


def mixed(placement: Placement) -> SimulationReport:
    """Keep four steps of two workloads in flight, of which memory holds about a quarter: short single
    turns, and dialogues that hold their context for long."""
    rlvr = TaskModel(Constant(64), LogNormal(150, 0.8), Constant(1), end_share=1.0)
    agent = TaskModel(Constant(400), LogNormal(80, 0.8), Constant(120), end_share=0.12)
    engine = EngineModel(
        num_workers=2, num_slots=256, step_seconds=0.01, sequence_seconds=0.0001, kv_tokens=20_000,
        prefill_seconds=0.0002, kv_seconds=2e-7,
    )  # fmt: skip
    model = Model(
        engine=engine,
        mix=(("rlvr", rlvr), ("agent", agent)),
        services=ServiceModel(Constant(0), LogNormal(1.0, 0.5), Constant(0)),
        learner=LearnerModel(0.0, 0.0),
        placement=placement,
    )
    settings = Settings(
        seed=0, tasks=tuple(f"{('rlvr', 'agent')[i % 2]}/{i}" for i in range(400)), num_steps=4, num_tasks=24,
        context=5_000, max_tokens=600, max_turns=12, is_dialogue=True, chunk=0, num_ahead=3,
        rollout_deadline=1e9,
    )  # fmt: skip
    return simulate(grpo(4), settings, model)


def test_misa_t_is_quicker_than_a_cache_aware_router_with_the_same_mixture() -> None:
    """Oracle: metamorphic. The same rollouts of both classes in less time; less is put back and prefilled
    again; memory is never exceeded."""
    router, misa = mixed(CacheAware()), mixed(KVShares(MIX))
    for name, r in (("router", router), ("misa_t", misa)):
        again = r.engine.num_prefilled / r.engine.num_made
        print(
            f"{name}: {r.seconds:.0f} s, {r.engine.num_preempted} put back, {again:.1f} prefilled per token"
        )
    assert misa.fates == router.fates and misa.kinds == router.kinds
    assert misa.seconds < 0.9 * router.seconds
    assert misa.engine.num_preempted < 0.5 * router.engine.num_preempted
    assert misa.engine.num_prefilled < 0.8 * router.engine.num_prefilled
    assert misa.engine.peak_kv_share <= 1.0


def test_the_ledger_of_charges_returns_to_zero_and_no_class_starves() -> None:
    """Oracle: conservation. Random sessions of two classes: what is charged is what is in, both classes end
    their sessions in the mixture's proportion (within a tenth), and at the end nothing is charged."""
    rng = random.Random(0)
    placer = KVShares((("x", 2.0), ("y", 1.0)), room=1.0, gain=0.0, first_guess=100).make()
    assert isinstance(placer, _KVShares)
    fleet = Fleet([50, 50], num_kv_tokens=3000)
    running: list[tuple[Job, int, int]] = []
    ended = {"x": 0, "y": 0}
    for number in range(3000):
        for i in range(4):  # more than can be served
            kind, name = "xy"[i % 2], f"{number}.{i}"
            placer.enter(Job(f"a{name}", f"{kind}/g", f"s{name}", kind, 4 * number + i, num_context=50))
        while (one := placer.take(fleet)) is not None:
            fleet.seat(one[1])
            size = rng.randint(50, 150) if one[0].kind == "x" else rng.randint(300, 500)
            running.append((*one, size))
        charged = {name: 0.0 for name in ended}
        for session in placer.sessions.values():
            charged[session.kind] += session.charge
        assert {name: one.charged for name, one in placer.classes.items()} == pytest.approx(charged)
        for _ in range(min(len(running), 2)):
            done, worker, size = running.pop(rng.randrange(len(running)))
            fleet.free(worker)
            placer.leave(done, worker, size - 50, True)
            placer.finish(done.session)
            if number > 500:
                ended[done.kind] += 1
    assert 1.8 < ended["x"] / ended["y"] < 2.2, ended
    while running:
        done, worker, _ = running.pop()
        placer.leave(done, worker, 1, True)
        placer.finish(done.session)
    assert all(abs(one.charged) < 1e-6 for one in placer.classes.values())


def test_the_room_shrinks_when_memory_runs_out_and_grows_in_peace() -> None:
    """Oracle: by hand. Half of 4,000 tokens is room for 20 sessions of 100; one that is put back makes it
    nine tenths of that, once for all 20; each that ends in peace adds gain / (1 + sessions in).

    Kills: a cut for each session put back, growth although a context was evicted, a session let in beyond
    the room.
    """
    placer = KVShares((("x", 1.0),), room=0.5, gain=0.4, first_guess=100).make()
    assert isinstance(placer, _KVShares)
    found = {"cached": 100}
    fleet = Fleet([50, 50], cached=lambda worker, one: found["cached"], num_kv_tokens=4000)
    jobs = [Job(f"a{i}", "x/g", f"s{i}", "x", i, num_context=100) for i in range(40)]
    for one in jobs:
        placer.enter(one)
    assert len(take_all(placer, fleet)) == 20 and placer.room == 0.5
    placer.leave(jobs[19], 0, 0, False)
    placer.leave(jobs[18], 0, 0, False)
    assert placer.room == pytest.approx(0.45)
    placer.leave(jobs[0], 0, 0, True)
    placer.finish("s0")
    assert placer.room == pytest.approx(0.45 + 0.4 / 20)  # 19 are in
    assert take_all(placer, fleet) == [], "1,880 tokens of room, 1,900 charged"
    found["cached"] = 49  # less than half of what the next turn continues
    placer.enter(Job("b1", "x/g", "s1", "x", 41, num_context=100, turn=1))
    assert [ask for ask, _ in take_all(placer, fleet)] == ["b1"]
    placer.finish("s1")
    assert placer.room == pytest.approx(0.47), "a context was evicted: no growth"
    placer.finish("s2")
    assert placer.room == pytest.approx(0.47 + 0.4 / 18)


def test_what_a_class_costs_is_tokens_times_seconds() -> None:
    """Oracle: by hand. Two classes that hold 100 tokens, one for 5 s and one for 15 s: shares of 1/4, 3/4."""
    placer = KVShares((("x", 1.0), ("y", 1.0)), first_guess=100).make()
    assert isinstance(placer, _KVShares)
    fleet = Fleet([9], num_kv_tokens=4000)
    for number, (kind, seconds) in enumerate((("x", 5.0), ("y", 15.0))):
        one = Job(f"a{kind}", f"{kind}/g", f"s{kind}", kind, number, num_context=60, since=10.0)
        placer.enter(one)
        assert len(take_all(placer, fleet)) == 1
        one.left = 10.0 + seconds
        placer.leave(one, 0, 40, True)
        placer.finish(one.session)
    assert placer.shares_of_memory() == pytest.approx({"x": 0.25, "y": 0.75})


@pytest.mark.parametrize(
    "build",
    [
        lambda: CacheAware(-1),
        lambda: FeedbackQueue(()),
        lambda: FeedbackQueue(step=0),
        lambda: KVShares(()),
        lambda: KVShares((("x", 0.0),)),
        lambda: KVShares(MIX, cut=1.0),
        lambda: KVShares(MIX, room=0.0),
        lambda: KVShares(MIX, gain=-0.1),
    ],
)
def test_what_cannot_be_is_refused(build: Any) -> None:
    """Oracle: the contract."""
    with pytest.raises(ConfigError):
        build()


def test_an_unknown_class_is_an_error() -> None:
    """Oracle: the contract."""
    with pytest.raises(ConfigError, match="class 'z'"):
        KVShares(MIX).make().enter(Job("a", "z/g", "s", "z"))
