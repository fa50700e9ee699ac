"""Place each turn where most of its context is cached, as far as load allows; long trajectories first."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rollwright.drive.placement import Fleet, Job, OneLine, Placer
from rollwright.errors import ConfigError


@dataclass(frozen=True, slots=True)
class CacheAware:
    """Choose the worker of least cost = tokens not cached + balance · (load / slots).

    Compared are the workers that hold something of the ask's group and the least loaded one. Of what
    waits, the largest priority goes first, then the trajectory that has come furthest: it ends last.

    Args:
        balance: tokens of prefill that the difference between an idle and a full worker is worth, ≥ 0;
            0 looks at the cache alone, infinity at the load alone.
        longest_first: order by tokens so far; False is first come, first served.

    Raises:
        ConfigError: a negative balance.

    Source: WAR (2026), its scheduler for high load; for low load see `rollwright.drive.virtual.Drafts`.
    What differs: the weights of the three criteria are not published; here they have one unit, tokens.
    """

    balance: float = 4096.0
    longest_first: bool = True

    def __post_init__(self) -> None:
        if not self.balance >= 0:
            raise ConfigError(f"CacheAware: balance = {self.balance}; expected at least 0 tokens")

    def make(self) -> Placer:
        return _CacheAware(self)


class _CacheAware(OneLine):
    def __init__(self, cfg: CacheAware) -> None:
        super().__init__()
        self.cfg = cfg

    def enter(self, job: Job) -> None:
        # Contexts are below 2^40 tokens, so the priority decides first.
        self.waiting.push(job, job.priority * 2.0**40 + (job.num_context if self.cfg.longest_first else 0))

    def choose(self, job: Job, fleet: Fleet) -> int | None:
        best, least = fleet.first_fit(job), math.inf
        if best is None or math.isinf(self.cfg.balance):
            return best
        for worker in (best, *fleet.holders(job)):
            if fleet.fits(worker, job):
                missing = job.num_context - fleet.cached(worker, job)
                cost = missing + self.cfg.balance * fleet.loads[worker] / fleet.num_slots[worker]
                if cost < least:
                    best, least = worker, cost
        return best
