"""The rollout workers: who holds which ask, who has which weights, who waits, who is gone."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import ray
from ray.exceptions import ObjectLostError

from rollwright.drive.ray.actors import Order, Place, Submission, Worked
from rollwright.drive.ray.calls import FOREVER, HOW_TO_GO_ON, Calls, Events, cause_of, check_code, reason_of
from rollwright.drive.ray.hire import Actor, dismiss, hire_worker
from rollwright.drive.ray.placement import GroupHomes, Placement
from rollwright.drive.ray.recipe import Sampler
from rollwright.drive.ray.settings import CrewSettings
from rollwright.errors import EngineError, LawBroken
from rollwright.events import Abort, Failed, Retire, Sampled, Submit, WorkerLost
from rollwright.tree import GroupId, NodeId, StopReason

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Worker:
    """What the driver knows of one rollout worker."""

    name: str
    actor: Actor
    place: Place | None = None  # None until its engine is made
    sent: int | None = None  # version of the weights that are on their way to it, or there
    version: int | None = None  # of the weights that it has said it has
    is_busy: bool = False  # a call for work is out
    outbox: list[Order] = field(default_factory=list)
    held: dict[NodeId, int] = field(default_factory=dict)  # ask -> attempt
    groups: set[GroupId] = field(default_factory=set)


class Workers:
    """The rollout workers of a crew.

    One call for work is out for each worker at most, with all orders that came meanwhile; what finds no
    room waits here, first by priority, then in order. So nothing is queued without a bound: a worker
    holds ``worker_asks`` asks, and the driver no more than the runner has in flight.

    Args:
        make: the maker of each one's engine.
        cfg: limits.
        calls: the driver's calls.
        placement: who takes an ask.
        on_stale: called when weights that were published can no longer be had.
    """

    def __init__(
        self,
        make: Callable[[], Sampler],
        cfg: CrewSettings,
        calls: Calls,
        placement: Placement | None = None,
        on_stale: Callable[[], None] = lambda: None,
    ) -> None:
        self.make, self.cfg, self.calls, self.on_stale = make, cfg, calls, on_stale
        self.placement = placement or GroupHomes()
        self.members: dict[str, Worker] = {}
        self.waiting: list[Submission] = []
        self.version = 0
        self.weights: ray.ObjectRef | None = None
        self.num_lost = 0
        self._num_hired = 0
        self._num_barren = 0  # losses in a row without an answer of any worker

    @property
    def serving(self) -> list[Worker]:
        """Those that have the current weights."""
        return [worker for worker in self.members.values() if worker.version == self.version]

    @property
    def num_held(self) -> int:
        """Asks that are waiting or with a worker."""
        return len(self.waiting) + sum(len(worker.held) for worker in self.members.values())

    # ------------------------------------------------------------ who is there

    def staff(self, num: int) -> None:
        """Hire until there are ``num``; let go of those beyond it that have not begun yet."""
        while len(self.members) < num:
            name = f"worker-{self._num_hired}"
            self._num_hired += 1
            worker = self.members[name] = Worker(name, hire_worker(self.cfg))
            self._call(
                worker, worker.actor.begin.remote(self.make), self._began, FOREVER
            )  # it may wait for a machine
        for worker in [w for w in self.members.values() if w.place is None][: len(self.members) - num]:
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
        self._forget(worker)
        if self._num_barren >= self.cfg.losses:
            raise EngineError(
                f"{self._num_barren} rollout workers in a row ended before any of them answered; the last "
                f"one: {why}. {HOW_TO_GO_ON}"
            )
        return (WorkerLost(worker=worker.name, asks=tuple(worker.held)),)

    def _forget(self, worker: Worker) -> None:
        self.members.pop(worker.name, None)
        self.calls.drop(worker.name)
        dismiss(worker.actor)

    # ------------------------------------------------------------ weights

    def publish(self, version: int, weights: ray.ObjectRef) -> None:
        """Send weights to everyone who lacks them. A worker serves once it has said that it has them."""
        self.version, self.weights = version, weights
        for worker in self.members.values():
            if worker.place is not None:
                self._send_weights(worker)

    def _send_weights(self, worker: Worker) -> None:
        if self.weights is not None and worker.sent != self.version:
            worker.sent = self.version
            # The reference travels, not the value: each machine fetches it once into its shared memory.
            call = worker.actor.publish.remote(self.version, self.weights)
            self._call(worker, call, self._has_weights)

    def _has_weights(self, worker: Worker, version: int) -> Events:
        worker.version = version
        return ()

    # ------------------------------------------------------------ work

    def submit(self, submission: Submission) -> None:
        """Take an ask; `flush` places it."""
        self.waiting.append(submission)

    def abort(self, ask: NodeId) -> Events:
        """Abort an ask; answer at once if no worker has it yet, not at all if it has ended."""
        waits = [item for item in self.waiting if item.command.ask == ask]
        if waits:
            self.waiting = [item for item in self.waiting if item.command.ask != ask]
            return [_nothing_sampled(item.command, self.version) for item in waits]
        for worker in self.members.values():
            if ask in worker.held:
                worker.outbox.append(Abort(ask=ask))
        return ()

    def retire(self, group: GroupId) -> None:
        """Tell the workers that had asks of a group that it is closed."""
        self.placement.retire(group)
        for worker in self.members.values():
            if group in worker.groups:
                worker.groups.discard(group)
                worker.outbox.append(Retire(group=group))

    def flush(self) -> None:
        """Place what waits, and give work to everyone who has some and is not at it."""
        self._place()
        for worker in self.members.values():
            if not worker.is_busy and worker.place is not None and (worker.outbox or worker.held):
                orders, worker.outbox = worker.outbox, []
                worker.is_busy = True
                self._call(worker, worker.actor.work.remote(orders), self._worked)

    def _place(self) -> None:
        loads = {worker.name: len(worker.held) for worker in self.serving}
        if not self.waiting or not loads:
            return
        kept: list[Submission] = []
        for item in sorted(self.waiting, key=lambda item: -item.command.priority):  # stable: else in order
            command = item.command
            name = self.placement.place(command.group, loads, self.cfg.worker_asks)
            if name is None:
                kept.append(item)
                continue
            worker = self.members[name]
            worker.outbox.append(item)
            worker.held[command.ask] = command.attempt
            worker.groups.add(command.group)
            loads[name] += 1
        self.waiting = kept

    def _worked(self, worker: Worker, worked: Worked) -> Events:
        worker.is_busy = False
        if worked.answers:
            self._num_barren = 0
        elif worker.held and not worked.num_live and not worker.outbox:
            raise LawBroken(f"{worker.name} has lost {list(worker.held)} without a word")
        for answer in worked.answers:
            if isinstance(answer, Failed) or (isinstance(answer, Sampled) and answer.stop is not None):
                attempt = getattr(answer, "attempt", None)
                if attempt is None or worker.held.get(answer.ask) == attempt:
                    worker.held.pop(answer.ask, None)
        return worked.answers

    # ------------------------------------------------------------ calls

    def _call(
        self,
        worker: Worker,
        ref: ray.ObjectRef,
        done: Callable[[Worker, Any], Events],
        seconds: float | None = None,
    ) -> None:
        """Wait for a call, ``work_s`` seconds unless told otherwise."""
        self.calls.add(
            ref,
            worker.name,
            partial(done, worker),
            partial(self._failed, worker),
            self.cfg.work_s if seconds is None else seconds,
        )

    def _failed(self, worker: Worker, error: Exception) -> Events:
        if isinstance(cause_of(error), ObjectLostError):
            # Of what is sent, only weights can be lost: the machines that had them are gone.
            worker.sent, self.weights = worker.version, None
            self.on_stale()
            return ()
        return self.lose(worker, error)

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
