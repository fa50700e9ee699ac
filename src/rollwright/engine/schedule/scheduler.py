"""Which sequences run, which tokens the next forward pass computes, and where their keys go.

The engine's loop is: `admit`, `plan`, the forward pass, `commit`, sample, `grow` the rows that go on and
`remove` those that ended. One number drives it: a row's known tokens that are not computed yet. A row
that lacks one decodes, a row that lacks more is prefilled; nothing else tells them apart.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from rollwright.engine.schedule.admission import Admission
from rollwright.engine.schedule.pages import PagePool
from rollwright.engine.schedule.plan import Plan
from rollwright.engine.schedule.rows import Ints
from rollwright.engine.schedule.waiting import Seq
from rollwright.errors import EngineError


class Scheduler(Admission):
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
        super().__init__(PagePool(num_pages, page), max_rows, token_budget, tokens_of)
        self._on_move, self._on_leave = on_move, on_leave
        self._every_row = np.arange(max_rows, dtype=np.int32)  # what the plan of a steady state is made of
        self._one_each = np.ones(max_rows, np.int32)
        self._all_sample = np.ones(max_rows, np.bool_)
        for column in (self._every_row, self._one_each, self._all_sample):
            column.flags.writeable = False  # an engine that wrote into its plan would spoil the next ones

    # ------------------------------------------------------------------ in and out

    def remove(self, seq: Seq) -> None:
        """End a sequence, live or waiting; the keys of a live one stay as a cached prefix."""
        assert not self._is_planned, "a plan is not committed"
        self._is_stalled = False
        if seq.row < 0:
            self.waiting.remove(seq)
        else:
            self._leave(seq)

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

    # ------------------------------------------------------------------ one forward pass

    @property
    def is_steady(self) -> bool:
        """Whether every live row decodes."""
        return not self._prefilling and bool((self.left == 1).all())

    def plan(self) -> Plan:
        """Choose the tokens of the next pass and give each a place.

        Rows that decode come first; prefill takes the rest of the budget in chunks, by turn. Where pages
        lack, cached prefixes are evicted, then the rows whose turn is last lose theirs and wait again.
        """
        assert not self._is_planned, "a plan is not committed"
        is_steady = self.is_steady
        preempted = list[Seq]()
        chosen = None if is_steady else self._choose()
        while not self._has_pages(chosen):
            preempted.append(self._preempt())
            chosen = None if is_steady else self._choose()
        self._is_planned = True
        return self._steady_plan(preempted) if chosen is None else self._mixed_plan(*chosen, preempted)

    def commit(self, plan: Plan) -> None:
        """Count the plan's tokens as computed; prompts that are whole now can be shared."""
        assert self._is_planned, "there is no plan to commit"
        self._is_planned = False
        num = self.num_live
        self.num_keys[slice(num) if plan.rows.size == num else plan.rows] += plan.nums
        if not self._prefilling:
            return
        for seq in list(self._prefilling):
            whole, has = int(self.num_known[seq.row]) - 1, int(self.num_keys[seq.row])
            if has >= whole:
                self._prefilling.discard(seq)
                self._cache(seq, whole)
            for follower in self.waiting.release(seq, None if has >= whole else has):
                self._wait(follower)

    def grow(self, rows: NDArray[np.integer]) -> None:
        """Count one more known token for each of these rows: they sampled."""
        self.num_known[rows] += 1

    def _steady_plan(self, preempted: list[Seq]) -> Plan:
        num = self.num_live
        starts = self.num_keys[:num].astype(np.int32)
        every_row, one_each, samples = self._every_row[:num], self._one_each[:num], self._all_sample[:num]
        return Plan(every_row, starts, one_each, samples, *self.place_one(), preempted)

    def _mixed_plan(self, rows: Ints, nums: Ints, preempted: list[Seq]) -> Plan:
        starts = self.num_keys[rows]
        pages, offsets = self.place(rows, nums)
        return Plan(
            rows=rows.astype(np.int32),
            starts=starts.astype(np.int32),
            nums=nums.astype(np.int32),
            samples=starts + nums == self.num_known[rows],
            pages=pages,
            offsets=offsets,
            preempted=preempted,
        )

    def _choose(self) -> tuple[Ints, Ints]:
        """Return the rows of the next pass, ascending, and how many tokens each computes."""
        left = self.left
        nums: Ints = (left == 1).astype(np.int64)
        spare = self.token_budget - int(nums.sum())
        for seq in sorted(self._prefilling, key=self.waiting.turn):
            if not nums[seq.row]:
                # One that others wait for leaves its last token to the next pass: the group decodes in step.
                most = int(left[seq.row]) - (seq in self.waiting.held)
                nums[seq.row] = min(most, spare)
                spare -= int(nums[seq.row])
        rows = np.flatnonzero(nums)
        return rows, nums[rows]

    # ------------------------------------------------------------------ memory

    def _has_pages(self, chosen: tuple[Ints, Ints] | None) -> bool:
        """Return whether the pages for these rows, or one token of each, are free, after evictions."""
        num = self.num_full if chosen is None else int(self.num_new_pages(*chosen).sum())
        lack = num - self.pool.num_free
        return lack <= 0 or self.tree.evict(lack) >= lack

    def _preempt(self) -> Seq:
        """Take its row from the sequence whose turn is last; its keys stay as a cached prefix for now."""
        assert self.num_live > 1, "one sequence alone does not fit into the pool"
        seq = max(self.seqs, key=lambda seq: seq.turn)
        self._save(seq)
        self._leave(seq)
        self._wait(seq)
        return seq

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
        self._prefilling.discard(seq)
        of_group = self._group_to_live[seq.group]
        del of_group[seq]
        if not of_group:
            del self._group_to_live[seq.group]
        row = seq.row
        last = self.close_row(row)
        if last != row and self._on_move is not None:
            self._on_move(last, row)
