"""Workers in turn, whatever they hold: what cache-aware placements are compared with."""

from __future__ import annotations

from dataclasses import dataclass

from rollwright.drive.placement import Fleet, Job, OneLine, Placer


@dataclass(frozen=True, slots=True)
class RoundRobin:
    """Each ask goes to the next worker that has room."""

    def make(self) -> Placer:
        return _RoundRobin()


class _RoundRobin(OneLine):
    def __init__(self) -> None:
        super().__init__()
        self.last = -1

    def choose(self, job: Job, fleet: Fleet) -> int | None:
        if fleet.first_fit(job) is None:
            return None
        for step in range(1, len(fleet) + 1):
            worker = (self.last + step) % len(fleet)
            if fleet.fits(worker, job):
                self.last = worker
                return worker
        return None
