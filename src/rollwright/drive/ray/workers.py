"""The rollout workers: who holds which ask, who has which weights, who waits, who is gone."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from ray.exceptions import ObjectLostError

from rollwright.drive.place.group_home import GroupHome
from rollwright.drive.placement import Fleet, Job, Placement
from rollwright.drive.ray.actors import Place, Submission, Worked
from rollwright.drive.ray.calls import (
    FOREVER,
    HOW_TO_GO_ON,
    Calls,
    Events,
    Ref,
    cause_of,
    check_code,
    reason_of,
)
from rollwright.drive.ray.hire import dismiss, hire_worker
from rollwright.drive.ray.member import Held, Worker
from rollwright.drive.ray.recipe import Sampler
from rollwright.drive.ray.settings import CrewSettings, Limits
from rollwright.errors import EngineError, LawBroken
from rollwright.events import Abort, AnyEvent, Failed, Retire, Sampled, Submit, WorkerLost
from rollwright.tree import GroupId, NodeId, StopReason

MAX_WORKERS = 1024  # seats, where the number of workers is left open
_log = logging.getLogger(__name__)


class Workers:
    """The rollout workers of a crew.

    One call for work is out for each worker at most, with all orders that came meanwhile; what finds no
    room waits here. So nothing is queued without a bound: a worker holds ``worker_asks`` asks, and the
    driver no more than the runner has in flight.

    Args:
        make: the maker of each one's engine.
        cfg, limits: how many, how much, how long.
        calls: the driver's calls.
        placement: which ask goes next, and to whom.
        on_stale: called when weights that were published can no longer be had.
    """

    def __init__(
        self,
        make: Callable[[], Sampler],
        cfg: CrewSettings,
        limits: Limits,
        calls: Calls,
        placement: Placement | None = None,
        on_stale: Callable[[], None] = lambda: None,
    ) -> None:
        self.make, self.cfg, self.limits = make, cfg, limits
        self.calls, self.on_stale = calls, on_stale
        self.members: dict[int, Worker] = {}  # by seat
        self.waiting: dict[NodeId, tuple[Job, Submission]] = {}
        self.version = 0
        self.weights: Ref | None = None
        self.num_lost = 0
        self.placer = (placement or GroupHome()).make()
        slots = [cfg.worker_asks] * (cfg.workers or MAX_WORKERS)
        self.fleet = Fleet(slots, cached=self._cached, holders=self._holders)
        for seat in range(len(slots)):
            self.fleet.set_open(seat, False)
        self._num_hired = self._num_placed = 0
        self._num_barren = 0  # losses in a row without an answer of any worker

    @property
    def serving(self) -> list[Worker]:
        """Those that have the current weights."""
        return [worker for worker in self.members.values() if worker.version == self.version]

    @property
    def num_held(self) -> int:
        """Asks that are waiting or with a worker."""
        return len(self.waiting) + sum(len(worker.held) for worker in self.members.values())

    @property
    def num_aborting(self) -> int:
        """Asks whose abort was sent and is not answered."""
        return sum(held.is_aborting for worker in self.members.values() for held in worker.held.values())

    # ------------------------------------------------------------ who is there

    def staff(self, num: int) -> None:
        """Hire until there are ``num``; let go of those beyond it that have not begun yet."""
        free = (seat for seat in range(len(self.fleet)) if seat not in self.members)
        for seat in [next(free) for _ in range(min(num, len(self.fleet)) - len(self.members))]:
            worker = Worker(f"worker-{self._num_hired}", seat, hire_worker(self.cfg))
            self._num_hired += 1
            self.members[seat] = worker
            # It may have to wait for a machine, which may never come: `Crew` has the timer of that.
            self._call(worker, worker.actor.begin.remote(self.make), self._began, FOREVER)
        unplaced = [worker for worker in self.members.values() if worker.place is None]
        for worker in unplaced[: max(0, len(self.members) - num)]:
            self._forget(worker)

    def close(self) -> None:
        """End all of them."""
        for worker in list(self.members.values()):
            self._forget(worker)

    def _began(self, worker: Worker, place: Place) -> Events:
        worker.place = place
        self._send_weights(worker)
        return ()

    def lose(self, worker: Worker, error: Exception) -> Events:
        """Give a worker up: its asks are to be done again by others.

        Raises:
            RollwrightError: it could not be made at all, or none of the last few came to an answer.
        """
        check_code(error, "rollout worker", worker.place is not None)
        why = reason_of(error)
        self.num_lost += 1
        self._num_barren += 1
        _log.warning("%s is lost with %d asks: %s", worker.name, len(worker.held), why)
        asks = tuple(worker.held)
        self._forget(worker)
        if self._num_barren >= self.cfg.losses:
            raise EngineError(
                f"{self._num_barren} rollout workers in a row ended before any of them answered; the last "
                f"one: {why}. {HOW_TO_GO_ON}"
            )
        return (WorkerLost(worker=worker.name, asks=asks),)

    def _forget(self, worker: Worker) -> None:
        for ask in list(worker.held):
            self._release(worker, ask)
        self.fleet.set_open(worker.seat, False)
        self.members.pop(worker.seat, None)
        self.calls.drop(worker.name)
        dismiss(worker.actor)

    # ------------------------------------------------------------ weights

    def publish(self, version: int, weights: Ref) -> None:
        """Send weights to everyone who lacks them. A worker serves once it has said that it has them."""
        self.version, self.weights = version, weights
        for worker in self.members.values():
            if worker.place is not None:
                self.fleet.set_open(worker.seat, worker.version == version)
                self._send_weights(worker)

    def _send_weights(self, worker: Worker) -> None:
        if self.weights is not None and worker.sent != self.version:
            worker.sent = self.version
            # The reference travels, not the value: each machine fetches it once into its shared memory.
            call, sent = worker.actor.publish.remote(self.version, self.weights), self.weights
            failed = partial(self._not_published, worker, sent)
            self.calls.add(
                call, worker.name, partial(self._has_weights, worker), failed, self.limits.engine_s
            )

    def _has_weights(self, worker: Worker, version: int) -> Events:
        worker.version = version
        self.fleet.set_open(worker.seat, version == self.version)
        return ()

    def _not_published(self, worker: Worker, sent: Ref, error: Exception) -> Events:
        if not isinstance(cause_of(error), ObjectLostError):
            return self.lose(worker, error)
        worker.sent = worker.version
        if self.weights is sent:
            self.weights = None  # every machine that had them is gone
            self.on_stale()
        else:
            self._send_weights(worker)  # others found that out before
        return ()

    # ------------------------------------------------------------ what a placement may ask

    def _cached(self, seat: int, job: Job) -> int:
        """Return about how many tokens of the context a worker has read."""
        sessions = self.members[seat].groups.get(job.group, {})
        return min(job.num_context, sessions.get(job.session, min(sessions.values(), default=0)))

    def _holders(self, job: Job) -> list[int]:
        return [seat for seat, worker in self.members.items() if job.group in worker.groups]

    # ------------------------------------------------------------ work

    def submit(self, job: Job, submission: Submission) -> None:
        """Take an ask; `flush` places it."""
        self._num_placed += 1
        job.number = self._num_placed
        self.waiting[job.ask] = (job, submission)
        self.placer.enter(job)

    def abort(self, ask: NodeId) -> Events:
        """Abort an ask; answer at once if no worker has it yet, not at all if it has ended."""
        if ask in self.waiting:
            job, submission = self.waiting.pop(ask)
            job.is_gone = True
            return (_nothing_sampled(submission.command, self.version),)
        for worker in self.members.values():
            if ask in worker.held:
                worker.held[ask].is_aborting = True
                worker.outbox.append(Abort(ask=ask))
        return ()

    def retire(self, group: GroupId) -> None:
        """Tell the workers that had asks of a group that it is closed."""
        self.placer.retire(group)
        for worker in self.members.values():
            if worker.groups.pop(group, None) is not None:
                worker.outbox.append(Retire(group=group))

    def flush(self) -> None:
        """Place what waits, and give work to everyone who has some and is not at it."""
        while self.waiting and (found := self.placer.take(self.fleet)) is not None:
            self._seat(self.members[found[1]], *self.waiting.pop(found[0].ask))
        for worker in self.members.values():
            if not worker.is_busy and worker.place is not None and (worker.outbox or worker.held):
                orders, worker.outbox = worker.outbox, []
                worker.is_busy = True
                self._call(worker, worker.actor.work.remote(orders), self._worked)

    def _seat(self, worker: Worker, job: Job, submission: Submission) -> None:
        if job.ask in worker.held:
            self._release(worker, job.ask)  # an earlier attempt, whose abort goes before
        worker.outbox.append(submission)
        worker.held[job.ask] = Held(submission.command.attempt, job)
        worker.groups.setdefault(job.group, {})[job.session] = job.num_context
        self.fleet.seat(worker.seat)

    def _release(self, worker: Worker, ask: NodeId) -> None:
        held = worker.held.pop(ask)
        self.fleet.free(worker.seat)
        self.placer.leave(held.job, worker.seat, held.num_made, True)

    def _worked(self, worker: Worker, worked: Worked) -> Events:
        worker.is_busy = False
        if worked.answers:
            self._num_barren = 0
        elif worker.held and not worked.num_live and not worker.outbox:
            raise LawBroken(f"{worker.name} has lost {list(worker.held)} without a word")
        for answer in worked.answers:
            self._note(worker, answer)
        return worked.answers

    def _note(self, worker: Worker, answer: AnyEvent) -> None:
        """Keep the account of who holds what."""
        if not isinstance(answer, (Sampled, Failed)):
            return
        held = worker.held.get(answer.ask)
        if held is None or getattr(answer, "attempt", None) not in (None, held.attempt):
            return
        if isinstance(answer, Sampled):
            held.num_made += len(answer.tokens)
        if isinstance(answer, Failed) or answer.stop is not None:
            self._release(worker, answer.ask)

    # ------------------------------------------------------------ calls

    def _call(
        self,
        worker: Worker,
        ref: Ref,
        done: Callable[[Worker, Any], Events],
        seconds: float | None = None,
    ) -> None:
        """Wait for a call, ``engine_s`` seconds unless told otherwise."""
        seconds = self.limits.engine_s if seconds is None else seconds
        self.calls.add(ref, worker.name, partial(done, worker), partial(self.lose, worker), seconds)

    def roster(self) -> Iterator[tuple[str, Place | None, int]]:
        """Yield (name, place, number of asks) of each."""
        for worker in self.members.values():
            yield worker.name, worker.place, len(worker.held)


def _nothing_sampled(command: Submit, version: int) -> Sampled:
    return Sampled(
        ask=command.ask,
        tokens=(),
        logprobs=(),
        policy=command.policy,
        version=version,
        stop=StopReason.INTERRUPTED,
        attempt=command.attempt,
    )
