"""What the driver knows of one rollout worker and of the asks that it has."""

from __future__ import annotations

from dataclasses import dataclass, field

from rollwright.drive.placement import Job
from rollwright.drive.ray.actors import Order, Place
from rollwright.drive.ray.hire import Actor
from rollwright.tree import GroupId, NodeId


@dataclass(slots=True, eq=False)
class Held:
    """An ask that a worker has."""

    attempt: int
    job: Job
    num_made: int = 0
    is_aborting: bool = False


@dataclass(slots=True, eq=False)
class Worker:
    """What the driver knows of one rollout worker."""

    name: str
    seat: int  # its number for the placement; whoever comes after it takes the same
    actor: Actor
    place: Place | None = None  # None until its engine is made
    sent: int | None = None  # version of the weights that are on their way to it, or there
    version: int | None = None  # of the weights that it has said it has
    is_busy: bool = False  # a call for work is out
    outbox: list[Order] = field(default_factory=list)
    held: dict[NodeId, Held] = field(default_factory=dict)
    groups: dict[GroupId, dict[str, int]] = field(default_factory=dict)  # tokens read, by session
