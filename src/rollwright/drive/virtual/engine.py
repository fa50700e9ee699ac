"""A modelled engine on a virtual clock: workers, slots, one queue, chunks, aborts and failures."""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Sequence

import msgspec

from rollwright import rng as randomness
from rollwright.drive.virtual.clock import Clock
from rollwright.drive.virtual.content import Content, Request
from rollwright.drive.virtual.model import EngineModel, share_of
from rollwright.drive.virtual.worker import Live, Worker
from rollwright.errors import EngineError
from rollwright.events import AnyEvent, Sampled, WorkerLost
from rollwright.tree import GroupId, NodeId, StopReason


class EngineUse(msgspec.Struct):
    """What a modelled engine did. Seconds are virtual, summed over workers or sequences."""

    num_requests: int = 0
    num_made: int = 0  # tokens that were reported
    num_lost: int = 0  # tokens that a failing worker had made and not reported
    num_prefilled: int = 0
    num_failures: int = 0
    busy_seconds: float = 0.0  # workers that decode or prefill
    slot_seconds: float = 0.0  # slots that are taken
    queue_seconds: float = 0.0  # asks that wait for a slot


class VirtualEngine:
    """Answers submits on the clock.

    Args:
        model: times and sizes.
        content: what is answered.
        clock: the clock.
        seed: of the workers' failures.
        version: the weights' version at the start.
    """

    def __init__(
        self, model: EngineModel, content: Content, clock: Clock, seed: int = 0, version: int = 0
    ) -> None:
        self.model, self.content, self.clock, self.version = model, content, clock, version
        self.seed = seed
        self.workers = [Worker(index) for index in range(model.num_workers)]
        self.live: dict[NodeId, Live] = {}
        self.use = EngineUse()
        self._queue: deque[Live] = deque()
        self._free = [(0, index) for index in range(model.num_workers)]  # (load, worker), some outdated
        self._cached: dict[GroupId, dict[tuple[int, str], int]] = {}
        self._num_lives = model.num_workers
        for worker in self.workers:
            self._plan_failure(worker)

    @property
    def num_live(self) -> int:
        return len(self.live)

    # ------------------------------------------------------------ what the driver asks

    def submit(self, request: Request) -> None:
        """Take an ask: it gets a slot of the worker with the least load, or waits for one.

        Raises:
            EngineError: the ask is in work already, or is for no tokens.
        """
        command = request.command
        if command.ask in self.live or command.max_tokens < 1:
            why = "is in work already" if command.ask in self.live else "asks for no tokens"
            raise EngineError(f"submit {command.ask}: it {why}; expected a new ask for at least one token")
        live = Live(request, self.clock.now)
        self.live[command.ask] = live
        self.use.num_requests += 1
        worker = self._least_loaded()
        if worker is None:
            self._queue.append(live)
        else:
            self._seat(worker, live)

    def abort(self, ask: NodeId) -> Sampled:
        """End an ask now and return what it made and had not reported, with stop INTERRUPTED."""
        live = self.live[ask]
        num = live.num_reported if live.worker is None else live.worker.num_made(live, self.clock.now)
        event = self._report(live, num, StopReason.INTERRUPTED)
        self._leave(live)
        return event

    def publish(self, version: int) -> list[Sampled]:
        """New weights are in place: what was made keeps its version, every cache is made again."""
        events = []
        for live in list(self.live.values()):
            worker = live.worker
            if worker is None or live.joined is None:
                continue
            assert live.answer is not None
            num = worker.num_made(live, self.clock.now)
            if num == live.answer.num:
                events.append(self._report(live, num, live.answer.stop))
                self._leave(live)
                continue
            if num > live.num_reported:
                events.append(self._report(live, num, None))
            ask = live.request.command.ask
            worker.joining[ask] = worker.batch.pop(ask)
            live.joined, live.due = None, -1
            self._wake_by(worker, worker.boundary(self.clock.now))
        self._cached.clear()
        self.version = version
        return events

    def retire(self, group: GroupId) -> None:
        """Forget caches that only this group could use."""
        self._cached.pop(group, None)

    def account(self) -> EngineUse:
        """Return the use so far, work in progress included."""
        now = self.clock.now
        use = msgspec.structs.replace(self.use)
        for worker in self.workers:
            use.busy_seconds += worker.busy_seconds
            use.busy_seconds += 0.0 if worker.busy_since is None else now - worker.busy_since
        for live in self.live.values():
            if live.worker is None:
                use.queue_seconds += now - live.since
            else:
                use.slot_seconds += now - live.since
        return use

    # ------------------------------------------------------------ slots

    def _least_loaded(self) -> Worker | None:
        """Return the running worker with the least load, the first of equals; None if all are full."""
        while self._free:
            load, index = self._free[0]
            worker = self.workers[index]
            if worker.is_up and worker.load == load:
                return worker if load < self.model.num_slots else None
            heapq.heappop(self._free)
        return None

    def _note_load(self, worker: Worker) -> None:
        heapq.heappush(self._free, (worker.load, worker.index))
        if len(self._free) > 64 + 8 * len(self.workers):
            self._free = [(worker.load, worker.index) for worker in self.workers if worker.is_up]
            heapq.heapify(self._free)

    def _seat(self, worker: Worker, live: Live) -> None:
        """Give the ask a slot; it joins the batch at the worker's next boundary."""
        now = self.clock.now
        self.use.queue_seconds += now - live.since
        live.worker, live.since = worker, now
        worker.joining[live.request.command.ask] = live
        self._note_load(worker)
        self._wake_by(worker, worker.boundary(now))

    def _fill(self, worker: Worker) -> None:
        while self._queue and worker.load < self.model.num_slots:
            live = self._queue.popleft()
            if self.live.get(live.request.command.ask) is live:
                self._seat(worker, live)

    def _leave(self, live: Live) -> None:
        """Take an ask out of the engine, and give its slot to the next in line."""
        ask, worker = live.request.command.ask, live.worker
        live.due = -1
        del self.live[ask]
        if worker is None:
            self.use.queue_seconds += self.clock.now - live.since
            return
        self.use.slot_seconds += self.clock.now - live.since
        if worker.joining.pop(ask, None) is None:
            del worker.batch[ask]
        self._wake_by(worker, worker.boundary(self.clock.now))
        self._note_load(worker)
        self._fill(worker)

    # ------------------------------------------------------------ a worker's course

    def _wake_by(self, worker: Worker, time: float) -> None:
        if worker.wake_at is not None and worker.wake_at <= time:
            return
        worker.wake_at = time
        worker.wakes += 1
        self.clock.plan(time, self._wake, worker, worker.wakes)

    def _wake(self, worker: Worker, wish: int) -> Sequence[AnyEvent]:
        """At a boundary: report what is due, let sequences join, set the pace of the next steps."""
        if wish != worker.wakes:
            return ()  # a later wish took its place
        now = self.clock.now
        events = [self._report_due(worker, live) for live in worker.take_due(now)]
        if worker.joining:
            self._join(worker)
        worker.wake_at = None  # wishes made meanwhile are met here
        worker.set_busy(bool(worker.batch), now)
        if worker.batch:
            worker.pace = self.model.decode_seconds(len(worker.batch))
            self._wake_by(worker, worker.next_report())
        return events

    def _report_due(self, worker: Worker, live: Live) -> Sampled:
        assert live.answer is not None and live.joined is not None
        num = worker.steps - live.joined
        if num < live.answer.num:
            event = self._report(live, num, None)
            worker.plan_report(live)
            return event
        event = self._report(live, num, live.answer.stop)
        self._leave(live)
        return event

    def _join(self, worker: Worker) -> None:
        num_prefilled = 0
        for ask, live in worker.joining.items():
            live.joined = worker.steps - live.num_reported
            if live.answer is None:
                live.answer = self.content.answer(live.request, self.version)
            else:
                live.answer = self.content.renew(live.answer, live.num_reported, self.version)
            num = self._prefill(worker, live)
            live.prefilled += num
            num_prefilled += num
            worker.batch[ask] = live
            worker.plan_report(live)
        worker.joining.clear()
        self.use.num_prefilled += num_prefilled
        worker.anchor += num_prefilled * self.model.prefill_seconds

    def _prefill(self, worker: Worker, live: Live) -> int:
        """Return how many tokens before the next one the worker holds no cache of, and cache them.

        What a worker has cached of a stream reaches from the root on; two streams share what lies before
        their fork.
        """
        command, path = live.request.command, live.request.path
        cached, life = self._cached.setdefault(command.group, {}), worker.life
        have = [min(cached.get((life, node.stream), 0), node.start + num) for node, num in path]
        num_wanted = command.start + live.num_reported
        root, num_root = path[0]
        cached[life, root.stream] = num_root
        cached[life, live.request.stream] = num_wanted
        return num_wanted - max(have)

    def _report(self, live: Live, num: int, stop: StopReason | None) -> Sampled:
        self.use.num_made += num - live.num_reported
        command, worker = live.request.command, live.worker
        if worker is not None and live.joined is not None:
            self._cached.setdefault(command.group, {})[worker.life, live.request.stream] = command.start + num
        return live.report(num, self.clock.now, self.version, stop)

    # ------------------------------------------------------------ failures

    def _plan_failure(self, worker: Worker) -> None:
        if self.model.failure_seconds is None:
            return
        key = randomness.stream_key(self.seed, "worker", str(worker.index))
        wait = -math.log(share_of(key, worker.num_failures)) * self.model.failure_seconds
        self.clock.plan(self.clock.now + wait, self._fail, worker)

    def _fail(self, worker: Worker) -> Sequence[AnyEvent]:
        now = self.clock.now
        for live in worker.batch.values():
            self.use.num_lost += worker.num_made(live, now) - live.num_reported
        lost = worker.clear(now)
        for live in lost:
            self.use.slot_seconds += now - live.since
            live.due = -1
            del self.live[live.request.command.ask]
        worker.is_up, worker.life = False, self._num_lives
        worker.num_failures += 1
        self._num_lives += 1
        self.use.num_failures += 1
        self.clock.plan(now + self.model.restart_seconds, self._restart, worker)
        asks = tuple(live.request.command.ask for live in lost)
        return (WorkerLost(worker=f"worker-{worker.index}", asks=asks, at=now),)

    def _restart(self, worker: Worker) -> Sequence[AnyEvent]:
        worker.is_up = True
        self._note_load(worker)
        self._fill(worker)
        self._plan_failure(worker)
        return ()
