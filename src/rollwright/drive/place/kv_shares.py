"""Admit sessions by what they will hold in memory, so that a mixture of workloads stays as it is wanted."""

from __future__ import annotations

from dataclasses import dataclass, field

from rollwright.drive.place.cache_aware import CacheAware, _CacheAware
from rollwright.drive.placement import Fleet, Job, Placer, Waiting
from rollwright.errors import ConfigError


@dataclass(frozen=True, slots=True)
class KVShares:
    """Let a new session in only if its class and the fleet have memory for as long as it will stay.

    Each class c of the mixture m has a share of all memory for contexts, share_c ∝ m_c · cost_c, with
    cost_c the mean of (tokens held at the end · turns) of its finished sessions: large and slow ones weigh
    more, so that every class ends sessions in the mixture's proportion. A session is charged the mean
    size of its class from its first turn to its end, waits for tools included. One is let in while
    its class' charge fits its share (another's share too, if nothing of that one waits) and fewer than
    ``cap`` sessions are in. The cap moves: one more for every session that ends in peace, ``cut`` times
    as many once memory ran out and something was put back. Turns of sessions that are in go first, to
    the worker that has their context (`CacheAware`).

    Args:
        mixture: (class, share of the sessions that the trainer wants); the class of an ask is the first
            part of its task's id.
        start: cap at the start, in sessions per worker, > 0.
        cut: factor of the cap when memory ran out, in (0, 1).
        first_guess: tokens that a session is charged before any of its class has ended.
        balance: as in `CacheAware`.

    Raises:
        ConfigError: a mixture that is empty or not positive, or a number outside its range.

    Source: MISA-T (2026). What differs: its control law is not published; this is additive increase,
    multiplicative decrease.
    """

    mixture: tuple[tuple[str, float], ...]
    start: float = 16.0
    cut: float = 0.9
    first_guess: int = 2048
    balance: float = 4096.0

    def __post_init__(self) -> None:
        if not self.mixture or min(share for _, share in self.mixture) <= 0:
            raise ConfigError(
                f"KVShares: mixture = {self.mixture}; expected (class, share > 0) for each class"
            )
        if not (self.start > 0 and 0 < self.cut < 1 and self.first_guess >= 1):
            raise ConfigError(
                f"KVShares: start = {self.start}, cut = {self.cut}, first_guess = {self.first_guess};"
                " expected start > 0, cut in (0, 1), first_guess ≥ 1"
            )

    def make(self) -> Placer:
        return _KVShares(self)


@dataclass(slots=True)
class _Class:
    """What is known of a class of workload."""

    share: float
    size: float  # mean tokens of a session at its end
    cost: float  # mean tokens · turns
    num_ended: int = 0
    charged: float = 0.0
    waiting: Waiting = field(default_factory=Waiting)


@dataclass(slots=True)
class _Session:
    kind: str
    charge: float
    tokens: int = 0
    turns: int = 0


class _KVShares(_CacheAware):
    def __init__(self, cfg: KVShares) -> None:
        super().__init__(CacheAware(cfg.balance))
        self.shares = cfg
        first = float(cfg.first_guess)
        self.classes = {kind: _Class(share, first, first) for kind, share in cfg.mixture}
        self.sessions: dict[str, _Session] = {}
        self.cap: float | None = None
        self.is_calm = True  # nothing was put back since the last session that ended

    def enter(self, job: Job) -> None:
        if job.session in self.sessions:
            super().enter(job)
            return
        if job.kind not in self.classes:
            raise ConfigError(
                f"KVShares: an ask of class {job.kind!r}; expected one of the mixture {self.shares.mixture};"
                " add it there"
            )
        self.classes[job.kind].waiting.push(job, job.priority)

    def take(self, fleet: Fleet) -> tuple[Job, int] | None:
        if self.cap is None:
            self.cap = self.shares.start * len(fleet)
        found = super().take(fleet)
        if found is not None or self.waiting.first() is not None:
            return found
        for kind in self._order():
            one = self.classes[kind]
            job = one.waiting.first()
            if job is None or not self._may_enter(kind, fleet):
                continue
            worker = self.choose(job, fleet)
            if worker is not None:
                one.charged += one.size
                self.sessions[job.session] = _Session(kind, one.size)
                return one.waiting.pop(), worker
        return None

    def _order(self) -> list[str]:
        """Return the classes, those that are furthest below their share first."""
        shares = self.shares_of_memory()
        return sorted(self.classes, key=lambda kind: self.classes[kind].charged / shares[kind])

    def shares_of_memory(self) -> dict[str, float]:
        """Return each class' share of the memory, in proportion to the mixture and to what one costs."""
        weight = {kind: one.share * one.cost for kind, one in self.classes.items()}
        total = sum(weight.values())
        return {kind: value / total for kind, value in weight.items()}

    def _may_enter(self, kind: str, fleet: Fleet) -> bool:
        assert self.cap is not None
        if not self.sessions:
            return True  # at least one at a time, however large
        if len(self.sessions) >= self.cap:
            return False
        one, memory, shares = self.classes[kind], fleet.num_kv_tokens, self.shares_of_memory()
        if memory is None:
            return True
        total = sum(other.charged for other in self.classes.values())
        if total + one.size > memory:
            return False
        waits = [name for name, other in self.classes.items() if other.waiting.first() is not None]
        mine = shares[kind] + sum(
            share for name, share in shares.items() if name not in waits and name != kind
        )
        return one.charged + one.size <= mine * memory

    def leave(self, job: Job, worker: int, num_made: int, is_over: bool) -> None:
        session = self.sessions.get(job.session)
        if session is not None and is_over:
            session.tokens, session.turns = job.num_context + num_made, session.turns + 1
        if not is_over:
            self.is_calm = False
            assert self.cap is not None
            self.cap = max(1.0, min(self.cap, len(self.sessions)) * self.shares.cut)

    def finish(self, session: str) -> None:
        ended = self.sessions.pop(session, None)
        if ended is None:
            return
        one = self.classes[ended.kind]
        one.charged -= ended.charge
        one.num_ended += 1
        rate = max(1 / one.num_ended, 0.02)
        one.size += rate * (ended.tokens - one.size)
        one.cost += rate * (ended.tokens * max(1, ended.turns) - one.cost)
        if self.is_calm and self.cap is not None:
            self.cap += 1
        self.is_calm = True

    def retire(self, group: str) -> None:
        for session in [name for name in self.sessions if name.startswith(f"{group}|")]:
            self.finish(session)
