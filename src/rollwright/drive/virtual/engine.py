"""A modelled engine on a virtual clock: submits, aborts, new weights, failures, and workers that are lent."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from rollwright import rng as randomness
from rollwright.drive.placement import Job, LeastLoaded, Outcome, Placement
from rollwright.drive.virtual.clock import Clock
from rollwright.drive.virtual.content import Content, Request
from rollwright.drive.virtual.course import Course, EngineUse
from rollwright.drive.virtual.distributions import share_of
from rollwright.drive.virtual.engine_model import EngineModel
from rollwright.drive.virtual.worker import Live, Worker
from rollwright.errors import EngineError
from rollwright.events import AnyEvent, Sampled, WorkerLost
from rollwright.tree import GroupId, NodeId, StopReason


class VirtualEngine(Course):
    """Answers submits on the clock.

    Args:
        model: times and sizes.
        content: what is answered.
        clock: the clock.
        seed: of the workers' failures.
        version: the weights' version at the start.
        placement: which ask goes where.
        others: workers of other kinds.
    """

    def __init__(
        self,
        model: EngineModel,
        content: Content,
        clock: Clock,
        seed: int = 0,
        version: int = 0,
        placement: Placement | None = None,
        others: Sequence[EngineModel] = (),
    ) -> None:
        super().__init__((model, *others), content, clock, placement or LeastLoaded(), version)
        self.model, self.seed = model, seed
        self._lent_since: dict[int, float] = {}
        limits = [kind.kv_tokens for kind in (model, *others)]
        self._kv_tokens = None if None in limits else max(limit for limit in limits if limit is not None)
        for worker in self.workers:
            self._plan_failure(worker)

    @property
    def num_live(self) -> int:
        return len(self.live)

    # ------------------------------------------------------------ what the driver asks

    def submit(self, request: Request) -> None:
        """Take an ask; the placement gives it a worker, or lets it wait for one.

        Raises:
            EngineError: the ask is in work already, is for no tokens, or can never fit into memory.
        """
        command = request.command
        if command.ask in self.live or command.max_tokens < 1:
            why = "is in work already" if command.ask in self.live else "asks for no tokens"
            raise EngineError(f"submit {command.ask}: it {why}; expected a new ask for at least one token")
        most = command.start + command.max_tokens
        if self._kv_tokens is not None and most > self._kv_tokens:
            raise EngineError(
                f"submit {command.ask}: it may grow to {most} tokens, the largest worker has memory for"
                f" {self._kv_tokens}; give the engine more kv_tokens, or lower context or max_tokens"
            )
        live = Live(request, self._job(request), self.clock.now)
        self.live[command.ask] = live
        self.use.num_requests += 1
        self.placer.enter(live.job)
        self.dispatch_soon()

    def _job(self, request: Request) -> Job:
        command = request.command
        return Job(
            ask=command.ask,
            group=command.group,
            session=f"{command.group}|{request.stream}",
            kind=command.group.partition("/")[0],
            number=self.use.num_requests,
            priority=command.priority,
            num_context=command.start,
            max_tokens=command.max_tokens,
            turn=request.turn,
            since=self.clock.now,
        )

    def abort(self, ask: NodeId) -> Sampled:
        """End an ask now and return what it made and had not reported, with stop INTERRUPTED."""
        live = self.live[ask]
        num = live.num_reported if live.worker is None else live.worker.num_made(live, self.clock.now)
        event = self.report(live, num, StopReason.INTERRUPTED)
        self.leave(live)
        return event

    def hear(self, group: GroupId, stream: str, outcome: Outcome) -> None:
        """Tell the placement what an environment answered."""
        self.placer.hear(f"{group}|{stream}", outcome)
        self.dispatch_soon()

    def finish(self, group: GroupId, stream: str) -> None:
        """Tell the placement that a trajectory goes to its grader."""
        self.placer.finish(f"{group}|{stream}")
        self.dispatch_soon()

    def retire(self, group: GroupId) -> None:
        """Forget caches that only this group could use."""
        self.cache.retire(group)
        self.placer.retire(group)

    def account(self) -> EngineUse:
        """Return the use so far, work in progress included."""
        now = self.clock.now
        use = msgspec.structs.replace(self.use)
        for worker in self.workers:
            use.busy_seconds += worker.busy_seconds
            use.busy_seconds += 0.0 if worker.busy_since is None else now - worker.busy_since
        use.lent_seconds += sum(now - since for since in self._lent_since.values())
        for live in self.live.values():
            if live.worker is None:
                use.queue_seconds += now - live.since
            else:
                use.slot_seconds += now - live.since
        return use

    def arithmetic_seconds(self) -> float:
        """Return what all workers' arithmetic took so far, by the roofline: products of tokens that were
        reported or prefilled. The rest of their time it waited for memory, or for work."""
        return sum(worker.arithmetic_seconds for worker in self.workers)

    # ------------------------------------------------------------ new weights

    def publish(self, version: int) -> list[Sampled]:
        """New weights are made: they are in place at once, or arrive at each worker in its turn."""
        self.version = version
        events: list[Sampled] = []
        if all(worker.model.broadcast is None for worker in self.workers):
            self.cache.clear()
        for place, worker in enumerate(self.workers):
            broadcast = worker.model.broadcast
            if broadcast is None:
                events += self._renew(worker, version)
            else:
                wait = broadcast.arrives_after(place)
                self.clock.plan(self.clock.now + wait, self._arrive, worker, version)
        return events

    def _arrive(self, worker: Worker, version: int) -> Sequence[AnyEvent]:
        return self._renew(worker, version) if worker.is_up and version > worker.version else ()

    def _renew(self, worker: Worker, version: int) -> list[Sampled]:
        """Put new weights in place: what was made keeps its version, every cache is made again."""
        events = []
        for live in list(worker.batch.values()):
            assert live.answer is not None
            num = worker.num_made(live, self.clock.now)
            if num == live.answer.num:
                events.append(self.report(live, num, live.answer.stop))
                self.leave(live)
                continue
            if num > live.num_reported:
                events.append(self.report(live, num, None))
            worker.step_aside(live)
            self._wake_by(worker, worker.boundary(self.clock.now))
        if worker.version != version:
            self.renew_life(worker)
        worker.version = version
        return events

    # ------------------------------------------------------------ failures

    def _plan_failure(self, worker: Worker) -> None:
        if worker.model.failure_seconds is None:
            return
        key = randomness.stream_key(self.seed, "worker", str(worker.index))
        wait = -math.log(share_of(key, worker.num_failures)) * worker.model.failure_seconds
        self.clock.plan(self.clock.now + wait, self._fail, worker)

    def _fail(self, worker: Worker) -> Sequence[AnyEvent]:
        now = self.clock.now
        for live in worker.batch.values():
            self.use.num_lost += worker.num_made(live, now) - live.num_reported
        lost = worker.clear(now)
        self.fleet.set_open(worker.index, False)
        for live in lost:
            self.use.slot_seconds += now - live.since
            live.due = -1
            self.fleet.free(worker.index)
            self.placer.leave(live.job, worker.index, live.num_reported, True)
            del self.live[live.request.command.ask]
        worker.is_up = False
        self.renew_life(worker)
        worker.num_failures += 1
        self.use.num_failures += 1
        self.clock.plan(now + worker.model.restart_seconds, self._restart, worker)
        asks = tuple(live.request.command.ask for live in lost)
        return (WorkerLost(worker=f"worker-{worker.index}", asks=asks, at=now),)

    def _restart(self, worker: Worker) -> Sequence[AnyEvent]:
        """A worker is back, with the newest weights: it may not serve before it has them."""
        worker.is_up, worker.version = True, self.version
        if not worker.is_lent:
            self.fleet.set_open(worker.index, True)
        self.dispatch_soon()
        self._plan_failure(worker)
        return ()

    # ------------------------------------------------------------ workers that train

    def lend(self, num: int) -> list[Sampled]:
        """Have the last ``num`` workers of the first kind train, and all others decode.

        What a lent worker decoded waits for another place; nothing of it is lost.
        """
        events: list[Sampled] = []
        first = self.workers[: self.model.num_workers]
        for worker in first:
            is_lent = worker.index >= len(first) - num
            if is_lent == worker.is_lent:
                continue
            worker.is_lent = is_lent
            if is_lent:
                self._lent_since[worker.index] = self.clock.now
                self.fleet.set_open(worker.index, False)
                for live in [*worker.batch.values(), *worker.joining.values()]:
                    events += self.put_back(live)
            else:
                self.use.lent_seconds += self.clock.now - self._lent_since.pop(worker.index)
                worker.version = self.version
                self.renew_life(worker)
                self.fleet.set_open(worker.index, worker.is_up)
        self.dispatch_soon()
        return events
