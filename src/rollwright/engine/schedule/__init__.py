"""The pure scheduler: who computes what in the next forward pass, and where the keys of it go. No torch."""

from rollwright.engine.schedule.pages import PagePool
from rollwright.engine.schedule.plan import Plan
from rollwright.engine.schedule.prefix import PrefixTree
from rollwright.engine.schedule.scheduler import Scheduler
from rollwright.engine.schedule.waiting import Seq

__all__ = ["PagePool", "Plan", "PrefixTree", "Scheduler", "Seq"]
