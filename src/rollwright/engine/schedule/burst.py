"""Places for several decode steps at once, so that a kernel can run them without asking in between."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rollwright.engine.schedule.pages import Pages
from rollwright.engine.schedule.scheduler import Scheduler

MOST = 16  # steps of a burst; no more than a page, so that a row needs one new page at most


@dataclass(slots=True)
class Reserved:
    """Pages that stand behind the last ones of rows which may run out of room.

    Args:
        rows: [K] the rows.
        pages: [K] the page of each.
        num_pages: [K] how many each had before.
    """

    rows: NDArray[np.intp]
    pages: Pages
    num_pages: Pages


def reserve(scheduler: Scheduler, num_steps: int) -> Reserved | None:
    """Put a page behind each row that lacks room for so many tokens; None if there are too few.

    Cached prefixes are evicted for it, as they are for a plan: a full cache must not end all bursts.
    Whoever runs the steps moves ``room``, ``counts`` and ``num_pages_of`` on as it fills places.
    """
    assert scheduler.is_steady and num_steps <= min(MOST, scheduler.pool.page)
    num = scheduler.num_live
    rows = np.flatnonzero(scheduler.room[:num] < num_steps)
    lack = rows.size - scheduler.pool.num_free
    if lack > 0 and scheduler.tree.evict(lack) < lack:
        return None
    before = scheduler.num_pages_of[rows]
    if rows.size:
        scheduler.widen(int(before.max()) + 1)
    pages = scheduler.pool.take(rows.size)
    scheduler.table[rows, before] = pages
    return Reserved(rows, pages, before)


def settle(scheduler: Scheduler, reserved: Reserved, num_done: int) -> None:
    """Count the steps that were done for every live row, and give back the pages that nobody reached."""
    num = scheduler.num_live
    scheduler.num_keys[:num] += num_done
    scheduler.num_known[:num] += num_done
    unused = scheduler.num_pages_of[reserved.rows] == reserved.num_pages
    scheduler.table[reserved.rows[unused], reserved.num_pages[unused]] = 0
    scheduler.pool.release(reserved.pages[unused])
