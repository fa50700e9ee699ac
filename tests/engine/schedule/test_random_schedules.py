"""The scheduler under random operations, against dictionaries that remember every place."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from schedule_world import World

TEXT = st.lists(st.integers(0, 1), min_size=1, max_size=12)
GROUPS = st.sampled_from(["a", "b", "c"])


class Machine(RuleBasedStateMachine):
    """Oracle: slow reference. A few tokens and tiny pools, so that everything collides."""

    @initialize(
        num_pages=st.integers(2, 14),
        max_rows=st.integers(1, 5),
        more=st.integers(0, 8),
        page=st.sampled_from([1, 2, 4, 7]),
    )
    def begin(self, num_pages: int, max_rows: int, more: int, page: int) -> None:
        self.world = World(num_pages=num_pages, max_rows=max_rows, token_budget=max_rows + more, page=page)

    @rule(
        source=st.integers(0, 100),
        keep=st.integers(0, 30),
        more=TEXT,
        num_new=st.integers(1, 12),
        group=GROUPS,
        priority=st.integers(0, 1),
        num=st.integers(1, 3),
    )
    def add(
        self, source: int, keep: int, more: list[int], num_new: int, group: str, priority: int, num: int
    ) -> None:
        """Add sequences that begin like an earlier one, or like none."""
        world = self.world
        texts = list(world.tokens.values())
        begin = texts[source % len(texts)][:keep] if texts else []
        room = world.scheduler.num_pages * world.page
        tokens = [*begin, *more][:room]
        for _ in range(num):
            world.add(tokens, min(num_new, room - len(tokens) + 1), group, priority=priority)

    @rule(
        which=st.integers(0, 100), more=TEXT, num_new=st.integers(1, 12), num=st.integers(1, 3), group=GROUPS
    )
    def go_on(self, which: int, more: list[int], num_new: int, num: int, group: str) -> None:
        """Add the next turn of a sequence that ended, or several that go on from it."""
        world = self.world
        room = world.scheduler.num_pages * world.page
        texts = [text for name, text in world.tokens.items() if name not in world.open and len(text) < room]
        if texts:
            text = [*texts[-1 - which % len(texts)], *more][:room]
            for _ in range(num):
                world.add(text, min(num_new, room - len(text) + 1), group)

    @rule(num=st.integers(1, 6), sample=st.integers(0, 1))
    def step(self, num: int, sample: int) -> None:
        for _ in range(num):
            self.world.step(sample)
            self.world.check()

    @precondition(lambda self: self.world.scheduler.num_live and self.world.scheduler.is_steady)
    @rule(num=st.integers(0, 4), num_left=st.integers(0, 4), sample=st.integers(0, 1))
    def burst(self, num: int, num_left: int, sample: int) -> None:
        world = self.world
        to_end = min(world.end[name] - len(world.tokens[name]) for name in world.rows)
        num = min(num, to_end, world.page)
        had = world.scheduler.num_pages_free + world.scheduler.num_pages_cached
        lacks = int((world.scheduler.room[: world.scheduler.num_live] < num).sum())
        assert world.burst(num, max(0, num - num_left), sample) == (lacks <= had)

    @rule()
    def admit(self) -> None:
        self.world.admit()

    @precondition(lambda self: self.world.open)
    @rule(which=st.integers(0, 100))
    def remove(self, which: int) -> None:
        world = self.world
        world.remove(list(world.open.values())[which % len(world.open)])

    @precondition(lambda self: self.world.scheduler.seqs)
    @rule(which=st.integers(0, 100))
    def share(self, which: int) -> None:
        scheduler = self.world.scheduler
        scheduler.share_live(scheduler.seqs[which % scheduler.num_live])

    @rule(group=GROUPS)
    def retire(self, group: str) -> None:
        tree = self.world.scheduler.tree
        self.world.scheduler.retire(group)
        assert not any(group in node.groups for node in tree)

    @rule(between=st.booleans())
    def clear(self, between: bool) -> None:
        if between:  # the forward pass failed
            self.world.admit()
            self.world.plan()
        self.world.clear()
        scheduler = self.world.scheduler
        assert scheduler.num_pages_free == scheduler.num_pages

    @rule(more=st.integers(0, 3))
    def resize(self, more: int) -> None:
        self.world.scheduler.resize(self.world.scheduler.num_pages + more)

    @invariant()
    def check(self) -> None:
        if hasattr(self, "world"):
            self.world.check()

    def teardown(self) -> None:
        """Nobody starves: run to the end, every sequence ends."""
        if hasattr(self, "world") and not self.world.scheduler._is_planned:  # or a step failed
            self.world.run()
            self.world.check()


class TestMachine(Machine.TestCase):
    settings = settings(max_examples=50, stateful_step_count=25, deadline=None)


@pytest.mark.slow
@pytest.mark.timeout(600)
class TestMachineForLong(Machine.TestCase):
    settings = settings(max_examples=600, stateful_step_count=40, deadline=None)
