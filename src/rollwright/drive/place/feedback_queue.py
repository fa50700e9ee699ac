"""Queues that sessions move between by what their tools return: the failing ones go to quick workers."""

from __future__ import annotations

from dataclasses import dataclass

from rollwright.drive.placement import Fleet, Job, Outcome, Placer, Waiting
from rollwright.errors import ConfigError
from rollwright.tree import GroupId


@dataclass(frozen=True, slots=True)
class FeedbackQueue:
    """A queue for each pool of workers; a session starts in the first and moves by its tools' outcomes.

    A session's score is the number of its bad outcomes (an error, nothing, or more than ``long_tokens``)
    minus the good ones, at least 0; it belongs to pool min(score // step, last). What a failing tool says
    is known, what a length predictor says is guessed. A pool with room takes from the others' queues when
    its own is empty, the next ones first, so nothing idles; an ask that was passed over ``patience`` times
    is next, whatever its queue.

    Args:
        pools: names of the workers' pools, from many slow slots to few quick ones.
        step: points between one pool and the next, ≥ 1.
        long_tokens: an observation with more tokens than this counts as bad.
        patience: asks that may overtake one, ≥ 1: no ask waits for ever.

    Raises:
        ConfigError: no pools, or a number below 1.

    Source: C-MLFQ of Libra (2026). What differs: the points of an outcome and the bound on overtaking are
    not published; all outcomes count one point here.
    """

    pools: tuple[str, ...] = ("short", "long")
    step: int = 2
    long_tokens: int = 2048
    patience: int = 256

    def __post_init__(self) -> None:
        if not self.pools:
            raise ConfigError("FeedbackQueue: no pools; give the names of the workers' pools, slowest first")
        for name in ("step", "long_tokens", "patience"):
            if getattr(self, name) < 1:
                raise ConfigError(f"FeedbackQueue: {name} = {getattr(self, name)}; expected at least 1")

    def make(self) -> Placer:
        return _FeedbackQueue(self)


class _FeedbackQueue:
    def __init__(self, cfg: FeedbackQueue) -> None:
        self.cfg = cfg
        self.queues = [Waiting() for _ in cfg.pools]
        self.arrivals = Waiting()  # all of them, the oldest first
        self.score: dict[str, int] = {}
        self.num_taken = 0
        self.entered: dict[str, int] = {}  # by ask: how many had been taken when it came

    def level(self, session: str) -> int:
        """Return the session's pool."""
        return min(self.score.get(session, 0) // self.cfg.step, len(self.cfg.pools) - 1)

    def enter(self, job: Job) -> None:
        self.queues[self.level(job.session)].push(job, job.priority)
        self.arrivals.push(job, 0)
        self.entered[job.ask] = self.num_taken

    def take(self, fleet: Fleet) -> tuple[Job, int] | None:
        oldest = self._oldest()
        if oldest is not None and self.num_taken - self.entered[oldest.ask] >= self.cfg.patience:
            for pool in self.cfg.pools:
                worker = fleet.first_fit(oldest, pool)
                if worker is not None:
                    return self._give(oldest, worker)
            return None
        last = len(self.queues) - 1
        # Each queue to its own pool first; only then may a pool that is left idle take from the others.
        for distance in range(last + 1):
            for level, pool in enumerate(self.cfg.pools):
                for other in dict.fromkeys((level + distance, level - distance)):
                    job = self._first(other) if 0 <= other <= last else None
                    worker = None if job is None else fleet.first_fit(job, pool)
                    if job is not None and worker is not None:
                        return self._give(job, worker)
        return None

    def _first(self, level: int) -> Job | None:
        queue = self.queues[level]
        while (job := queue.first()) is not None and job.ask not in self.entered:
            queue.pop()  # it was taken out of order
        return job

    def _oldest(self) -> Job | None:
        while (job := self.arrivals.first()) is not None and job.ask not in self.entered:
            self.arrivals.pop()
        return job

    def _give(self, job: Job, worker: int) -> tuple[Job, int]:
        del self.entered[job.ask]
        self.num_taken += 1
        return job, worker

    def leave(self, job: Job, worker: int, num_made: int, is_over: bool) -> None:
        pass

    def hear(self, session: str, outcome: Outcome) -> None:
        num = len(outcome.tokens)
        is_bad = outcome.outcome in ("error", "empty") or num == 0 or num > self.cfg.long_tokens
        self.score[session] = max(0, self.score.get(session, 0) + (1 if is_bad else -1))

    def finish(self, session: str) -> None:
        self.score.pop(session, None)

    def retire(self, group: GroupId) -> None:
        pass
