"""An engine without a model: it carries out plans in dictionaries and checks every place they name."""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray
from schedule_recount import Recount

from rollwright.engine.schedule import Plan, Scheduler, Seq
from rollwright.engine.schedule.burst import reserve, settle


class World(Recount):
    """The slow truth about a scheduler.

    A prefix of tokens has a number of its own (``prefix_ids``: number of what is before it, and the token),
    so a key is right if the place that holds it says the number of the prefix that it was computed from.
    ``memory`` maps (page, offset) to that number. A page that nobody refers to is forgotten, by a recount.
    """

    def __init__(self, *, num_pages: int, max_rows: int, token_budget: int, page: int = 4) -> None:
        self.page = page
        self.prefix_ids: dict[tuple[int, int], int] = {}
        self.memory: dict[tuple[int, int], int] = {}
        self.tokens: dict[str, list[int]] = {}  # all known tokens of every sequence that was added
        self.end: dict[str, int] = {}  # the length at which each ends
        self.rows: list[str] = []  # the engine's own column
        self.open: dict[str, Seq] = {}
        self.num_computed: Counter[str] = Counter()
        self.num_left_early = 0
        self.scheduler = Scheduler(
            num_pages=num_pages,
            max_rows=max_rows,
            token_budget=token_budget,
            page=page,
            tokens_of=lambda seq: np.array(self.tokens[seq.name]),
            on_move=self._move,
            on_leave=self._save,
        )
        self._take = self.scheduler.pool.take
        self.scheduler.pool.take = self._forget_taken  # type: ignore[method-assign]

    # ------------------------------------------------------------------ the engine's side

    def add(
        self, tokens: list[int], num_new: int, group: str = "g", *, name: str = "", priority: int = 0
    ) -> Seq:
        """Add a sequence that samples ``num_new`` tokens."""
        number = len(self.tokens)
        name = name or f"s{number}"
        seq = Seq(name, group, number, np.array(tokens), len(tokens) + num_new - 1, priority)
        self.tokens[name], self.end[name], self.open[name] = list(tokens), len(tokens) + num_new, seq
        self.scheduler.add(seq)
        return seq

    def admit(self) -> list[Seq]:
        admitted = self.scheduler.admit()
        for seq in admitted:
            assert seq.row == len(self.rows), "rows are handed out in order"
            self.rows.append(seq.name)
        return admitted

    def remove(self, seq: Seq) -> None:
        was_live = seq.row >= 0
        self.scheduler.remove(seq)
        if was_live:
            self.rows.pop()
        del self.open[seq.name]

    def plan(self) -> Plan:
        scheduler = self.scheduler
        live = {seq: self._wanted(seq) for seq in scheduler.seqs}
        num_to_have = scheduler.num_pages_free + scheduler.num_pages_cached
        turns = {seq: scheduler.waiting.turn(seq) for seq in live}
        pages = {seq: self._pages_of(seq) for seq in live}
        chosen = self.choice(live, turns)
        plan = scheduler.plan()
        del self.rows[len(self.rows) - len(plan.preempted) :]
        self._check_victims(plan, chosen, pages, num_to_have)
        live = {seq: n for seq, n in live.items() if seq.row >= 0}
        self._check_choice(plan, live, turns)
        return plan

    def clear(self) -> list[Seq]:
        live = self.scheduler.clear()
        self.rows.clear()
        return live

    def step(self, sample: int = 0) -> Plan:
        """Run one pass: every row that may sample gets a token, and those at their end are removed."""
        self.admit()
        plan = self.plan()
        self.compute(plan)
        self.scheduler.commit(plan)
        rows = plan.rows[plan.samples]
        names = [self.rows[row] for row in rows]
        self.scheduler.grow(rows)
        for name in names:
            self.tokens[name].append(sample)
        for name in names:
            if len(self.tokens[name]) == self.end[name]:
                self.remove(self.open[name])
        return plan

    def burst(self, num_steps: int, num_done: int, sample: int = 0) -> bool:
        """Decode ``num_done`` tokens of every row as a kernel does; False if there are no pages for them."""
        scheduler = self.scheduler
        reserved = reserve(scheduler, num_steps)
        if reserved is None:
            return False
        for _ in range(num_done):
            for row, name in enumerate(self.rows):
                if not scheduler.room[row]:
                    scheduler.num_pages_of[row] += 1
                    scheduler.room[row] = self.page
                last = int(scheduler.num_pages_of[row]) - 1
                place = int(scheduler.table[row, last]), int(scheduler.counts[row, last])
                assert place not in self.memory, f"{place} is written a second time"
                self.memory[place] = self.prefix_numbers(self.tokens[name])[-1]
                scheduler.counts[row, last] += 1
                scheduler.room[row] -= 1
                self.num_computed[name] += 1
                self.tokens[name].append(sample)
        settle(scheduler, reserved, num_done)
        for name in self.rows.copy():
            if len(self.tokens[name]) == self.end[name]:
                self.remove(self.open[name])
        return True

    def run(self, max_steps: int = 10_000) -> int:
        """Step until nothing is open; return the number of passes."""
        for num in range(max_steps):
            if not self.open:
                return num
            assert self.step().rows.size, "a pass computes nothing while sequences wait"
        raise AssertionError(f"{sorted(self.open)} never end")

    # ------------------------------------------------------------------ what a plan must be

    def _wanted(self, seq: Seq) -> int:
        """Return the tokens of a live sequence that are known and not computed."""
        return len(self.tokens[seq.name]) - int(self.scheduler.num_keys[seq.row])

    def _pages_of(self, seq: Seq) -> tuple[int, int]:
        """Return the pages that a row holds, and the room in the last of them."""
        return int(self.scheduler.num_pages_of[seq.row]), int(self.scheduler.room[seq.row])

    def choice(self, live: dict[Seq, int], turns: dict[Seq, tuple[int, int]]) -> dict[Seq, int]:
        """Return the tokens that each sequence computes: whoever decodes, then prefill by turn.

        A row that others are held back for leaves its last token to the pass in which they join.
        """
        leads = self.scheduler.waiting.held
        chosen = {seq: 1 for seq, wanted in live.items() if wanted == 1}
        spare = self.scheduler.token_budget - len(chosen)
        for seq in sorted((s for s, wanted in live.items() if wanted > 1), key=turns.__getitem__):
            if num := min(live[seq] - (seq in leads), spare):
                chosen[seq], spare = num, spare - num
        return chosen

    def _check_choice(self, plan: Plan, live: dict[Seq, int], turns: dict[Seq, tuple[int, int]]) -> None:
        assert plan.nums.sum() <= self.scheduler.token_budget
        given = {self.scheduler.seqs[row]: num for row, num in zip(plan.rows, plan.nums, strict=True)}
        assert given == self.choice(live, turns)

    def _check_victims(
        self, plan: Plan, chosen: dict[Seq, int], pages: dict[Seq, tuple[int, int]], num_to_have: int
    ) -> None:
        """Only the last turns lose their rows, and only where the pages to be had did not do."""
        last_first = sorted(pages, key=lambda seq: seq.turn, reverse=True)
        assert plan.preempted == last_first[: len(plan.preempted)]
        for seq in plan.preempted:
            assert seq.tokens.tolist() == self.tokens[seq.name]
        if plan.preempted:
            lacks = sum(-(-max(0, num - pages[seq][1]) // self.page) for seq, num in chosen.items())
            assert lacks > num_to_have

    def _forget_taken(self, num: int) -> NDArray[np.int32]:
        """Take pages; nobody may refer to one of them at that moment."""
        self.forget()
        pages = self._take(num)
        assert not {page for page, _ in self.memory} & set(pages.tolist()), "a page in use is taken"
        return pages

    def _move(self, source: int, target: int) -> None:
        self.rows[target] = self.rows[source]
        self.rows[source] = "?"

    def _save(self, seq: Seq) -> None:
        assert self.rows[seq.row] == seq.name, "it is told while the row is still its own"
        self.num_left_early += 1
        self.rows[seq.row] = "?"

    # ------------------------------------------------------------------ what a pass computes

    def compute(self, plan: Plan) -> None:
        """Write the plan's keys where it says; every row must see exactly the keys of its tokens."""
        scheduler, at = self.scheduler, 0
        self.forget()
        assert list(plan.rows) == sorted(set(plan.rows))
        for row, start, num, samples in zip(plan.rows, plan.starts, plan.nums, plan.samples, strict=True):
            name = self.rows[row]
            numbers = self.prefix_numbers(self.tokens[name])
            assert scheduler.seqs[row].name == name and scheduler.num_known[row] == len(numbers)
            assert start == scheduler.num_keys[row] and samples == (start + num == len(numbers))
            for position in range(start, start + num):
                place = int(plan.pages[at]), int(plan.offsets[at])
                assert place not in self.memory, f"{place} is written a second time"
                self.memory[place] = numbers[position]
                at += 1
            assert self.spelled(int(row)) == numbers[: start + num]
            self.num_computed[name] += int(num)
        assert at == plan.pages.size == plan.offsets.size


def world(num_pages: int = 1000, max_rows: int = 64, token_budget: int = 512, page: int = 16) -> World:
    """Return a world, ample unless said otherwise."""
    return World(num_pages=num_pages, max_rows=max_rows, token_budget=token_budget, page=page)


def num_computed(w: World) -> int:
    """Return the tokens that were computed, of all sequences."""
    return sum(w.num_computed.values())
