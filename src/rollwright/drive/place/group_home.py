"""Keep a group together: its prompt is cached where its first ask went."""

from __future__ import annotations

from dataclasses import dataclass

from rollwright.drive.placement import Fleet, Job, OneLine, Placer
from rollwright.tree import GroupId


@dataclass(frozen=True, slots=True)
class GroupHome:
    """Choose the worker that took the group's first ask; the least loaded one while it is full or gone.

    The largest priority goes first, then the oldest ask. A home that closed (its worker was lost) is given
    up; one that is only full is kept, and what spills over does not move it.
    """

    def make(self) -> Placer:
        return _GroupHome()


class _GroupHome(OneLine):
    def __init__(self) -> None:
        super().__init__()
        self.homes: dict[GroupId, int] = {}

    def choose(self, job: Job, fleet: Fleet) -> int | None:
        home = self.homes.get(job.group)
        if home is not None and fleet.fits(home, job):
            return home
        found = fleet.first_fit(job)
        if found is not None and (home is None or not fleet.is_open[home]):
            self.homes[job.group] = found
        return found

    def retire(self, group: GroupId) -> None:
        self.homes.pop(group, None)
