"""Which waiting ask goes next, and to which worker: policies of the drivers that have several workers.

A placement is a frozen value; `make` gives the placer, which keeps the waiting line and sees every ask
come, leave, and what environments said in between. It decides when and where something is sampled, never
what: noise is a function of the trajectory. Pure: no clock, no I/O, no torch.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from rollwright.tree import GroupId, NodeId


@dataclass(slots=True, eq=False)
class Job:
    """An ask for tokens as a placement sees it.

    Args:
        ask, group: as in the submit.
        session: the trajectory, unique in the run; a dialogue's turns share it.
        kind: the class of workload, the first part of the task's id.
        number: order of arrival; an ask that is put back keeps its own.
        priority: larger goes first.
        num_context: tokens before the first new one.
        max_tokens: tokens that it may add.
        turn: sampled turns of the session before this one.
        since: when it came (seconds).
        left: when it left its worker last (seconds), for drivers with a clock of their own.
        is_gone: it needs no place any more; a waiting line leaves it out.
    """

    ask: NodeId
    group: GroupId
    session: str = ""
    kind: str = ""
    number: int = 0
    priority: int = 0
    num_context: int = 0
    max_tokens: int = 0
    turn: int = 0
    since: float = 0.0
    left: float = 0.0
    is_gone: bool = False


class Outcome(Protocol):
    """What an environment made of a turn (`rollwright.events.Observed`)."""

    @property
    def tokens(self) -> tuple[int, ...]: ...
    @property
    def terminated(self) -> bool: ...
    @property
    def outcome(self) -> str: ...


class Placer(Protocol):
    """Keeps the waiting line of one driver."""

    def enter(self, job: Job) -> None:
        """The job waits from now on."""
        ...

    def take(self, fleet: Fleet) -> tuple[Job, int] | None:
        """Return the next job and its worker, and forget it; None while nothing can be placed."""
        ...

    def leave(self, job: Job, worker: int, num_made: int, is_over: bool) -> None:
        """The job left its worker after ``num_made`` tokens; it was put back if not ``is_over``."""
        ...

    def hear(self, session: str, outcome: Outcome) -> None:
        """An environment answered a turn of the session."""
        ...

    def finish(self, session: str) -> None:
        """The session is over: it goes to its grader."""
        ...

    def retire(self, group: GroupId) -> None:
        """The group is closed; no job of it will come."""
        ...


@runtime_checkable
class Placement(Protocol):
    """A placement policy: a frozen dataclass of plain values."""

    def make(self) -> Placer: ...


class Fleet:
    """The workers: how many asks each holds, which are open, and what they have cached.

    Args:
        num_slots: asks that each worker works on at once.
        pools: the name of each worker's pool; all are one pool without it.
        cached: (worker, job) → tokens of the job's context that the worker holds.
        fits: (worker, job) → whether the worker has memory for it now.
        holders: job → workers that hold something of its group.
        num_kv_tokens: tokens of context that all workers have memory for; None is any number.
    """

    def __init__(
        self,
        num_slots: Sequence[int],
        pools: Sequence[str] | None = None,
        cached: Callable[[int, Job], int] | None = None,
        fits: Callable[[int, Job], bool] | None = None,
        holders: Callable[[Job], Sequence[int]] | None = None,
        num_kv_tokens: int | None = None,
    ) -> None:
        self.num_slots, self.loads = list(num_slots), [0] * len(num_slots)
        self.pools = list(pools) if pools is not None else [""] * len(num_slots)
        self.is_open = [True] * len(num_slots)
        self._cached, self._fits, self._holders = cached, fits, holders
        self.num_kv_tokens = num_kv_tokens
        self._heaps: dict[str, list[tuple[float, int]]] = {}
        for worker in range(len(num_slots)):
            self._note(worker)

    def __len__(self) -> int:
        return len(self.num_slots)

    def cached(self, worker: int, job: Job) -> int:
        """Return how many tokens of the job's context the worker holds."""
        return 0 if self._cached is None else self._cached(worker, job)

    def holders(self, job: Job) -> Sequence[int]:
        """Return the workers that hold something of the job's group."""
        return () if self._holders is None else self._holders(job)

    def fits(self, worker: int, job: Job) -> bool:
        """Whether the worker is open, has a free slot, and memory for the job."""
        if not self.is_open[worker] or self.loads[worker] >= self.num_slots[worker]:
            return False
        return self._fits is None or self._fits(worker, job)

    def least_loaded(self, pool: str = "") -> int | None:
        """Return the open worker with the least load for its slots, the first of equals; None if full."""
        heap = self._heaps.get(pool, [])
        while heap:
            share, worker = heap[0]
            if self.is_open[worker] and share == self.loads[worker] / self.num_slots[worker]:
                return worker if share < 1 else None
            heapq.heappop(heap)
        return None

    def first_fit(self, job: Job, pool: str = "", num_tries: int = 8) -> int | None:
        """Return the least loaded worker that has room for the job, among the ``num_tries`` least loaded."""
        found, seen = None, []
        for _ in range(num_tries if self._fits is not None else 1):
            worker = self.least_loaded(pool)
            if worker is None:
                break
            if self.fits(worker, job):
                found = worker
                break
            seen.append(heapq.heappop(self._heaps[pool]))
        for entry in seen:
            heapq.heappush(self._heaps[pool], entry)
        return found

    def open_workers(self, pool: str | None = None) -> list[int]:
        """Return the open workers, of one pool or of all."""
        return [w for w, is_open in enumerate(self.is_open) if is_open and pool in (None, self.pools[w])]

    def seat(self, worker: int) -> None:
        """The worker took one ask more."""
        self.loads[worker] += 1
        self._note(worker)

    def free(self, worker: int) -> None:
        """The worker has one ask less."""
        self.loads[worker] -= 1
        self._note(worker)

    def set_open(self, worker: int, is_open: bool) -> None:
        """Let a worker take asks, or not; one that is closed keeps those that it has."""
        self.is_open[worker] = is_open
        if is_open:
            self._note(worker)

    def _note(self, worker: int) -> None:
        pool = self.pools[worker]
        heap = self._heaps.setdefault(pool, [])
        heapq.heappush(heap, (self.loads[worker] / self.num_slots[worker], worker))
        if len(heap) > 64 + 8 * len(self.loads):
            heap[:] = [(self.loads[w] / self.num_slots[w], w) for w in self.open_workers(pool)]
            heapq.heapify(heap)


@dataclass(slots=True)
class Waiting:
    """A waiting line, larger keys first, then older jobs."""

    heap: list[tuple[float, int, int, Job]] = field(default_factory=list)
    num_pushed: int = 0

    def push(self, job: Job, key: float) -> None:
        """Put a job in line."""
        heapq.heappush(self.heap, (-key, job.number, self.num_pushed, job))
        self.num_pushed += 1

    def first(self) -> Job | None:
        """Return the first job that still needs a place."""
        while self.heap and self.heap[0][3].is_gone:
            heapq.heappop(self.heap)
        return self.heap[0][3] if self.heap else None

    def pop(self) -> Job:
        """Take the first job out, which `first` has just returned."""
        return heapq.heappop(self.heap)[3]


class OneLine:
    """A placer with one line in order of priority; others derive from it."""

    def __init__(self) -> None:
        self.waiting = Waiting()

    def enter(self, job: Job) -> None:
        self.waiting.push(job, job.priority)

    def take(self, fleet: Fleet) -> tuple[Job, int] | None:
        job = self.waiting.first()
        if job is None:
            return None
        worker = self.choose(job, fleet)
        return None if worker is None else (self.waiting.pop(), worker)

    def choose(self, job: Job, fleet: Fleet) -> int | None:
        """Return the worker for the first in line, None to let it wait."""
        return fleet.first_fit(job)

    def leave(self, job: Job, worker: int, num_made: int, is_over: bool) -> None:
        pass

    def hear(self, session: str, outcome: Outcome) -> None:
        pass

    def finish(self, session: str) -> None:
        pass

    def retire(self, group: GroupId) -> None:
        pass


@dataclass(frozen=True, slots=True)
class LeastLoaded:
    """The largest priority first, then the oldest, to the worker with the least load."""

    def make(self) -> Placer:
        return OneLine()
