"""Who gets a row, and whose keys it takes over."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from rollwright.engine.schedule.pages import LIVE, PagePool, Pages, cut, num_common
from rollwright.engine.schedule.prefilling import Prefilling
from rollwright.engine.schedule.prefix import PrefixTree
from rollwright.engine.schedule.rows import Rows
from rollwright.engine.schedule.waiting import Seq, Waiting


class Admission(Rows):
    """Rows, the sequences that wait for one, and the prefix cache; see `Scheduler` for the arguments."""

    def __init__(
        self, pool: PagePool, max_rows: int, token_budget: int, tokens_of: Callable[[Seq], NDArray[np.int64]]
    ) -> None:
        super().__init__(pool, max_rows)
        self.max_rows, self.token_budget = max_rows, token_budget
        self.tree = PrefixTree(pool)
        self.waiting = Waiting()
        self._tokens_of = tokens_of
        self._prefilling = Prefilling(pool.page)  # live, and more than the last known token is to compute
        self._group_to_live: dict[str, dict[Seq, None]] = {}
        self._is_stalled = False  # the first in the queue lacks memory until a row ends
        self._is_planned = False

    @property
    def num_waiting(self) -> int:
        return len(self.waiting)

    def add(self, seq: Seq) -> None:
        """Let a sequence wait for a row."""
        assert seq.row < 0 and 0 < seq.tokens.size <= seq.max_keys, f"sequence {seq.name!r}"
        assert seq.max_keys <= self.num_pages * self.pool.page, f"sequence {seq.name!r} can never fit"
        self._wait(seq)

    def admit(self) -> list[Seq]:
        """Give rows to waiting sequences, by turn, while rows, memory and the token budget allow.

        One that shares more of its tokens with a row in prefill than is cached is held back until those
        keys are computed, so that a group's prompt is computed once; the ones behind it may go first.
        Memory must be there for the known tokens of it and of every row, and a page for each to go on.
        """
        assert not self._is_planned, "a plan is not committed"
        admitted, queue = list[Seq](), self.waiting.queue
        if not queue or self._is_stalled or self.num_live == self.max_rows:
            return admitted
        spare = self.token_budget - int(self.left.sum())
        behind = np.maximum(self.left - 1, 0)
        owed = int(self.num_new_pages(self._numbers[: self.num_live], behind).sum()) + self.num_live
        while queue and self.num_live < self.max_rows:
            seq = queue[0]
            found = self.tree.match(seq.tokens[:-1])
            leader, num_keys = self._leader(seq, found[0])
            if leader is not None:
                self.waiting.hold_first(leader, num_keys)
                continue
            if num_keys > found[0]:
                found = self.tree.match(seq.tokens[:-1])
            num, pages, counts = self._fitting(seq, *found)
            left = seq.tokens.size - num
            if left > 1 and spare <= 0 and self._is_crowded(seq):
                break
            owed += self._num_lacking(left - 1, pages, counts) + 1
            if self.num_live and not self._is_free(owed, pages):
                self._is_stalled = True
                break
            self._join(queue.pop(0), num, pages, counts)
            spare -= left
            admitted.append(seq)
        return admitted

    def share_live(self, seq: Seq) -> None:
        """Make the keys that a live sequence has computed so far known to the prefix cache."""
        self._cache(seq, int(self.num_keys[seq.row]))

    def _leader(self, seq: Seq, num: int) -> tuple[Seq | None, int]:
        """Return the row in prefill that will have more keys of ``seq`` than there are now, and how many.

        Where there is none, return the number that is cached now: ``num``, or more if a live row of its
        group has computed more, which is put into the cache. Rows of other groups count from a page of
        common tokens on.
        """
        wanted = seq.tokens[:-1]
        if num == wanted.size:
            return None, num
        leader, source = None, None
        shared = has = num
        for live in {**self._group_to_live.get(seq.group, {}), **self._prefilling.like(wanted)}:
            common = self._num_common(live, wanted, num)
            if common - num < (1 if live.group == seq.group else self.pool.page):
                continue
            computed = min(common, int(self.num_keys[live.row]))
            if computed > has:
                source, has = live, computed
            if live in self._prefilling and common > max(shared, computed):
                leader, shared = live, common
        if leader is not None and shared > has:
            return leader, shared
        if source is not None:
            self.share_live(source)
        return None, has

    def _num_common(self, live: Seq, wanted: NDArray[np.int64], at_least: int) -> int:
        """Return how many leading tokens a live row shares, or 0 if no more than ``at_least``."""
        if at_least >= min(wanted.size, int(self.num_known[live.row])):
            return 0
        tokens = self._tokens_of(live)
        return num_common(tokens, wanted) if tokens[at_least] == wanted[at_least] else 0

    def _is_crowded(self, seq: Seq) -> bool:
        """Return whether rows that decode or are prefilled before this one use up the token budget."""
        left, turn = self.left, self.waiting.turn
        before = sum(int(left[live.row]) for live in self._prefilling if turn(live) < seq.turn)
        return int(np.count_nonzero(left == 1)) + before >= self.token_budget

    def _fitting(self, seq: Seq, num: int, pages: Pages, counts: Pages) -> tuple[int, Pages, Pages]:
        """Cut a cached prefix so short that the sequence fits into the whole pool, alone, to its end.

        Runs with few tokens in each page (forks of forks) can take more pages than there are.
        """
        if pages.size - (num - seq.max_keys) // self.pool.page <= self.num_pages:
            return num, pages, counts
        ends = np.cumsum(counts)
        most = np.arange(1, ends.size + 1) - (ends - seq.max_keys) // self.pool.page
        fits = int(np.count_nonzero(most <= self.num_pages))
        if fits < ends.size:
            num = int(ends[fits - 1]) if fits else 0
        return num, *cut(pages, counts, num)

    def _num_lacking(self, num: int, pages: Pages, counts: Pages) -> int:
        """Return the pages to take for a sequence with these runs to compute ``num`` tokens more."""
        room = self.pool.claimable(int(pages[-1]), int(counts[-1])) if pages.size else 0
        return (self.pool.page - room + num - 1) // self.pool.page

    def _is_free(self, num: int, pages: Pages) -> bool:
        """Return whether ``num`` pages can be had, cached ones evicted, once these pages are live."""
        revived = int(np.count_nonzero(self.pool.refs[LIVE, pages] == 0))
        return num <= self.pool.num_free + self.pool.num_cached - revived

    def _join(self, seq: Seq, num: int, pages: Pages, counts: Pages) -> None:
        self.open_row(seq, num, pages, counts)
        self._group_to_live.setdefault(seq.group, {})[seq] = None
        if seq.tokens.size - num > 1:
            self._prefilling.add(seq)

    def _wait(self, seq: Seq) -> None:
        if self.waiting.add(seq):
            self._is_stalled = False

    def _cache(self, seq: Seq, num: int) -> None:
        self.tree.insert(self._tokens_of(seq)[:num], *self.runs(seq.row, num), seq.group)
