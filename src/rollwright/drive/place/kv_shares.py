"""Admit sessions by what they will hold in memory, so that a mixture of workloads stays as it is wanted."""

from __future__ import annotations

from dataclasses import dataclass, field

from rollwright.drive.place.cache_aware import CacheAware, _CacheAware
from rollwright.drive.placement import Fleet, Job, Placer, Waiting
from rollwright.errors import ConfigError


@dataclass(frozen=True, slots=True)
class KVShares:
    """Let a new session in only if its class has memory for as long as it will stay.

    Each class c of the mixture m has a share of what the sessions that are in hold,
    share_c ∝ m_c · cost_c, with cost_c the mean of (tokens held · turns) of its finished sessions: large
    and slow ones weigh more, so that every class ends sessions in the mixture's proportion. A session is
    charged the mean tokens that its class holds, from its first turn to its end, waits for tools included.
    The class that is furthest below its share is next; one that would be above it waits while another
    class has someone in line. At most ``cap`` sessions are in: one more whenever ``patience`` sessions
    ended in a row while every turn found half of its context or more, ``cut`` times as many once memory
    ran out and something was put back. Turns of sessions that are in go first, to the worker that has
    their context (`CacheAware`).

    Args:
        mixture: (class, share of the sessions that the trainer wants); the class of an ask is the first
            part of its task's id.
        start: cap at the start, in sessions per worker, > 0.
        cut: factor of the cap when memory ran out, in (0, 1).
        patience: sessions that end in a row, every context found, before the cap rises by one, ≥ 1.
        first_guess: tokens that a session is charged before any of its class has ended, ≥ 1.
        balance: as in `CacheAware`.

    Raises:
        ConfigError: a mixture that is empty or not positive, or a number outside its range.

    Source: MISA-T (2026). What differs: its control law is not published; this is additive increase,
    multiplicative decrease.
    """

    mixture: tuple[tuple[str, float], ...]
    start: float = 16.0
    cut: float = 0.9
    patience: int = 4
    first_guess: int = 2048
    balance: float = 4096.0

    def __post_init__(self) -> None:
        if not self.mixture or min(share for _, share in self.mixture) <= 0:
            raise ConfigError(
                f"KVShares: mixture = {self.mixture}; expected (class, share > 0) of each class"
            )
        if not (self.start > 0 and 0 < self.cut < 1 and self.first_guess >= 1 and self.patience >= 1):
            raise ConfigError(
                f"KVShares: start = {self.start}, cut = {self.cut}, first_guess = {self.first_guess},"
                f" patience = {self.patience}; expected start > 0, cut in (0, 1), the others ≥ 1"
            )

    def make(self) -> Placer:
        return _KVShares(self)


@dataclass(slots=True)
class _Class:
    """What is known of a class of workload."""

    share: float
    size: float  # mean tokens that a session holds
    cost: float  # mean tokens · turns
    num_ended: int = 0
    charged: float = 0.0
    waiting: Waiting = field(default_factory=Waiting)


@dataclass(slots=True)
class _Session:
    kind: str
    charge: float
    tokens: int = 0  # at the end of each turn, summed
    turns: int = 0


class _KVShares(_CacheAware):
    def __init__(self, cfg: KVShares) -> None:
        super().__init__(CacheAware(cfg.balance))
        self.shares = cfg
        first = float(cfg.first_guess)
        self.classes = {kind: _Class(share, first, first) for kind, share in cfg.mixture}
        self.sessions: dict[str, _Session] = {}
        self.cap: float | None = None
        self.num_placed = 0  # since the last cut
        self.num_calm = 0  # sessions that ended since the cap last moved

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
        if found is not None:
            job, worker = found
            if job.turn and 2 * fleet.cached(worker, job) < job.num_context:
                self.num_calm = 0  # its context was evicted while it waited: no more sessions
            self.num_placed += 1
            return found
        if self.waiting.first() is not None or len(self.sessions) >= self.cap:
            return None
        return self._let_in(fleet)

    def _let_in(self, fleet: Fleet) -> tuple[Job, int] | None:
        """Let the first session of the class that is furthest below its share in."""
        shares = self.shares_of_memory()
        in_line = [kind for kind, one in self.classes.items() if one.waiting.first() is not None]
        for kind in sorted(in_line, key=lambda kind: self.classes[kind].charged / shares[kind]):
            one = self.classes[kind]
            total = sum(other.charged for other in self.classes.values()) + one.size
            if self.sessions and len(in_line) > 1 and one.charged > shares[kind] * total:
                continue
            job = one.waiting.first()
            worker = None if job is None else self.choose(job, fleet)
            if job is not None and worker is not None:
                one.charged += one.size
                self.sessions[job.session] = _Session(kind, one.size)
                self.num_placed += 1
                return one.waiting.pop(), worker
        return None

    def shares_of_memory(self) -> dict[str, float]:
        """Return each class' share of the memory, in proportion to the mixture and to what one costs."""
        weight = {kind: one.share * one.cost for kind, one in self.classes.items()}
        total = sum(weight.values())
        return {kind: value / total for kind, value in weight.items()}

    def _cut(self) -> None:
        """Lower the cap, at most once for all sessions that were in at the last cut."""
        if self.num_placed < len(self.sessions):
            return
        assert self.cap is not None
        self.cap = max(1.0, min(self.cap, len(self.sessions)) * self.shares.cut)
        self.num_placed = self.num_calm = 0

    def leave(self, job: Job, worker: int, num_made: int, is_over: bool) -> None:
        session = self.sessions.get(job.session)
        if session is not None and is_over:
            session.tokens, session.turns = session.tokens + job.num_context + num_made, session.turns + 1
        if not is_over:
            self._cut()

    def finish(self, session: str) -> None:
        ended = self.sessions.pop(session, None)
        if ended is None:
            return
        one = self.classes[ended.kind]
        one.charged -= ended.charge
        one.num_ended += 1
        rate = max(1 / one.num_ended, 0.02)
        one.size += rate * (ended.tokens / max(1, ended.turns) - one.size)
        one.cost += rate * (ended.tokens - one.cost)
        self.num_calm += 1
        if self.num_calm >= self.shares.patience and self.cap is not None:
            self.cap, self.num_calm = self.cap + 1, 0

    def retire(self, group: str) -> None:
        for session in [name for name in self.sessions if name.startswith(f"{group}|")]:
            self.finish(session)
