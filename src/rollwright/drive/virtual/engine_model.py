"""What a simulation assumes of the engines. docs/simulator.md has the equations."""

from __future__ import annotations

from dataclasses import dataclass

from rollwright.drive.virtual.distributions import check
from rollwright.drive.virtual.pace import Pace
from rollwright.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Drafts:
    """Speculative decoding, as a mean: each step checks ``num`` drafted tokens of every sequence.

    A step then gives (1 − accept^(num + 1)) / (1 − accept) tokens of each sequence on average, and costs
    as much arithmetic as num + 1 sequences.

    Args:
        num: drafted tokens in each step, ≥ 1.
        accept: the probability that a drafted token is right, given that those before it were, in [0, 1).
        max_live: a worker with more live sequences than this does without.
    """

    num: int
    accept: float
    max_live: int

    def __post_init__(self) -> None:
        check(self, "num", self.num, self.num >= 1, "≥ 1")
        check(self, "accept", self.accept, 0 <= self.accept < 1, "in [0, 1)")
        check(self, "max_live", self.max_live, self.max_live >= 1, "≥ 1")

    @property
    def tokens_per_step(self) -> float:
        return (1 - self.accept ** (self.num + 1)) / (1 - self.accept)


@dataclass(frozen=True, slots=True)
class Broadcast:
    """How new weights reach the workers, in order of their number.

    A chain passes chunks on from worker to worker: worker k (from 1) has them after
    k · latency + (1 + (k − 1) / chunks) · copy seconds. A star sends them one after the other:
    k · copy + latency.

    Args:
        copy_seconds: bytes of the weights over the bandwidth of one link.
        latency_seconds: of one hop.
        kind: ``"chain"``, ``"star"``, or ``"parallel"`` (each has a link of its own).
        chunks: pieces that a chain passes on, ≥ 1.
    """

    copy_seconds: float
    latency_seconds: float = 0.0
    kind: str = "chain"
    chunks: int = 16

    def __post_init__(self) -> None:
        check(self, "copy_seconds", self.copy_seconds, self.copy_seconds >= 0, "≥ 0")
        check(self, "latency_seconds", self.latency_seconds, self.latency_seconds >= 0, "≥ 0")
        check(self, "chunks", self.chunks, self.chunks >= 1, "≥ 1")
        if self.kind not in ("chain", "star", "parallel"):
            raise ConfigError(f"Broadcast: kind = {self.kind!r}; expected chain, star or parallel")

    def arrives_after(self, place: int) -> float:
        """Return the seconds until worker number ``place`` (from 0) has the weights, whole."""
        if self.kind == "chain":
            return (place + 1) * self.latency_seconds + (1 + place / self.chunks) * self.copy_seconds
        copies = place + 1 if self.kind == "star" else 1
        return copies * self.copy_seconds + self.latency_seconds


@dataclass(frozen=True, slots=True)
class EngineModel:
    """Decode workers with continuous batching.

    A decode step of a worker with b live sequences, whose contexts have K tokens together, takes
    max(step_seconds + sequence_seconds · b + kv_seconds · K, floor_seconds · b); before it, sequences that
    join cost ``prefill_seconds`` for each token of their prefix that is not cached.

    Args:
        num_workers: engines that decode side by side.
        num_slots: sequences that one worker decodes at once; more wait as the placement says.
        step_seconds: seconds of a decode step that do not depend on the batch: the weights are read.
        sequence_seconds: seconds that each live sequence adds to a decode step.
        kv_seconds: seconds that each token of context adds: keys and values are read.
        floor_seconds: seconds of arithmetic for each live sequence; a step takes at least their sum.
        prefill_seconds: seconds per prefilled token.
        fetch_seconds: seconds per token that comes from another worker's cache; None is never: what the
            worker lacks is prefilled.
        kv_tokens: tokens of context that a worker has memory for; None is any number. What nothing live
            uses is kept while there is room, the least recently used goes first; if the live ones need
            more, the youngest is put back into the waiting line and prefills again.
        drafts: speculative decoding; None is none.
        failure_seconds: mean seconds until a running worker fails (exponential); None is never.
        restart_seconds: seconds until a failed worker takes work again.
        broadcast: how new weights arrive; None is at once.
        pool: a name for placements that tell workers apart.
        price: of one worker, per hour.
    """

    num_workers: int = 8
    num_slots: int = 64
    step_seconds: float = 0.02
    sequence_seconds: float = 0.0002
    prefill_seconds: float = 0.00005
    failure_seconds: float | None = None
    restart_seconds: float = 60.0
    kv_seconds: float = 0.0
    floor_seconds: float = 0.0
    fetch_seconds: float | None = None
    kv_tokens: int | None = None
    drafts: Drafts | None = None
    broadcast: Broadcast | None = None
    pool: str = ""
    price: float = 0.0

    def __post_init__(self) -> None:
        for name in ("num_workers", "num_slots"):
            check(self, name, getattr(self, name), getattr(self, name) >= 1, "≥ 1")
        at_least_0 = ("sequence_seconds", "prefill_seconds", "restart_seconds", "kv_seconds", "floor_seconds")
        for name in (*at_least_0, "price"):
            check(self, name, getattr(self, name), getattr(self, name) >= 0, "≥ 0")
        # A step must take time: with none of it nothing would order the tokens.
        check(self, "step_seconds", self.step_seconds, self.step_seconds > 0, "> 0")
        if self.failure_seconds is not None:
            check(self, "failure_seconds", self.failure_seconds, self.failure_seconds > 0, "> 0")
        if self.fetch_seconds is not None:
            check(self, "fetch_seconds", self.fetch_seconds, self.fetch_seconds >= 0, "≥ 0, or None")
        if self.kv_tokens is not None:
            check(self, "kv_tokens", self.kv_tokens, self.kv_tokens >= 1, "≥ 1, or None")

    def pace(self, num_live: int, num_context: int = 0) -> Pace:
        """Return how long the next tokens of ``num_live`` sequences with ``num_context`` tokens take."""
        first = self.step_seconds + self.sequence_seconds * num_live + self.kv_seconds * num_context
        slope, floor = self.kv_seconds * num_live, self.floor_seconds * num_live
        if self.drafts is None or num_live > self.drafts.max_live:
            return Pace(first, slope, floor)
        made = self.drafts.tokens_per_step
        return Pace(first / made, slope / made, floor * (self.drafts.num + 1) / made)

    def decode_seconds(self, num_live: int, num_context: int = 0) -> float:
        """Return the seconds of one decode step."""
        return self.pace(num_live, num_context).per_step(0)
