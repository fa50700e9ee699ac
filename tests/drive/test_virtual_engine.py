"""The modelled engine alone: closed forms, schedules by hand, and a slow engine that counts every step."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from rollwright.drive.virtual import Constant, EngineModel, Model, TaskModel
from rollwright.drive.virtual.clock import Clock
from rollwright.drive.virtual.content import ModelledContent, Placeholders, Request, turn_start
from rollwright.drive.virtual.engine import VirtualEngine
from rollwright.drive.virtual.pace import Pace
from rollwright.drive.virtual.worker import Worker
from rollwright.errors import EngineError, LawBroken
from rollwright.events import Sampled, Submit, WorkerLost
from rollwright.tree import Node, Origin, Sampling, StopReason

STEP, EACH = 1.0, 0.25  # seconds; every sum of them is exact in binary


class Script:
    """Answers of given lengths."""

    gives: frozenset[str] = frozenset()

    def __init__(self, lengths: dict[str, int]) -> None:
        self.lengths = lengths

    def answer(self, request: Request, version: int) -> Placeholders:
        left = self.lengths[request.command.ask] - (request.command.start - 1)
        return Placeholders(left, StopReason.EOS)

    def renew(self, answer: Any, num_made: int, version: int) -> Any:
        return answer


@dataclass
class Bench:
    """An engine with a script of timed submits and aborts; notes what comes out, and when."""

    lengths: dict[str, int]
    model: EngineModel
    chunk: int = 0
    prompt: int = 1
    got: list[tuple[float, str, int, StopReason | None]] = field(default_factory=list)
    events: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.clock = Clock()
        self.engine = VirtualEngine(self.model, Script(self.lengths), self.clock)

    def submit(self, ask: str, group: str = "g") -> list[Any]:
        root = Node(f"{group}/root", None, 0, Origin.PROMPT, (1,) * self.prompt)
        command = Submit(
            ask=ask,
            group=group,
            parent=root.id,
            at=self.prompt,
            stream=0,
            start=1,
            max_tokens=10_000,
            sampling=Sampling(),
            chunk=self.chunk,
        )
        self.engine.submit(Request(command, ask, [(root, self.prompt)]))
        return []

    def abort(self, ask: str) -> list[Any]:
        return [self.engine.abort(ask)] if ask in self.engine.live else []

    def run(self, until: float = float("inf")) -> None:
        while self.clock.next_at is not None and self.clock.next_at <= until:
            for event in self.clock.advance():
                self.events.append(event)
                if isinstance(event, Sampled):
                    self.got.append((event.at, event.ask, len(event.tokens), event.stop))

    def ends(self) -> dict[str, float]:
        return {ask: at for at, ask, _, stop in self.got if stop is not None}

    def made(self) -> dict[str, int]:
        made: dict[str, int] = {}
        for _, ask, num, _ in self.got:
            made[ask] = made.get(ask, 0) + num
        return made


def engine_model(**changes: Any) -> EngineModel:
    fields: dict[str, Any] = {
        "num_workers": 1,
        "num_slots": 1,
        "step_seconds": STEP,
        "sequence_seconds": EACH,
        "prefill_seconds": 0.0,
    }
    return EngineModel(**{**fields, **changes})


def test_one_worker_with_one_slot_takes_the_sum():
    """Oracle: closed form. T = Σ lengths · (step + sequence) + Σ prefix · prefill, in order of arrival."""
    lengths = {"a": 5, "b": 1, "c": 17}
    bench = Bench(lengths, engine_model(prefill_seconds=0.5), prompt=3)
    for ask in lengths:
        bench.clock.plan(0.0, bench.submit, ask, ask)  # a group each: no shared prefix
    bench.run()
    # The script's asks start at position 1, so one token of the prefix is prefilled.
    first = 0.5 + 5 * 1.25
    second = first + 0.5 + 1.25
    assert bench.ends() == {"a": first, "b": second, "c": second + 0.5 + 17 * 1.25}
    assert bench.engine.account().busy_seconds == bench.clock.now
    assert bench.engine.account().queue_seconds == first + second


def test_a_freed_slot_is_taken_at_the_same_boundary():
    """Oracle: by hand. Two slots, lengths 4, 2, 3: pace 1.5 with two, 1.25 with one.

    b ends after 2 steps (3.0); c takes its place; a ends at 6.0; c has one left, alone: 7.25.
    """
    bench = Bench({"a": 4, "b": 2, "c": 3}, engine_model(num_slots=2))
    for ask in "abc":
        bench.clock.plan(0.0, bench.submit, ask)
    bench.run()
    assert bench.ends() == {"a": 6.0, "b": 3.0, "c": 7.25}
    use = bench.engine.account()
    assert (use.busy_seconds, use.slot_seconds, use.queue_seconds) == (7.25, 6.0 + 3.0 + 4.25, 3.0)


def test_one_that_arrives_during_a_step_joins_at_its_end_and_its_prefill_delays_all():
    """Oracle: by hand. a alone steps at 1.25, 2.5; b comes at 1.5, joins at 2.5, prefills until 3.0.

    Both then step at pace 1.5: b (2 tokens) ends at 6.0; a has made 4 then, its last takes 1.25.
    """
    bench = Bench({"a": 5, "b": 2}, engine_model(num_slots=2, prefill_seconds=0.5))
    bench.submit("a", "g")  # prefills until 0.5
    bench.clock.plan(2.0, bench.submit, "b", "h")
    bench.run()
    # Shifted by a's own prefill of 0.5: steps at 1.75, 3.0; b joins at 3.0, prefills until 3.5.
    assert bench.ends() == {"b": 6.5, "a": 7.75}
    assert bench.engine.account().num_prefilled == 2


def test_a_group_shares_its_prompt_on_a_worker():
    """Oracle: by hand. Four of one group on one worker prefill the prompt once; two workers do twice."""
    for workers, num in ((1, 1), (2, 2)):
        bench = Bench(dict.fromkeys("abcd", 3), engine_model(num_slots=4, num_workers=workers))
        for ask in "abcd":
            bench.submit(ask)
        bench.run()
        assert bench.engine.account().num_prefilled == num
        assert sum(event.prefilled for event in bench.events) == num


def test_an_abort_gives_what_whole_steps_made():
    """Oracle: by hand. Pace 1.5; at 4.0 two steps are whole. The step in flight ends at 4.5 with both
    sequences' time; then the other goes on alone at 1.25."""
    bench = Bench({"a": 9, "b": 9}, engine_model(num_slots=2))
    for ask in "ab":
        bench.submit(ask)
    bench.clock.plan(4.0, bench.abort, "b")
    bench.run()
    assert (4.0, "b", 2, StopReason.INTERRUPTED) in bench.got
    assert bench.ends()["a"] == 4.5 + (9 - 3) * 1.25


def test_an_abort_at_a_boundary_counts_its_step():
    """Oracle: by hand. At exactly 3.0 two steps of 1.5 are whole, whichever of the two is planned first."""
    bench = Bench({"a": 9, "b": 2}, engine_model(num_slots=2))
    bench.clock.plan(3.0, bench.abort, "a")
    for ask in "ab":
        bench.submit(ask)
    bench.run()
    assert bench.made() == {"a": 2, "b": 2}


def test_aborting_one_that_waits_or_prefills_gives_nothing():
    """Oracle: by hand. No token was made: it comes back empty, and its slot goes to the next."""
    bench = Bench({"a": 9, "b": 9, "c": 2}, engine_model(prefill_seconds=8.0))
    for ask in "abc":
        bench.submit(ask, ask)
    bench.clock.plan(1.0, bench.abort, "b")
    bench.clock.plan(2.0, bench.abort, "a")
    bench.run()
    assert bench.made() == {"a": 0, "b": 0, "c": 2}
    assert bench.ends()["c"] == 8.0 + 8.0 + 2 * 1.25


def test_chunks_come_when_they_are_full():
    """Oracle: by hand. Seven tokens in chunks of three: at steps 3, 6 and 7, the last with its reason."""
    bench = Bench({"a": 7}, engine_model(), chunk=3)
    bench.submit("a")
    bench.run()
    assert bench.got == [
        (3.75, "a", 3, None),
        (7.5, "a", 3, None),
        (8.75, "a", 1, StopReason.EOS),
    ]


def test_new_weights_label_only_what_comes_after():
    """Oracle: by hand (case W02's law). Two tokens were made at 3.0 under version 0: they are reported
    as such at once; the cache is made again; the rest is of version 5."""
    bench = Bench({"a": 4, "b": 2}, engine_model(num_slots=2, prefill_seconds=0.5))
    for ask in "ab":
        bench.submit(ask)  # one token of prefix for both: prefills until 0.5, steps at 2.0, 3.5
    bench.clock.plan(4.0, bench.engine.publish, 5)
    bench.run()
    versions = [(e.ask, len(e.tokens), e.version) for e in bench.events]
    assert versions == [("b", 2, 0), ("a", 2, 0), ("a", 2, 5)]
    # The step in flight (1.25 from 3.5) is lost to the new weights; prefill of 1 + 2 tokens; two steps.
    assert bench.ends()["a"] == 4.75 + 3 * 0.5 + 2 * 1.25


def test_a_failed_worker_gives_its_asks_back_and_takes_none_until_it_restarts():
    """Oracle: conservation. Every ask of the worker is named once; its tokens not reported are lost."""
    model = engine_model(num_slots=3, failure_seconds=20.0, restart_seconds=50.0)
    bench = Bench(dict.fromkeys("abcd", 1000), model)
    for ask in "abcd":
        bench.submit(ask)
    while not bench.events:
        bench.run(until=bench.clock.next_at)
    lost_at = bench.clock.now
    assert bench.events == [WorkerLost(worker="worker-0", asks=("a", "b", "c"), at=lost_at)]
    assert list(bench.engine.live) == ["d"]  # it was waiting in line: nobody lost it
    steps = int(lost_at / (STEP + 3 * EACH))
    assert bench.engine.account().num_lost == 3 * steps
    assert bench.engine.account().busy_seconds == lost_at
    bench.run(until=lost_at + 49.0)
    assert bench.engine.account().busy_seconds == lost_at
    bench.run(until=lost_at + 51.0)
    assert bench.engine.workers[0].busy_since == lost_at + 50.0


def test_only_what_was_not_reported_is_lost():
    """Oracle: by hand. At 10.0 eight tokens of pace 1.25 are made, six of them reported in chunks of 3."""
    bench = Bench({"a": 100}, engine_model(restart_seconds=50.0), chunk=3)
    bench.submit("a")
    bench.clock.plan(10.0, bench.engine._fail, bench.engine.workers[0])
    bench.run()
    assert bench.made() == {"a": 6}
    assert bench.engine.account().num_lost == 2


def test_a_worker_that_is_down_gets_no_work_and_comes_back_without_its_cache():
    """Oracle: by hand. Of two workers the first fails: the second takes all it has slots for, the rest
    waits for the restart at 50.0, and the prompt is prefilled again there."""
    bench = Bench(dict.fromkeys("abcd", 2), engine_model(num_workers=2, restart_seconds=50.0))
    first = bench.engine.workers[0]
    bench.submit("a")
    bench.run()
    assert bench.ends() == {"a": 2.5}
    bench.clock.plan(3.0, bench.engine._fail, first)
    for ask in "bc":
        bench.clock.plan(4.0, bench.submit, ask)
    bench.clock.plan(54.0, bench.submit, "d")
    bench.run()
    assert bench.ends() == {"a": 2.5, "b": 6.5, "c": 9.0, "d": 56.5}
    # a on the first worker, b on the second (c finds it there), d on the first again after its failure.
    assert bench.engine.account().num_prefilled == 3


def test_new_weights_at_the_end_of_a_sequence_leave_it_to_the_old_ones():
    """Oracle: by hand. Both happen at 2.5, the publication first: the tokens are of version 0."""
    bench = Bench({"a": 2}, engine_model())
    bench.clock.plan(2.5, bench.engine.publish, 1)
    bench.submit("a")
    bench.run()
    assert [(e.at, len(e.tokens), e.version, e.stop) for e in bench.events] == [(2.5, 2, 0, StopReason.EOS)]


def test_an_abort_right_after_new_weights_gives_nothing_twice():
    """Oracle: by hand. What was made was reported at 4.0 with the publication; at 4.5 there is no more."""
    bench = Bench({"a": 9}, engine_model())
    bench.submit("a")
    bench.clock.plan(4.0, bench.engine.publish, 1)
    bench.clock.plan(4.5, bench.abort, "a")
    bench.run()
    assert bench.got == [(4.0, "a", 3, None), (4.5, "a", 0, StopReason.INTERRUPTED)]
    assert bench.engine.account().num_made == 3


def test_use_counts_work_in_progress():
    """Oracle: by hand. At 2.0 one slot was taken for 2.0 and another ask waited for 2.0."""
    bench = Bench({"a": 9, "b": 9}, engine_model())
    for ask in "ab":
        bench.submit(ask)
    bench.clock.plan(2.0, list)
    bench.run(until=2.0)
    use = bench.engine.account()
    assert (use.busy_seconds, use.slot_seconds, use.queue_seconds) == (2.0, 2.0, 2.0)


def chain(*nodes: tuple[str, int, StopReason | None]) -> list[tuple[Node, int]]:
    """Return a path: a prompt of 4 steps, then sampled nodes as (stream, steps, stop)."""
    path = [(Node("g/root", None, 0, Origin.PROMPT, (1,) * 4), 4)]
    for number, (stream, num, stop) in enumerate(nodes):
        start = path[-1][0].start + path[-1][1]
        logprobs = (-1.0,) * num
        node = Node(
            f"g/{number}", path[-1][0].id, path[-1][1], Origin.SAMPLED, (1,) * num, stream, start,
            policy="policy", version=0, logprobs=logprobs, stop=stop,
        )  # fmt: skip
        path.append((node, num))
    return path


def request(ask: str, stream: str, path: list[tuple[Node, int]], max_tokens: int = 1000) -> Request:
    node, num = path[-1]
    start = node.start + num
    command = Submit(
        ask=ask, group="g", parent=node.id, at=num, stream=hash(stream) & 0xFFFF, start=start,
        max_tokens=max_tokens, sampling=Sampling(),
    )  # fmt: skip
    return Request(command, stream, path)


@pytest.mark.parametrize(
    ("nodes", "stream", "start"),
    [
        ([], "0/0", 4),
        ([("0/0", 5, StopReason.INTERRUPTED)], "0/0", 4),
        ([("0/0", 5, StopReason.INTERRUPTED), ("0/0", 2, StopReason.LENGTH)], "0/0", 4),
        ([("0/0", 5, StopReason.EOS)], "0/0", 9),
        ([("0/0", 5, StopReason.EOS), ("0/0", 2, StopReason.INTERRUPTED)], "0/0", 9),
        ([("0/0", 5, StopReason.INTERRUPTED)], "0/0~0", 9),
        ([("0/0", 5, StopReason.INTERRUPTED), ("0/0~0", 3, StopReason.INTERRUPTED)], "0/0~0", 9),
    ],
)
def test_a_turn_begins_where_its_own_stream_does(nodes, stream, start):
    """Oracle: by hand. Parts of one turn count together; an end, and a fork, begin anew."""
    assert turn_start(request("a", stream, chain(*nodes)))[0] == start


def test_a_turn_of_exactly_the_limit_ended_by_itself():
    """Oracle: by hand. 10 tokens of at most 10 end by their end token; of at most 9 by the length."""
    content = ModelledContent(Model(tasks=TaskModel(response=Constant(10))))
    for limit, num, stop in ((10, 10, StopReason.EOS), (9, 9, StopReason.LENGTH)):
        answer = content.answer(request("a", "0/0", chain(), limit), 0)
        assert (answer.num, answer.stop) == (num, stop)
        assert (answer.columns(0, num)["tokens"][-1] == 0) == (stop is StopReason.EOS)


def test_a_fork_finds_its_parents_cache():
    """Oracle: by hand. The worker prefilled prompt and parent (4 + 10) for the first; a branch from the
    parent's middle lacks nothing there, one of another worker lacks prompt and half (4 + 5)."""
    path = chain(("0/0", 10, StopReason.INTERRUPTED))
    half = [*path[:-1], (path[-1][0], 5)]
    for workers, num in ((1, 14), (2, 14 + 9)):
        bench = Bench({}, engine_model(num_slots=4, num_workers=workers))
        bench.engine.content = ModelledContent(Model(tasks=TaskModel(response=Constant(100))))
        bench.engine.submit(request("a", "0/0", path))
        bench.engine.submit(request("b", "0/0~0", half))
        bench.run()
        assert bench.engine.account().num_prefilled == num


def test_step_counts_are_exact_at_the_times_that_they_plan():
    """Oracle: closed form. At anchor + n · pace exactly n steps are done, just before it n - 1, for any
    pace; the quotient of the two alone would be off by one."""
    rng, num_off = random.Random(0), 0
    for _ in range(2000):
        worker = Worker(0)
        pace = rng.uniform(1e-3, 1)
        worker.anchor, worker.pace = rng.uniform(0, 1e5), Pace(pace)
        worker.busy_since, num = 0.0, rng.randint(1, 5000)
        at = worker.anchor + num * pace
        assert worker.steps_at(at) == num
        assert worker.steps_at(math.nextafter(at, 0)) == num - 1
        assert worker.boundary(at) == at
        num_off += int((at - worker.anchor) / pace) != num
    assert num_off > 100  # the case is real


def test_what_cannot_be_is_refused():
    """Oracle: the contract. An ask twice, or an action in the past, is an error and not a wrong figure."""
    bench = Bench({"a": 2}, engine_model())
    bench.submit("a")
    with pytest.raises(EngineError, match="is in work already"):
        bench.submit("a")
    bench.run()
    with pytest.raises(LawBroken, match="planned for 0"):
        bench.clock.plan(0.0, list)


# ------------------------------------------------------------ the slow reference


def slow_engine(
    lengths: dict[str, int],
    arrivals: dict[str, float],
    aborts: dict[str, float],
    slots: int,
    prefill: float,
) -> tuple[dict[str, float], dict[str, int]]:
    """Count one worker's steps one by one; return when each ask ended, and the tokens it made."""
    now, made, ends = 0.0, dict.fromkeys(lengths, 0), {}
    batch: list[str] = []
    to_come = sorted(lengths, key=lambda ask: arrivals[ask])
    while len(ends) < len(lengths):
        for ask in [a for a in lengths if a not in ends and aborts.get(a, 1e9) <= now]:
            ends[ask] = aborts[ask]
        batch = [ask for ask in batch if ask not in ends]
        free = slots - len(batch)
        joining = [a for a in to_come if a not in ends and arrivals[a] <= now][:free]
        to_come = [a for a in to_come if a not in joining]
        # Slots that are freed by an abort during a prefill are filled after it, as real schedulers do.
        batch += joining
        if joining:
            now += prefill * len(joining)
            continue
        if not batch:
            now = min((arrivals[a] for a in to_come if a not in ends), default=now)
            continue
        end = now + STEP + EACH * len(batch)
        for ask in batch:
            if aborts.get(ask, 1e9) < end:
                continue
            made[ask] += 1
            if made[ask] == lengths[ask]:
                ends[ask] = end
        now = end
    return ends, made


@pytest.mark.parametrize("seed", range(150))
def test_it_equals_an_engine_that_counts_every_step(seed):
    """Oracle: slow reference, exact. Random lengths, arrivals and aborts off the grid of the steps.

    Kills: a pace that changes during a step, a joiner that is counted one step early, an abort that
    counts the step in flight, a queue that is not first come first served.
    """
    rng = random.Random(seed)
    asks = [f"a{i}" for i in range(rng.randint(1, 12))]
    lengths = {ask: rng.randint(1, 12) for ask in asks}
    # Odd multiples of 1/64, one each: no tie with a boundary (multiples of 1/16) or with one another.
    times = rng.sample(range(1, 1200), 2 * len(asks))
    arrivals = {ask: (2 * times.pop() + 1) / 64 for ask in asks}
    aborts = {ask: (2 * times.pop() + 1) / 64 for ask in asks if rng.random() < 0.4}
    aborts = {ask: time for ask, time in aborts.items() if time > arrivals[ask]}
    slots, prefill = rng.randint(1, 4), rng.choice([0.0, 0.0625, 3.0])
    model = engine_model(num_slots=slots, prefill_seconds=prefill)
    bench = Bench(lengths, model, chunk=rng.choice([0, 1, 3]))
    for ask in asks:
        bench.clock.plan(arrivals[ask], bench.submit, ask, ask)
    for ask, time in aborts.items():
        bench.clock.plan(time, bench.abort, ask)
    bench.run()
    ends, made = slow_engine(lengths, arrivals, aborts, slots, prefill)
    assert bench.ends() == ends
    assert bench.made() == made
    use = bench.engine.account()
    assert use.num_made == sum(made.values())
    assert use.slot_seconds + use.queue_seconds == sum(ends[a] - arrivals[a] for a in asks)
