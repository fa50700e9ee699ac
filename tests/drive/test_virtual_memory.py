"""The modelled engine's memory and rooflines: against an engine that counts every step and every token."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from test_virtual_engine import Script

from rollwright.drive.virtual import Broadcast, Drafts, EngineModel
from rollwright.drive.virtual.accelerators import ACCELERATORS, SHAPES, roofline, training
from rollwright.drive.virtual.clock import Clock
from rollwright.drive.virtual.content import Request
from rollwright.drive.virtual.engine import VirtualEngine
from rollwright.drive.virtual.pace import Pace
from rollwright.errors import ConfigError, EngineError, UnknownName
from rollwright.events import Sampled, Submit
from rollwright.tree import Node, Origin, Sampling


class Lengths(Script):
    """Answers whose length counts from the ask's own start."""

    def answer(self, request: Request, version: int) -> Any:
        answer = super().answer(request, version)
        answer.num = self.lengths[request.command.ask]
        return answer


@dataclass
class Bench:
    """An engine, prompts of given lengths by group, and everything that came out."""

    lengths: dict[str, int]
    model: EngineModel
    prompts: dict[str, int]
    others: tuple[EngineModel, ...] = ()
    events: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.clock = Clock()
        self.engine = VirtualEngine(self.model, Lengths(self.lengths), self.clock, others=self.others)

    def submit(self, ask: str, priority: int = 0) -> list[Any]:
        group = ask.split("-")[0]
        num = self.prompts[group]
        root = Node(f"{group}/root", None, 0, Origin.PROMPT, (1,) * num)
        command = Submit(
            ask=ask, group=group, parent=root.id, at=num, stream=0, start=num, sampling=Sampling(),
            max_tokens=max(self.lengths.values()), priority=priority,
        )  # fmt: skip
        self.engine.submit(Request(command, ask, [(root, num)]))
        return []

    def run(self) -> None:
        while self.clock.next_at is not None:
            self.events += self.clock.advance()

    def ends(self) -> dict[str, float]:
        return {e.ask: e.at for e in self.events if isinstance(e, Sampled) and e.stop is not None}

    def made(self) -> dict[str, int]:
        made: dict[str, int] = {}
        for event in self.events:
            made[event.ask] = made.get(event.ask, 0) + len(event.tokens)
        return made


def slow(
    lengths: dict[str, int], arrivals: dict[str, float], priorities: dict[str, int], prompts: dict[str, int],
    model: EngineModel,
) -> tuple[dict[str, float], int, int]:  # fmt: skip
    """Count one worker's steps one by one; return when each ask ended, preemptions, and tokens prefilled."""
    limit = model.kv_tokens or 10**9
    order = sorted(lengths, key=lambda ask: arrivals[ask])
    rank = {ask: (-priorities[ask], order.index(ask)) for ask in order}
    made, ends, now = dict.fromkeys(lengths, 0), {}, 0.0
    batch: list[str] = []
    cached: dict[str, int] = {}  # by ask: tokens from the root on; "g" alone: its prompt
    idle: list[str] = []  # the least recently used first
    num_preempted = num_prefilled = 0

    def group(ask: str) -> str:
        return ask.split("-")[0]

    def context(ask: str) -> int:
        return prompts[group(ask)] + made[ask]

    def held(asks: list[str]) -> int:
        shared = sum(prompts[g] for g in {group(ask) for ask in asks})
        return shared + sum(made[ask] for ask in asks)

    def rest(ask: str, others: list[str]) -> None:
        cached[ask] = context(ask)
        idle[:] = [name for name in idle if name != ask] + [ask]
        if group(ask) not in {group(other) for other in others}:
            idle[:] = [name for name in idle if name != group(ask)] + [group(ask)]

    def size(name: str) -> int:
        return prompts[name] if name in prompts else cached[name] - prompts[group(name)]

    def seat(upto: float) -> bool:
        """Seat what came by then, in order; the first in line that has no room lets all others wait."""
        waiting = [a for a in order if arrivals[a] <= upto and a not in ends and a not in batch + joining]
        seated = False
        for ask in sorted(waiting, key=lambda ask: rank[ask]):
            here = batch + joining
            num = context(ask) + len(here) + 1
            num -= prompts[group(ask)] if group(ask) in {group(a) for a in here} else 0
            bound = 0.99 * limit if here else limit
            if len(here) >= model.num_slots or held(here) + num > bound:
                break
            joining.append(ask)
            idle[:] = [name for name in idle if name not in (ask, group(ask))]
            seated = True
        return seated

    def shrink(most: int) -> None:
        while idle and sum(map(size, idle)) > max(0, most):
            del cached[idle.pop(0)]

    joining: list[str] = []
    while len(ends) < len(lengths):
        prefill = 0
        for ask in joining:
            have = max(cached.get(ask, 0), cached.get(group(ask), 0))
            prefill += context(ask) - have
            cached[ask], cached[group(ask)] = context(ask), prompts[group(ask)]
            batch.append(ask)
        joining.clear()
        num_prefilled += prefill
        while len(batch) > 1 and held(batch) + len(batch) > limit:
            last = max(batch, key=lambda ask: rank[ask])
            batch.remove(last)
            rest(last, batch)
            num_preempted += 1
        shrink(limit - held(batch) - len(batch))
        begin, now = now, now + prefill * model.prefill_seconds
        is_new = seat(begin)
        for at in sorted(arrivals.values()):
            if begin < at <= now:
                is_new |= seat(at)
        if is_new:
            continue
        if not batch:
            now = min(a for ask, a in arrivals.items() if a > now and ask not in ends)
            seat(now)
            continue
        read = sum(context(ask) for ask in batch)
        end = now + max(
            model.step_seconds + model.sequence_seconds * len(batch) + model.kv_seconds * read,
            model.floor_seconds * len(batch),
        )
        for at in sorted(arrivals.values()):
            if now < at < end:
                seat(at)
        now = end
        for ask in batch:
            made[ask] += 1
        shrink(limit - held(batch + joining))
        for ask in [ask for ask in batch if made[ask] == lengths[ask]]:
            ends[ask] = now
            batch.remove(ask)
            rest(ask, batch + joining)
    return ends, num_preempted, num_prefilled


@pytest.mark.parametrize("seed", range(120))
def test_it_equals_an_engine_that_counts_every_step_and_token(seed: int) -> None:
    """Oracle: slow reference. Random lengths, arrivals, priorities and prompts, with a memory that is too
    small for all, on a worker whose steps grow with what it reads.

    Kills: contexts counted wrongly after a preemption, a shared prompt counted twice, the wrong victim,
    an eviction that drops the newest, a pace that ignores what was read before.
    """
    rng = random.Random(seed)
    groups = [f"g{i}" for i in range(rng.randint(1, 3))]
    asks = [f"{rng.choice(groups)}-{i}" for i in range(rng.randint(1, 9))]
    lengths = {ask: rng.randint(1, 14) for ask in asks}
    prompts = {group: rng.randint(1, 10) for group in groups}
    # Off the grid of the steps (multiples of 1/16): no tie with a boundary.
    arrivals = {ask: (2 * rng.randint(0, 600) + 1) / 64 + i / 4096 for i, ask in enumerate(asks)}
    priorities = {ask: rng.choice([0, 0, 3]) for ask in asks}
    model = EngineModel(
        num_workers=1,
        num_slots=rng.randint(1, 5),
        step_seconds=1.0,
        sequence_seconds=rng.choice([0.0, 0.25]),
        prefill_seconds=rng.choice([0.0, 0.125]),
        kv_seconds=rng.choice([0.0, 0.0625, 0.5]),
        floor_seconds=rng.choice([0.0, 1.5]),
        kv_tokens=rng.choice([None, 26, 40]),
    )
    bench = Bench(lengths, model, prompts)
    for ask in asks:
        bench.clock.plan(arrivals[ask], bench.submit, ask, priorities[ask])
    bench.run()
    ends, num_preempted, num_prefilled = slow(lengths, arrivals, priorities, prompts, model)
    assert bench.ends() == pytest.approx(ends, abs=1e-9)
    assert bench.made() == lengths
    use = bench.engine.account()
    assert (use.num_preempted, use.num_prefilled) == (num_preempted, num_prefilled)
    assert use.peak_kv_share <= 1.0
    assert use.slot_seconds + use.queue_seconds == pytest.approx(sum(ends[a] - arrivals[a] for a in asks))


# ------------------------------------------------------------ paces and rooflines


@pytest.mark.parametrize("seed", range(30))
def test_a_pace_is_the_sum_of_its_steps(seed: int) -> None:
    """Oracle: slow reference, a sum step by step; and its inverse counts the steps that fit."""
    rng = random.Random(seed)
    first, floor = rng.uniform(0.1, 2), rng.choice([0.0, rng.uniform(0.1, 5)])
    pace = Pace(first, rng.choice([0.0, rng.uniform(0.001, 0.3)]), floor)
    total, at = 0.0, []
    for step in range(60):
        assert pace.seconds(step) == pytest.approx(total, rel=1e-12)
        at.append(total)
        assert pace.per_step(step) == pytest.approx(max(floor, first + pace.slope * step), rel=1e-12)
        total += max(floor, first + pace.slope * step)
    for step in range(1, 60):
        between = (at[step - 1] + at[step]) / 2
        assert pace.steps(between) == step - 1


def test_a_roofline_by_hand() -> None:
    """Oracle: closed form from the data sheet. H800, Qwen3-8B: weights 16.38 GB and a context at
    147,456 bytes a token over 0.8 · 3.35 TB/s, 2 · 8.19e9 operations a sequence over 0.5 · 989.4 TFLOP/s."""
    engine = roofline("H800", "Qwen3-8B")
    memory = 0.004 + (16.38e9 + 147456 * 48_000) / (0.8 * 3.35e12)
    assert engine.decode_seconds(16, 48_000) == pytest.approx(memory, rel=1e-6)
    arithmetic = 2 * 8.19e9 * 4096 / (0.5 * 989.4e12)
    assert engine.decode_seconds(4096, 4096) == pytest.approx(arithmetic, rel=1e-6)
    assert engine.kv_tokens == int((0.9 * 80e9 - 16.38e9) / 147456)
    assert training("H800", "Qwen3-8B").token_seconds == pytest.approx(8 * 8.19e9 / (0.4 * 989.4e12))


def test_two_devices_share_weights_and_lose_a_tenth() -> None:
    """Oracle: closed form. Two devices decode 1.8 times as fast, beside the overhead."""
    one, two = roofline("A100", "Qwen2.5-7B"), roofline("A100", "Qwen2.5-7B", num_devices=2)
    assert (one.step_seconds - 0.004) / (two.step_seconds - 0.004) == pytest.approx(1.8)
    assert two.kv_tokens is not None and one.kv_tokens is not None and two.kv_tokens > 2 * one.kv_tokens


def test_every_shape_runs_somewhere_and_what_does_not_fit_is_refused() -> None:
    """Oracle: the contract. 72B in bf16 fits 8 of any device but the smallest; one H100 cannot hold it."""
    for device in ACCELERATORS:
        for shape in SHAPES:
            if (device, shape) != ("RTX4090", "Qwen2.5-72B"):
                assert roofline(device, shape, num_devices=8).decode_seconds(8, 8000) > 0.004
    with pytest.raises(ConfigError, match="145 GB of weights"):
        roofline("H100", "Qwen2.5-72B")
    with pytest.raises(UnknownName, match="did you mean 'H100'"):
        roofline("H10", "Qwen3-8B")


def test_drafts_by_hand() -> None:
    """Oracle: closed form. Of 3 drafts at 0.5 a step gives 1 + 1/2 + 1/4 + 1/8 tokens; arithmetic counts
    four times; above the limit there are none."""
    model = EngineModel(step_seconds=1.0, sequence_seconds=0.0, floor_seconds=0.5, drafts=Drafts(3, 0.5, 2))
    assert model.decode_seconds(1) == pytest.approx(max(1.0, 0.5 * 4) / 1.875)
    assert model.decode_seconds(2) == pytest.approx(max(1.0, 1.0 * 4) / 1.875)
    assert model.decode_seconds(3) == 1.5


# ------------------------------------------------------------ several workers


def flat(**changes: Any) -> EngineModel:
    fields: dict[str, Any] = {"num_workers": 2, "num_slots": 2, "step_seconds": 1.0, "sequence_seconds": 0.0}
    return EngineModel(**{**fields, "prefill_seconds": 0.25, **changes})


def test_what_another_worker_holds_is_fetched_at_its_price() -> None:
    """Oracle: by hand. Both workers prefill a prompt of 8 (2 s each) without a pool; with one at 0.125 s a
    token, the second worker's first ask comes later and fetches the 8 for 1 s."""
    for fetch, end, counts in ((None, 10 + 2 + 5, (16, 0)), (0.125, 10 + 1 + 5, (8, 8))):
        bench = Bench({"g-0": 50, "g-1": 5}, flat(num_slots=1, fetch_seconds=fetch), {"g": 8})
        bench.submit("g-0")
        bench.clock.plan(10.0, bench.submit, "g-1")
        bench.run()
        assert bench.ends() == {"g-0": 52.0, "g-1": end}
        use = bench.engine.account()
        assert (use.num_prefilled, use.num_fetched) == counts


@pytest.mark.parametrize(
    ("kind", "want"), [("chain", (3, 4, 5, 6)), ("star", (3, 5, 7, 9)), ("parallel", (3,) * 4)]
)
def test_weights_arrive_in_turn(kind: str, want: tuple[int, ...]) -> None:
    """Oracle: closed form. Copy 2 s, latency 1 s, chunks of 2: a chain has k · 1 + (1 + (k − 1) / 2) · 2 s;
    until then a worker samples by the old version and says so."""
    if kind == "chain":
        want = tuple(k + (1 + (k - 1) / 2) * 2 for k in range(1, 5))  # type: ignore[assignment]
    cast = Broadcast(2.0, 1.0, kind, 2)
    assert tuple(cast.arrives_after(place) for place in range(4)) == want
    model = flat(num_workers=4, num_slots=1, prefill_seconds=0.0, broadcast=cast)
    bench = Bench({f"g-{i}": 20 for i in range(4)}, model, {"g": 1})
    for i in range(4):
        bench.submit(f"g-{i}")
    bench.clock.plan(5.5, lambda: bench.engine.publish(1))
    bench.run()
    for i in range(4):
        old = sum(len(e.tokens) for e in bench.events if e.ask == f"g-{i}" and e.version == 0)
        assert old == math.floor(5.5 + want[i])
        assert sum(len(e.tokens) for e in bench.events if e.ask == f"g-{i}") == 20


def test_lent_workers_hand_their_work_over() -> None:
    """Oracle: by hand. At 5.5 s one of two workers is lent; what it made stays, its ask prefills 1 + 5 on
    the other one and goes on. Given back, it takes asks again, with an empty cache."""
    bench = Bench({"g-0": 20, "g-1": 20, "g-2": 5, "g-3": 5}, flat(num_slots=2), {"g": 4})
    bench.submit("g-0")
    bench.submit("g-1")
    bench.clock.plan(5.5, lambda: bench.engine.lend(1))
    bench.clock.plan(30.0, lambda: bench.engine.lend(0))
    bench.clock.plan(31.0, bench.submit, "g-2")
    bench.clock.plan(31.0, bench.submit, "g-3")
    bench.run()
    # Both begin after a prefill of 1 s; 4 tokens each by 5.5; g-1 joins at 6, and prefills 4 shared ones no
    # more: 4 of its own, 1 s in which g-0 waits too.
    assert bench.made() == {"g-0": 20, "g-1": 20, "g-2": 5, "g-3": 5}
    assert bench.ends()["g-0"] == 22.0 and bench.ends()["g-1"] == 23.0
    use = bench.engine.account()
    assert use.lent_seconds == 24.5
    assert use.num_prefilled == 4 + 4 + 4 + 0 + 4  # g-2 finds its prompt on the worker that stayed


def test_what_can_never_fit_is_refused() -> None:
    """Oracle: the contract."""
    bench = Bench({"g-0": 20}, flat(kv_tokens=16), {"g": 4})
    with pytest.raises(EngineError, match="may grow to 24 tokens, the largest worker has memory for 16"):
        bench.submit("g-0")


@pytest.mark.parametrize(
    "build",
    [
        lambda: Drafts(0, 0.5, 1),
        lambda: Drafts(1, 1.0, 1),
        lambda: Broadcast(-1.0),
        lambda: Broadcast(1.0, kind="tree"),
        lambda: EngineModel(kv_tokens=0),
        lambda: EngineModel(fetch_seconds=-1.0),
    ],
)
def test_models_that_cannot_be_are_refused(build: Any) -> None:
    """Oracle: the contract."""
    with pytest.raises(ConfigError):
        build()
