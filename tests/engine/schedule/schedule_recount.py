"""A slow count of what a scheduler holds, from its rows and its tree."""

from __future__ import annotations

from collections import Counter

import numpy as np

from rollwright.engine.schedule import Scheduler, Seq
from rollwright.engine.schedule.prefix import Node


class Recount:
    """What `World` knows, and the comparison of it with the scheduler."""

    page: int
    prefix_ids: dict[tuple[int, int], int]
    memory: dict[tuple[int, int], int]
    tokens: dict[str, list[int]]
    rows: list[str]
    open: dict[str, Seq]
    scheduler: Scheduler

    def prefix_numbers(self, tokens: list[int]) -> list[int]:
        """Return the number of each prefix of these tokens."""
        numbers, before = [], -1
        for token in tokens:
            before = self.prefix_ids.setdefault((before, token), len(self.prefix_ids))
            numbers.append(before)
        return numbers

    def spelled(self, row: int) -> list[int | None]:
        """Return the prefix numbers in the places that a row sees, in order."""
        scheduler, num = self.scheduler, int(self.scheduler.num_pages_of[row])
        runs = zip(scheduler.table[row, :num], scheduler.counts[row, :num], strict=True)
        return [self.memory.get((int(page), at)) for page, count in runs for at in range(count)]

    def references(self) -> tuple[Counter[int], Counter[int]]:
        """Count the references to each page, of live rows and of cached prefixes."""
        scheduler = self.scheduler
        live, cached = Counter[int](), Counter[int]()
        for row in range(scheduler.num_live):
            live.update(scheduler.table[row, : scheduler.num_pages_of[row]].tolist())
        for node in scheduler.tree:
            cached.update(node.pages.tolist())
        return live, cached

    def forget(self) -> None:
        """Forget what stood in pages that nobody refers to."""
        held = set().union(*self.references())
        self.memory = {place: number for place, number in self.memory.items() if place[0] in held}

    def check(self) -> None:
        """Compare the scheduler with what a slow count finds; between two passes."""
        scheduler, pool = self.scheduler, self.scheduler.pool
        self.forget()
        live, cached = self.references()
        num_pages = scheduler.num_pages
        assert pool.refs[0].tolist() == [live[p] for p in range(num_pages)]
        assert pool.refs[1].tolist() == [cached[p] for p in range(num_pages)]
        assert sorted(pool.free.tolist()) == sorted(set(range(num_pages)) - set(live) - set(cached))
        assert scheduler.num_pages_live == len(live)
        assert scheduler.num_pages_cached == len(set(cached) - set(live))
        assert (
            scheduler.num_pages_free
            == num_pages - scheduler.num_pages_live - scheduler.num_pages_cached
            == pool.free.size
        )
        self._check_rows(live)
        self._check_tree()
        self._check_waiting()

    def _check_rows(self, live: Counter[int]) -> None:
        scheduler, pool = self.scheduler, self.scheduler.pool
        assert self.rows == [seq.name for seq in scheduler.seqs]
        writers = Counter[int]()
        written = Counter(page for page, _ in self.memory)
        for row, seq in enumerate(scheduler.seqs):
            num = int(scheduler.num_pages_of[row])
            numbers = self.prefix_numbers(self.tokens[seq.name])
            assert seq.row == row and scheduler.num_known[row] == len(numbers)
            assert self.spelled(row) == numbers[: scheduler.num_keys[row]]
            assert not scheduler.counts[row, num:].any() and not scheduler.table[row, num:].any()
            assert num + -(-(seq.max_keys - scheduler.num_keys[row] - scheduler.room[row]) // self.page) <= (
                scheduler.num_pages
            ), "it could not end alone"
            if scheduler.room[row]:
                page, count = int(scheduler.table[row, num - 1]), int(scheduler.counts[row, num - 1])
                assert scheduler.room[row] == self.page - count and written[page] == count
                writers[page] += 1
        assert max(writers.values(), default=1) == 1, "a page has two writers"
        for page in range(scheduler.num_pages):
            if written[page]:
                assert pool.used[page] >= written[page]

    def _check_tree(self) -> None:
        tree = self.scheduler.tree
        nodes = list(tree)
        assert tree.num_nodes == len(nodes)
        for node in nodes:
            assert node.tokens.size and node.parent is not None
            assert node.parent.children[int(node.tokens[0])] is node
            assert int(node.counts.sum()) == node.lead + node.tokens.size and 0 <= node.lead < node.counts[0]
            assert node.groups and (node.parent is tree.root or node.groups <= node.parent.groups)
            assert all(node in tree._group_to_nodes[group] for group in node.groups)
            tokens = self.tokens_to(node)
            num, pages, counts = tree.match(np.array(tokens))
            places = [(int(p), at) for p, c in zip(pages, counts, strict=True) for at in range(c)]
            assert num == len(tokens)
            assert [self.memory.get(place) for place in places] == self.prefix_numbers(tokens)
        of_groups = [node for of_group in tree._group_to_nodes.values() for node in of_group]
        assert len(of_groups) == sum(len(node.groups) for node in nodes)

    def _check_waiting(self) -> None:
        scheduler = self.scheduler
        turns = [seq.turn for seq in scheduler.waiting.queue]
        assert turns == sorted(turns)
        held = [seq for followers in scheduler.waiting.held.values() for _, seq in followers]
        assert all(leader in scheduler._prefilling for leader in scheduler.waiting.held)
        everyone = [*scheduler.seqs, *scheduler.waiting.queue, *held]
        assert sorted(seq.name for seq in everyone) == sorted(self.open)
        for seq in [*scheduler.waiting.queue, *held]:
            assert seq.row == -1 and seq.tokens.tolist() == self.tokens[seq.name]

    @staticmethod
    def tokens_to(node: Node | None) -> list[int]:
        """Return all tokens from the root to the end of a node."""
        tokens: list[int] = []
        while node is not None:
            tokens = node.tokens.tolist() + tokens
            node = node.parent
        return tokens
