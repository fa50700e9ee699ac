"""The pool of pages that hold keys and values, and who still needs each of them.

A page is a fixed number of token places. A place that was written does not change until its page is
free again, so any number of sequences and cached prefixes may share a page. A sequence's keys are runs
(page, count): it sees the first ``count`` places of each page, in order. Counts may be short anywhere,
so a fork shares the partly filled page of its parent and goes on in a page of its own; nothing is copied.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Pages = NDArray[np.int32]

LIVE, CACHED = 0, 1  # who holds a reference: a live sequence, or a cached prefix


class PagePool:
    """Reference counts of every page, and the stack of free ones.

    A page is live if a live sequence holds it, cached if only cached prefixes do, and free otherwise.
    ``used`` is the number of places of a page that are written or promised to its one writer. Whoever sees
    all written places of a page that is not full and not promised may `claim` the rest of it.

    Args:
        num_pages: pages in the pool.
        page: token places of a page.
    """

    def __init__(self, num_pages: int, page: int = 16) -> None:
        assert num_pages > 0 and page > 0
        self.page = page
        self.refs = np.zeros((2, num_pages), np.int32)
        self.used = np.zeros(num_pages, np.int32)
        self.num_free, self.num_live, self.num_cached = num_pages, 0, 0
        self._free: Pages = np.arange(num_pages - 1, -1, -1, dtype=np.int32)

    @property
    def num_pages(self) -> int:
        return int(self.used.size)

    @property
    def refcounts(self) -> NDArray[np.int32]:
        """References of each page, from whomever."""
        counts: NDArray[np.int32] = self.refs.sum(0, dtype=np.int32)
        return counts

    @property
    def free(self) -> Pages:
        """The free pages; the last one is taken first."""
        return self._free[: self.num_free]

    def take(self, num: int) -> Pages:
        """Return ``num`` free pages, each held once by a live sequence and promised to it as a whole."""
        assert 0 <= num <= self.num_free, f"{num} pages are wanted, {self.num_free} are free"
        pages = self._free[self.num_free - num : self.num_free][::-1].copy()
        self.num_free -= num
        self.num_live += num
        self.refs[LIVE, pages] = 1
        self.used[pages] = self.page
        return pages

    def share(self, pages: Pages, owner: int = LIVE) -> None:
        """Add one reference to each of these pages, which differ and are not free."""
        refs, others = self.refs[owner], self.refs[1 - owner]
        held = refs[pages]
        assert (held | others[pages]).all(), "a free page cannot be shared"
        refs[pages] = held + 1
        if owner == LIVE:
            revived = pages.size - int(np.count_nonzero(held))
            self.num_live += revived
            self.num_cached -= revived

    def release(self, pages: Pages, owner: int = LIVE) -> int:
        """Take one reference from each of these pages, which differ; return how many are free now."""
        refs, others = self.refs[owner], self.refs[1 - owner]
        held = refs[pages]
        assert held.all(), "a page is released that its owner does not hold"
        left = held - 1
        refs[pages] = left
        unused = pages[(left | others[pages]) == 0]
        if owner == LIVE:
            ended = pages.size - int(np.count_nonzero(left))
            self.num_live -= ended
            self.num_cached += ended - unused.size
        else:
            self.num_cached -= unused.size
        self._free[self.num_free : self.num_free + unused.size] = unused[::-1]
        self.num_free += unused.size
        return int(unused.size)

    def claimable(self, page: int, count: int) -> int:
        """Return the places of a page that someone who sees its first ``count`` may go on to write."""
        return self.page - count if int(self.used[page]) == count else 0

    def claim(self, page: int, count: int) -> int:
        """Promise the rest of a page to a writer who sees its first ``count`` places; return how many."""
        room = self.claimable(page, count)
        if room:
            self.used[page] = self.page
        return room

    def give_up(self, page: int, count: int) -> None:
        """End the promise of a page whose first ``count`` places were written."""
        assert int(self.used[page]) == self.page and count < self.page
        self.used[page] = count

    def grow(self, num_pages: int) -> None:
        """Add free pages until there are ``num_pages``; page ids stay as they are."""
        more = num_pages - self.num_pages
        assert more >= 0, "the pool may only grow"
        new = np.arange(num_pages - 1, self.num_pages - 1, -1, dtype=np.int32)
        self._free = np.concatenate([new, self._free])
        self.refs = np.concatenate([self.refs, np.zeros((2, more), np.int32)], axis=1)
        self.used = np.concatenate([self.used, np.zeros(more, np.int32)])
        self.num_free += more


def cut(pages: Pages, counts: Pages, num: int) -> tuple[Pages, Pages]:
    """Return the runs of the first ``num`` tokens, 0 ≤ num ≤ counts.sum(); arrays of their own."""
    if num == 0:
        return pages[:0].copy(), counts[:0].copy()
    ends = counts.cumsum()
    last = int(ends.searchsorted(num))
    kept = counts[: last + 1].copy()
    kept[last] -= ends[last] - num
    return pages[: last + 1].copy(), kept


def num_common(a: NDArray[np.int64], b: NDArray[np.int64]) -> int:
    """Return how many leading tokens two sequences share."""
    num = min(a.size, b.size)
    if num == 0:
        return 0
    differs = a[:num] != b[:num]
    first = int(differs.argmax())
    return first if differs[first] else num
