"""Which sequences run, which tokens the next forward pass computes, and where their keys go.

The engine's loop is: `admit`, `plan`, the forward pass, `commit`, sample, `grow` the rows that go on and
`remove` those that ended. One number drives it: a row's known tokens that are not computed yet. A row
that lacks one decodes, a row that lacks more is prefilled; nothing else tells them apart.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from rollwright.engine.schedule.pages import LIVE, PagePool, Pages, cut, num_common
from rollwright.engine.schedule.plan import Plan
from rollwright.engine.schedule.prefix import PrefixTree
from rollwright.engine.schedule.rows import Ints, Rows
from rollwright.engine.schedule.waiting import Seq, Waiting
from rollwright.errors import EngineError


class Scheduler(Rows):
    """Continuous batching over a paged pool of keys; see `Rows` for the columns that an engine reads.

    Args:
        num_pages: pages of the pool.
        max_rows: sequences that are live at once.
        token_budget: tokens of one forward pass.
        page: token places of a page.
        tokens_of: returns all known tokens of a live sequence.
        on_move: told (source, target) when the last row takes the place of one that ended.
        on_leave: told a sequence that must give up its row unfinished, while the row is still its own.

    Raises:
        EngineError: the token budget is smaller than the number of rows.
    """

    def __init__(
        self,
        *,
        num_pages: int,
        max_rows: int,
        token_budget: int,
        tokens_of: Callable[[Seq], NDArray[np.int64]],
        on_move: Callable[[int, int], None] | None = None,
        on_leave: Callable[[Seq], None] | None = None,
        page: int = 16,
    ) -> None:
        if token_budget < max_rows:
            raise EngineError(
                f"a token budget of {token_budget} is smaller than {max_rows} rows, and each row may decode "
                "one token in every pass; raise the budget or lower the number of rows"
            )
        super().__init__(PagePool(num_pages, page), max_rows)
        self.max_rows, self.token_budget = max_rows, token_budget
        self.tree = PrefixTree(self.pool)
        self.waiting = Waiting()
        self._tokens_of, self._on_move, self._on_leave = tokens_of, on_move, on_leave
        self._prefilling: dict[Seq, None] = {}  # live, and more than the last known token is to compute
        self._group_to_live: dict[str, dict[Seq, None]] = {}
        self._is_stalled = False  # the first in the queue lacks memory until a row ends
        self._is_planned = False

    # ------------------------------------------------------------------ what there is

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
    def num_waiting(self) -> int:
        return len(self.waiting)

    # ------------------------------------------------------------------ in and out

    def add(self, seq: Seq) -> None:
        """Let a sequence wait for a row."""
        assert seq.row < 0 and 0 < seq.tokens.size <= seq.max_keys, f"sequence {seq.name!r}"
        assert seq.max_keys <= self.num_pages * self.pool.page, f"sequence {seq.name!r} can never fit"
        self._wait(seq)

    def remove(self, seq: Seq) -> None:
        """End a sequence, live or waiting; the keys of a live one stay as a cached prefix."""
        assert not self._is_planned, "a plan is not committed"
        if seq.row < 0:
            self.waiting.remove(seq)
            return
        self._is_stalled = False
        self._leave(seq)

    def admit(self) -> list[Seq]:
        """Give rows to waiting sequences, by turn, while rows, memory and the token budget allow.

        One that shares more of its tokens with a row in prefill than is cached is held back until those
        keys are computed, so that a group's prompt is computed once; the ones behind it may go first.
        """
        assert not self._is_planned, "a plan is not committed"
        admitted, queue = list[Seq](), self.waiting.queue
        spare = self.token_budget - int(self.left.sum()) if queue else 0
        while queue and not self._is_stalled and self.num_live < self.max_rows:
            seq = queue[0]
            leader, shared = self._leader(seq)
            if leader is not None:
                self.waiting.hold_first(leader, shared)
                continue
            num, pages, counts = self._fitting(seq, *self.tree.match(seq.tokens[:-1]))
            left = seq.tokens.size - num
            if left > 1 and spare <= 0:
                break
            if not self._has_room(left, pages, counts):
                self._is_stalled = True
                break
            del queue[0]
            self.open_row(seq, num, pages, counts)
            self._group_to_live.setdefault(seq.group, {})[seq] = None
            if left > 1:
                self._prefilling[seq] = None
            spare -= left
            admitted.append(seq)
        return admitted

    def retire(self, group: str) -> None:
        """Forget the cached keys that only this group used."""
        self.tree.retire(group)

    def clear(self) -> list[Seq]:
        """Drop every key: the weights changed. Live sequences wait again; return them by turn."""
        live = sorted(self.seqs, key=lambda seq: seq.turn)
        self._is_planned = False
        for seq in reversed(self.seqs.copy()):  # from the last row on, so that no row moves
            self._save(seq)
            self._leave(seq, keep=False)
            self._wait(seq)
        self.tree.clear()
        self._is_stalled = False
        return live

    def resize(self, num_pages: int) -> None:
        """Add pages to the pool; it never shrinks."""
        self.pool.grow(num_pages)
        self._is_stalled = False

    def share_live(self, seq: Seq) -> None:
        """Make the keys that a live sequence has computed so far known to the prefix cache."""
        self._cache(seq, int(self.num_keys[seq.row]))

    # ------------------------------------------------------------------ one forward pass

    def plan(self) -> Plan:
        """Choose the tokens of the next pass and give each a place.

        Rows that decode come first; prefill takes the rest of the budget in chunks, by turn. Where pages
        lack, cached prefixes are evicted, then the rows whose turn is last lose theirs and wait again.
        """
        assert not self._is_planned, "a plan is not committed"
        preempted = list[Seq]()
        while True:
            rows, nums = self._choose()
            lack = int(self.num_new_pages(rows, nums).sum()) - self.pool.num_free
            if lack <= 0 or self.tree.evict(lack) >= lack:
                break
            preempted.append(self._preempt())
        starts = self.num_keys[rows]
        is_steady = rows.size == self.num_live == nums.sum()
        pages, offsets = self.place_one() if is_steady else self.place(rows, nums)
        self._is_planned = True
        return Plan(
            rows=rows.astype(np.int32),
            starts=starts.astype(np.int32),
            nums=nums.astype(np.int32),
            samples=starts + nums == self.num_known[rows],
            pages=pages,
            offsets=offsets,
            preempted=preempted,
        )

    def commit(self, plan: Plan) -> None:
        """Count the plan's tokens as computed; prompts that are whole now can be shared."""
        assert self._is_planned, "there is no plan to commit"
        self._is_planned = False
        self.num_keys[plan.rows] += plan.nums
        if not self._prefilling:
            return
        for seq in list(self._prefilling):
            whole, has = int(self.num_known[seq.row]) - 1, int(self.num_keys[seq.row])
            if has >= whole:
                del self._prefilling[seq]
                self._cache(seq, whole)
            for follower in self.waiting.release(seq, None if has >= whole else has):
                self._wait(follower)

    def grow(self, rows: NDArray[np.integer]) -> None:
        """Count one more known token for each of these rows: they sampled."""
        self.num_known[rows] += 1

    def _choose(self) -> tuple[Ints, Ints]:
        """Return the rows of the next pass, ascending, and how many tokens each computes."""
        left = self.left
        nums: Ints = (left == 1).astype(np.int64)
        spare = self.token_budget - int(nums.sum())
        for seq in sorted(self._prefilling, key=self.waiting.turn):
            if not nums[seq.row]:
                nums[seq.row] = min(int(left[seq.row]), spare)
                spare -= int(nums[seq.row])
        rows = np.flatnonzero(nums)
        return rows, nums[rows]

    # ------------------------------------------------------------------ memory

    def _fitting(self, seq: Seq, num: int, pages: Pages, counts: Pages) -> tuple[int, Pages, Pages]:
        """Cut a cached prefix so short that the sequence fits into the whole pool, alone, to its end.

        Runs with few tokens in each page (forks of forks) can take more pages than there are.
        """
        ends = np.cumsum(counts)
        most = np.arange(1, ends.size + 1) - (ends - seq.max_keys) // self.pool.page
        fits = int(np.count_nonzero(most <= self.num_pages))
        if fits < ends.size:
            num = int(ends[fits - 1]) if fits else 0
        return num, *cut(pages, counts, num)

    def _has_room(self, left: int, pages: Pages, counts: Pages) -> bool:
        """Return whether a sequence with these runs and ``left`` tokens to compute may join.

        There must be pages for all its known tokens and for those of every live row, and one more for
        each row to go on. One alone always has room.
        """
        if not self.num_live:
            return True
        room = self.pool.claimable(int(pages[-1]), int(counts[-1])) if pages.size else 0
        page = self.pool.page
        wanted = (page - room + left - 1) // page
        wanted += int(self.num_new_pages(self._numbers[: self.num_live], self.left).sum())
        revived = int(np.count_nonzero(self.pool.refs[LIVE, pages] == 0))
        return wanted + self.num_live + 1 <= self.pool.num_free + self.pool.num_cached - revived

    def _preempt(self) -> Seq:
        """Take its row from the sequence whose turn is last; its keys stay as a cached prefix for now."""
        assert self.num_live > 1, "one sequence alone does not fit into the pool"
        seq = max(self.seqs, key=lambda seq: seq.turn)
        self._save(seq)
        self._leave(seq)
        self._wait(seq)
        self._is_stalled = True  # or it would join again and take the pages that it was to leave
        return seq

    # ------------------------------------------------------------------ sharing

    def _leader(self, seq: Seq) -> tuple[Seq | None, int]:
        """Return the row in prefill that will have more keys of ``seq`` than are cached, and how many.

        What live rows of its group have computed of it already is cached first. Rows of other groups count
        from a page of common tokens on.
        """
        wanted = seq.tokens[:-1]
        num = self.tree.match(wanted)[0]
        leader, source = None, None
        shared = has = num
        for live in {**self._group_to_live.get(seq.group, {}), **self._prefilling}:
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
        return None, 0

    def _num_common(self, live: Seq, wanted: NDArray[np.int64], at_least: int) -> int:
        """Return how many leading tokens a live row shares, or 0 if no more than ``at_least``."""
        if at_least >= min(wanted.size, int(self.num_known[live.row])):
            return 0
        tokens = self._tokens_of(live)
        return num_common(tokens, wanted) if tokens[at_least] == wanted[at_least] else 0

    def _cache(self, seq: Seq, num: int) -> None:
        self.tree.insert(self._tokens_of(seq)[:num], *self.runs(seq.row, num), seq.group)

    def _wait(self, seq: Seq) -> None:
        if self.waiting.add(seq):
            self._is_stalled = False

    def _save(self, seq: Seq) -> None:
        """Keep the tokens of a sequence that loses its row."""
        seq.tokens = self._tokens_of(seq).copy()
        if self._on_leave is not None:
            self._on_leave(seq)

    def _leave(self, seq: Seq, keep: bool = True) -> None:
        """Free a live sequence's row; with ``keep`` its keys become a cached prefix."""
        if keep:
            self._cache(seq, int(self.num_keys[seq.row]))
        for follower in self.waiting.release(seq):
            self._wait(follower)
        self._prefilling.pop(seq, None)
        of_group = self._group_to_live[seq.group]
        del of_group[seq]
        if not of_group:
            del self._group_to_live[seq.group]
        row = seq.row
        last = self.close_row(row)
        if last != row and self._on_move is not None:
            self._on_move(last, row)
