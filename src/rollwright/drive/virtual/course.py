"""The course of modelled workers: who joins a batch, at what cost, who steps back, and what is reported."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from rollwright.drive.placement import Fleet, Job, Placement
from rollwright.drive.virtual.cache import Cache
from rollwright.drive.virtual.clock import Clock
from rollwright.drive.virtual.content import Content
from rollwright.drive.virtual.engine_model import EngineModel
from rollwright.drive.virtual.worker import Live, Worker
from rollwright.events import AnyEvent, Sampled
from rollwright.tree import NodeId, StopReason

WATERMARK = 0.99  # share of a worker's memory up to which new sequences are let in


class EngineUse(msgspec.Struct):
    """What a modelled engine did. Seconds are virtual, summed over workers or sequences."""

    num_requests: int = 0
    num_made: int = 0  # tokens that were reported
    num_lost: int = 0  # tokens that a failing worker had made and not reported
    num_prefilled: int = 0
    num_fetched: int = 0  # tokens that came from another worker's cache
    num_preempted: int = 0  # sequences that were put back because memory was short
    num_failures: int = 0
    busy_seconds: float = 0.0  # workers that decode or prefill
    slot_seconds: float = 0.0  # slots that are taken
    queue_seconds: float = 0.0  # asks that wait for a slot
    lent_seconds: float = 0.0  # workers that train
    peak_kv_share: float = 0.0  # of a worker's memory for contexts, the most that was held


class Course:
    """Workers on a clock.

    Args:
        models: the kinds of workers, in order.
        content: what is answered.
        clock: the clock.
        placement: which ask goes where.
        version: the weights' version at the start.
    """

    def __init__(
        self,
        models: Sequence[EngineModel],
        content: Content,
        clock: Clock,
        placement: Placement,
        version: int = 0,
    ) -> None:
        self.content, self.clock, self.version = content, clock, version
        kinds = [model for model in models for _ in range(model.num_workers)]
        self.workers = [Worker(index, model, version) for index, model in enumerate(kinds)]
        self.live: dict[NodeId, Live] = {}
        self.use = EngineUse()
        self.cache = Cache()
        self.placer = placement.make()
        limits = [model.kv_tokens for model in kinds if model.kv_tokens is not None]
        self.fleet = Fleet(
            [model.num_slots for model in kinds],
            [model.pool for model in kinds],
            self._num_cached,
            self._has_memory if limits else None,
            self._holders,
            sum(limits) if len(limits) == len(kinds) else None,
        )
        self._num_lives = len(kinds)
        self._worker_of = {worker.life: worker for worker in self.workers}
        self._is_dispatching = False

    # ------------------------------------------------------------ what a placement may ask

    def _num_cached(self, worker: int, job: Job) -> int:
        live = self.live[job.ask]
        return self.cache.have(self.workers[worker].life, live.request, live.num_context)

    def _holders(self, job: Job) -> list[int]:
        lives = [life for life in self.cache.lives(job.group) if life in self._worker_of]
        return [self._worker_of[life].index for life in lives]

    def _has_memory(self, index: int, job: Job) -> bool:
        worker, live = self.workers[index], self.live[job.ask]
        limit = worker.model.kv_tokens
        if limit is None:
            return True
        num = live.num_context + worker.load + 1  # and a step of everybody: else it would be put back at once
        if worker.has_group(job.group):
            num -= live.request.path[0][1]
        held = worker.num_held(self.clock.now)
        return held + num <= (limit if not worker.load else WATERMARK * limit)

    # ------------------------------------------------------------ places

    def dispatch_soon(self) -> None:
        """Place what waits once everything of this instant has happened, so that all of it competes."""
        if not self._is_dispatching:
            self._is_dispatching = True
            self.clock.plan(self.clock.now, self._dispatch)

    def _dispatch(self) -> Sequence[AnyEvent]:
        self._is_dispatching = False
        while (found := self.placer.take(self.fleet)) is not None:
            job, index = found
            self._seat(self.workers[index], self.live[job.ask])
        return ()

    def _seat(self, worker: Worker, live: Live) -> None:
        """Give the ask a slot; it joins the batch at the worker's next boundary."""
        now = self.clock.now
        self.use.queue_seconds += now - live.since
        live.worker, live.since = worker, now
        worker.seat(live)
        if worker.model.kv_tokens is not None:  # what it will use must not be evicted before it joins
            group, root = live.request.command.group, live.request.path[0][0]
            self.cache.rouse(worker.life, (group, live.request.stream))
            self.cache.rouse(worker.life, (group, root.stream))
        self.fleet.seat(worker.index)
        self._wake_by(worker, worker.boundary(now))

    def _unseat(self, live: Live, is_over: bool) -> None:
        """Take an ask from its worker; what is cached of it stays."""
        now, worker = self.clock.now, live.worker
        assert worker is not None
        num = live.num_reported
        self.use.slot_seconds += now - live.since
        is_shared = worker.leave(live)
        if worker.model.kv_tokens is not None:
            request = live.request
            group, (root, num_root) = request.command.group, request.path[0]
            self.cache.rest(worker.life, (group, request.stream), live.num_context - num_root)
            if not is_shared:
                self.cache.rest(worker.life, (group, root.stream), num_root)
        live.worker, live.since, live.joined = None, now, None
        self._wake_by(worker, worker.boundary(now))
        self.fleet.free(worker.index)
        live.job.left = now
        self.placer.leave(live.job, worker.index, num, is_over)
        self.dispatch_soon()

    def put_back(self, live: Live) -> list[Sampled]:
        """Let a sequence wait for another place; return what it made and had not reported."""
        worker = live.worker
        assert worker is not None
        num = worker.num_made(live, self.clock.now)
        if live.answer is not None and num == live.answer.num:
            event = self.report(live, num, live.answer.stop)
            self.leave(live)
            return [event]
        events = [self.report(live, num, None)] if num > live.num_reported else []
        self._unseat(live, is_over=False)
        live.job.num_context = live.num_context
        self.placer.enter(live.job)
        return events

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
        now, limit = self.clock.now, worker.model.kv_tokens
        if limit is not None:  # what had to go for the steps since the last wake
            self.cache.shrink(worker.life, max(0, limit - worker.num_held(now)))
        events = [self._report_due(worker, live) for live in worker.take_due(now)]
        if worker.joining and not worker.is_lent:
            self._join(worker)
        num_most = None
        if limit is not None:
            events += self._make_room(worker, limit)
            if worker.batch:
                num_most = max(1, (limit - worker.num_held(now)) // len(worker.batch))
        worker.wake_at = None  # wishes made meanwhile are met here
        worker.set_busy(bool(worker.batch), now)
        if worker.batch:
            worker.pace = worker.model.pace(len(worker.batch), worker.num_read(worker.steps))
            self._wake_by(worker, worker.next_report(num_most))
        return events

    def _report_due(self, worker: Worker, live: Live) -> Sampled:
        assert live.answer is not None and live.joined is not None
        num = worker.steps - live.joined
        if num < live.answer.num:
            event = self.report(live, num, None)
            worker.plan_report(live)
            return event
        event = self.report(live, num, live.answer.stop)
        self.leave(live)
        return event

    def _join(self, worker: Worker) -> None:
        num_prefilled, num_fetched = 0, 0
        fetch = worker.model.fetch_seconds
        for live in worker.joining.values():
            if live.answer is None:
                live.answer = self.content.answer(live.request, worker.version)
            else:
                live.answer = self.content.renew(live.answer, live.num_reported, worker.version)
            missing = live.num_context - self.cache.have(worker.life, live.request, live.num_context)
            elsewhere = 0 if fetch is None else self._best_elsewhere(worker, live)
            num = min(missing, max(0, elsewhere - (live.num_context - missing)))
            num_fetched += num
            live.prefilled += missing - num
            num_prefilled += missing - num
            self.cache.note(worker.life, live.request, live.num_context)
            worker.join(live)
            worker.plan_report(live)
        worker.joining.clear()
        self.use.num_prefilled += num_prefilled
        self.use.num_fetched += num_fetched
        prefill_seconds = num_prefilled * worker.model.prefill_seconds
        worker.arithmetic_seconds += prefill_seconds
        worker.anchor += prefill_seconds + num_fetched * (fetch or 0.0)

    def _best_elsewhere(self, worker: Worker, live: Live) -> int:
        """Return the most tokens of the context that any worker with the same weights holds."""
        lives = self.cache.lives(live.request.command.group)
        same = [life for life in lives if getattr(self._worker_of.get(life), "version", -1) == worker.version]
        return max((self.cache.have(life, live.request, live.num_context) for life in same), default=0)

    def _make_room(self, worker: Worker, limit: int) -> list[Sampled]:
        """Put the youngest back until one more step fits, and evict what is idle."""
        now, events = self.clock.now, []
        while len(worker.batch) > 1 and worker.num_held(now) + len(worker.batch) > limit:
            last = min(worker.batch.values(), key=lambda live: (live.job.priority, -live.job.number))
            events += self.put_back(last)
            self.use.num_preempted += 1
        held = worker.num_held(now)
        self.cache.shrink(worker.life, max(0, limit - held - len(worker.batch)))
        self.use.peak_kv_share = max(self.use.peak_kv_share, held / limit)
        return events

    # ------------------------------------------------------------ reports

    def report(self, live: Live, num: int, stop: StopReason | None) -> Sampled:
        """Return what a sequence made up to ``num`` tokens and had not reported."""
        self.use.num_made += num - live.num_reported
        command, worker = live.request.command, live.worker
        if worker is not None and live.joined is not None:
            worker.arithmetic_seconds += (num - live.num_reported) * worker.model.floor_seconds
            self.cache.note(worker.life, live.request, command.start + num)
        version = self.version if worker is None else worker.version
        return live.report(num, self.clock.now, version, stop)

    def leave(self, live: Live) -> None:
        """Take an ask out of the engine for good."""
        del self.live[live.request.command.ask]
        live.due = -1
        if live.worker is None:
            self.use.queue_seconds += self.clock.now - live.since
            live.job.is_gone = True
            return
        self._unseat(live, is_over=True)

    # ------------------------------------------------------------ caches that end

    def renew_life(self, worker: Worker) -> None:
        """Void a worker's cache."""
        self.cache.end(worker.life)
        del self._worker_of[worker.life]
        worker.life = self._num_lives
        self._worker_of[worker.life] = worker
        self._num_lives += 1
