"""Admit sessions by what they will hold in memory, so that a mixture of workloads stays as it is wanted."""

from __future__ import annotations

from dataclasses import dataclass, field

from rollwright.drive.place.cache_aware import CacheAware, _CacheAware
from rollwright.drive.placement import Fleet, Job, Placer, Waiting
from rollwright.errors import ConfigError


@dataclass(frozen=True, slots=True)
class KVShares:
    """Let a new session in only if its class has memory for as long as it will stay.

    A session is charged the mean tokens that sessions of its class hold, from its first turn to its end,
    waits for tools included. Sessions are let in while their charges fit ``room`` times the memory of all
    workers. The room grows by ``gain`` in the time in which all sessions end once, as long as turns find
    at least half of their context cached; it is ``cut`` times as large once memory ran out and something
    was put back.

    Each class c of the mixture m has a share of what is charged, share_c ∝ m_c · cost_c, with cost_c the mean
    of tokens · seconds of its finished sessions: large and slow ones weigh more, so that every class ends
    sessions in the mixture's proportion. The class that is furthest below its share is next; one that would
    be above it waits while another class has someone in line. Turns of sessions that are in go first, to the
    worker that has their context (`CacheAware`).

    Args:
        mixture: (class, share of the sessions that the trainer wants); the class of an ask is the first
            part of its task's id.
        room: share of the memory that may be charged at the start, > 0; what is left is for sessions that
            hold more than the mean.
        gain: growth of the room in one round of sessions, ≥ 0.
        cut: factor of the room when memory ran out, in (0, 1).
        first_guess: tokens that a session is charged before any of its class has ended, ≥ 1.
        balance: as in `CacheAware`.

    Raises:
        ConfigError: a mixture that is empty or not positive, or a number outside its range.

    Source: MISA-T (2026). What differs: its control law is not published; this is additive increase,
    multiplicative decrease.
    """

    mixture: tuple[tuple[str, float], ...]
    room: float = 0.5
    gain: float = 0.05
    cut: float = 0.9
    first_guess: int = 2048
    balance: float = 4096.0

    def __post_init__(self) -> None:
        if not self.mixture or min(share for _, share in self.mixture) <= 0:
            raise ConfigError(
                f"KVShares: mixture = {self.mixture}; expected (class, share > 0) of each class"
            )
        if not (self.room > 0 and self.gain >= 0 and 0 < self.cut < 1 and self.first_guess >= 1):
            raise ConfigError(
                f"KVShares: room = {self.room}, gain = {self.gain}, cut = {self.cut}, first_guess ="
                f" {self.first_guess}; expected room > 0, gain ≥ 0, cut in (0, 1), first_guess ≥ 1"
            )

    def make(self) -> Placer:
        return _KVShares(self)


@dataclass(slots=True)
class _Class:
    """What is known of a class of workload."""

    share: float
    size: float  # mean tokens that a session holds
    cost: float  # mean tokens · seconds
    num_ended: int = 0
    charged: float = 0.0
    waiting: Waiting = field(default_factory=Waiting)


@dataclass(slots=True)
class _Session:
    kind: str
    charge: float
    since: float
    left: float = 0.0
    tokens: int = 0  # at the end of each turn, summed
    turns: int = 0


class _KVShares(_CacheAware):
    def __init__(self, cfg: KVShares) -> None:
        super().__init__(CacheAware(cfg.balance))
        self.shares = cfg
        first = float(cfg.first_guess)
        self.classes = {kind: _Class(share, first, first) for kind, share in cfg.mixture}
        self.sessions: dict[str, _Session] = {}
        self.room = cfg.room
        self.num_placed = 0  # turns since the last cut
        self.is_sound = True  # no turn missed its context since the last session that ended

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
        found = super().take(fleet)
        if found is not None:
            job, worker = found
            if job.turn and 2 * fleet.cached(worker, job) < job.num_context:
                self.is_sound = False  # its context was evicted while it waited
            self.num_placed += 1
            return found
        return None if self.waiting.first() is not None else self._let_in(fleet)

    def _let_in(self, fleet: Fleet) -> tuple[Job, int] | None:
        """Let the first session of the class that is furthest below its share in."""
        shares, memory = self.shares_of_memory(), fleet.num_kv_tokens
        total = sum(one.charged for one in self.classes.values())
        in_line = [kind for kind, one in self.classes.items() if one.waiting.first() is not None]
        for kind in sorted(in_line, key=lambda kind: self.classes[kind].charged / shares[kind]):
            one = self.classes[kind]
            if self.sessions and memory is not None and total + one.size > self.room * memory:
                return None  # a smaller one of another class must not take what this one waits for
            if self.sessions and len(in_line) > 1 and one.charged > shares[kind] * (total + one.size):
                continue
            job = one.waiting.first()
            worker = None if job is None else self.choose(job, fleet)
            if job is not None and worker is not None:
                one.charged += one.size
                self.sessions[job.session] = _Session(kind, one.size, job.since)
                self.num_placed += 1
                return one.waiting.pop(), worker
        return None

    def shares_of_memory(self) -> dict[str, float]:
        """Return each class' share of the memory, in proportion to the mixture and to what one costs."""
        weight = {kind: one.share * one.cost for kind, one in self.classes.items()}
        total = sum(weight.values())
        return {kind: value / total for kind, value in weight.items()}

    def leave(self, job: Job, worker: int, num_made: int, is_over: bool) -> None:
        session = self.sessions.get(job.session)
        if session is not None and is_over:
            session.tokens, session.turns = session.tokens + job.num_context + num_made, session.turns + 1
            session.left = job.left
        # Memory ran out: at most one cut for all sessions that were in at the last one.
        if not is_over and self.num_placed >= len(self.sessions):
            self.room *= self.shares.cut
            self.num_placed = 0

    def finish(self, session: str) -> None:
        ended = self.sessions.pop(session, None)
        if ended is None:
            return
        one = self.classes[ended.kind]
        one.charged -= ended.charge
        one.num_ended += 1
        rate, turns = max(1 / one.num_ended, 0.02), max(1, ended.turns)
        held = ended.tokens / turns
        one.size += rate * (held - one.size)
        # Without a clock a turn counts as a second.
        seconds = ended.left - ended.since if ended.left > ended.since else turns
        one.cost += rate * (held * seconds - one.cost)
        if self.is_sound:
            self.room += self.shares.gain / (1 + len(self.sessions))
        self.is_sound = True

    def retire(self, group: str) -> None:
        for session in [name for name in self.sessions if name.startswith(f"{group}|")]:
            self.finish(session)
