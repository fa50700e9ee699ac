"""Which rollout worker takes an ask: the group's own where its prefix is cached, else the least loaded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from rollwright.tree import GroupId


class Placement(Protocol):
    """Places asks on workers. It may keep state; samples do not depend on it."""

    def place(self, group: GroupId, loads: Mapping[str, int], room: int) -> str | None:
        """Return the worker for an ask of the group, or None if no worker has room.

        Args:
            group: whose ask it is.
            loads: asks that each worker in service holds.
            room: asks that a worker may hold.
        """
        ...

    def retire(self, group: GroupId) -> None:
        """Forget a closed group."""
        ...


class GroupHomes:
    """A group stays with the worker that took its first ask, and spills over when that one is full.

    A new group goes to the least loaded worker; so does an ask whose home is full or gone. Workers with
    equal loads are taken in the order of ``loads``.
    """

    def __init__(self) -> None:
        self.homes: dict[GroupId, str] = {}

    def place(self, group: GroupId, loads: Mapping[str, int], room: int) -> str | None:
        home = self.homes.get(group)
        if home is not None and loads.get(home, room) < room:
            return home
        if not loads:
            return None
        least = min(loads, key=lambda worker: loads[worker])
        if loads[least] >= room:
            return None
        if home not in loads:
            self.homes[group] = least
        return least

    def retire(self, group: GroupId) -> None:
        self.homes.pop(group, None)
