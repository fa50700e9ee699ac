"""The rows of live sequences: columns that stay compact, and the places of each row's keys."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rollwright.engine.schedule.pages import PagePool, Pages, cut
from rollwright.engine.schedule.waiting import Seq

Ints = NDArray[np.int64]


class Rows:
    """Rows 0..num_live-1, one per live sequence.

    Columns [R]: ``num_keys`` tokens whose keys are computed; ``num_known`` tokens known; ``num_pages_of``
    runs of the row; ``room`` places left in its last page that it alone may write. ``table`` and ``counts``
    [R, W], int32: the page and the count of each run, zeros behind ``num_pages_of``. After `place` the
    counts include the places of the tokens that are about to be computed.
    """

    def __init__(self, pool: PagePool, max_rows: int) -> None:
        self.pool = pool
        self.seqs: list[Seq] = []
        self.num_keys = np.zeros(max_rows, np.int64)
        self.num_known = np.zeros(max_rows, np.int64)
        self.num_pages_of = np.zeros(max_rows, np.int32)
        self.room = np.zeros(max_rows, np.int64)
        self.table = np.zeros((max_rows, 8), np.int32)
        self.counts = np.zeros((max_rows, 8), np.int32)
        self._numbers = np.arange(max_rows)
        self._row_starts = self._numbers * 8

    @property
    def num_live(self) -> int:
        return len(self.seqs)

    @property
    def num_pages(self) -> int:
        return self.pool.num_pages

    @property
    def num_pages_live(self) -> int:
        """Pages that live sequences hold."""
        return self.pool.num_live

    @property
    def num_pages_cached(self) -> int:
        """Pages that only cached prefixes hold; all of them can be freed."""
        return self.pool.num_cached

    @property
    def num_pages_free(self) -> int:
        return self.pool.num_free

    @property
    def left(self) -> Ints:
        """Known tokens of each live row that are not computed."""
        num = len(self.seqs)
        return self.num_known[:num] - self.num_keys[:num]

    def runs(self, row: int, num_tokens: int) -> tuple[Pages, Pages]:
        """Return the runs (pages, counts) of a row's first tokens."""
        num = int(self.num_pages_of[row])
        return cut(self.table[row, :num], self.counts[row, :num], num_tokens)

    def open_row(self, seq: Seq, num_cached: int, pages: Pages, counts: Pages) -> None:
        """Give a sequence the next row; it takes over ``num_cached`` keys in these runs."""
        row, num = len(self.seqs), pages.size
        self.seqs.append(seq)
        seq.row, seq.num_cached = row, num_cached
        self.pool.share(pages)
        self.widen(num)
        self.table[row, :num], self.counts[row, :num] = pages, counts
        self.num_keys[row], self.num_known[row] = num_cached, seq.tokens.size
        self.num_pages_of[row] = num
        self.room[row] = self.pool.claim(int(pages[-1]), int(counts[-1])) if num else 0

    def close_row(self, row: int) -> int:
        """Give up a row and its pages; return the last row, which takes its place."""
        seq, num, last = self.seqs[row], int(self.num_pages_of[row]), len(self.seqs) - 1
        if self.room[row]:
            self.pool.give_up(int(self.table[row, num - 1]), int(self.counts[row, num - 1]))
        self.pool.release(self.table[row, :num])
        for column in (self.num_keys, self.num_known, self.num_pages_of, self.room, self.table, self.counts):
            if row < last:
                column[row] = column[last]
            column[last] = 0
        self.seqs[row] = self.seqs[last]
        self.seqs[row].row = row
        self.seqs.pop()
        seq.row = -1
        return last

    def num_new_pages(self, rows: Ints, nums: Ints) -> Ints:
        """Return the pages that each row must take to write so many tokens more."""
        page = self.pool.page
        new: Ints = (page - self.room[rows] + nums - 1) // page
        return new

    def place(self, rows: Ints, nums: Ints) -> tuple[Pages, Pages]:
        """Give each row places for its next tokens; return their pages and offsets, row by row."""
        new = self.num_new_pages(rows, nums)
        before = self.num_pages_of[rows].astype(np.int64)
        start = self.pool.page - self.room[rows]  # counted from the start of the last page
        if new.any():
            self._append(rows, before, new)
        end = start + nums - new * self.pool.page
        self.counts[rows, before + new - 1] = np.where(new > 0, end, self.counts[rows, before - 1] + nums)
        self.room[rows] = self.pool.page - end
        self.num_pages_of[rows] += new.astype(np.int32)
        owner = np.repeat(np.arange(rows.size), nums)
        at = start[owner] + _within(nums)
        pages = self.table[rows[owner], before[owner] - 1 + at // self.pool.page]
        return pages, (at % self.pool.page).astype(np.int32)

    def take_back(self, nums: Ints) -> None:
        """Give back the last ``nums`` [B] of the places that `place` gave to rows 0..B-1."""
        for row in np.flatnonzero(nums):
            left = int(nums[row])
            while left:
                last = int(self.num_pages_of[row]) - 1
                count = int(self.counts[row, last])
                some = min(left, count)
                self.counts[row, last] = count - some
                self.room[row] += some
                left -= some
                if some == count:  # the page is empty, so it was new
                    self.pool.release(self.table[row, last : last + 1])
                    self.table[row, last] = 0
                    self.num_pages_of[row] = last
                    self.room[row] = 0

    @property
    def num_full(self) -> int:
        """Live rows whose last page has no room."""
        return len(self.seqs) - int(np.count_nonzero(self.room[: len(self.seqs)]))

    def place_one(self) -> tuple[Pages, Pages]:
        """Give every live row a place for one token: `place` for the steady state, in few operations."""
        num = len(self.seqs)
        room, num_pages = self.room[:num], self.num_pages_of[:num]
        full = np.flatnonzero(room == 0)
        if full.size:
            before = num_pages[full]
            self.widen(int(before.max()) + 1)
            self.table[full, before] = self.pool.take(full.size)
            num_pages[full] += 1
            room[full] = self.pool.page
        room -= 1
        last = self._row_starts[:num] + num_pages
        last -= 1
        counts = self.counts.reshape(-1)
        offsets = counts.take(last)
        counts[last] = offsets + 1
        return self.table.take(last), offsets

    def widen(self, num_pages: int) -> None:
        """Make the tables wide enough for so many pages of a row."""
        wide = self.table.shape[1]
        if num_pages > wide:
            more = ((0, 0), (0, max(num_pages, 2 * wide) - wide))
            self.table, self.counts = np.pad(self.table, more), np.pad(self.counts, more)
            self._row_starts = self._numbers * self.table.shape[1]

    def _append(self, rows: Ints, before: Ints, new: Ints) -> None:
        """Fill up the rows' last pages and take ``new`` pages for each."""
        self.widen(int((before + new).max()))
        fills = (new > 0) & (self.room[rows] > 0)
        self.counts[rows[fills], before[fills] - 1] = self.pool.page
        owner = np.repeat(np.arange(rows.size), new)
        at = before[owner] + _within(new)
        self.table[rows[owner], at] = self.pool.take(owner.size)
        self.counts[rows[owner], at] = self.pool.page


def _within(nums: Ints) -> Ints:
    """Return 0..n-1 for each n, one after the other."""
    total: Ints = np.arange(int(nums.sum())) - np.repeat(np.cumsum(nums) - nums, nums)
    return total
