"""The slot table against a dictionary that remembers which keys every entry must hold."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rollwright.engine.slots import Entry, Moves, SlotTable
from rollwright.events import Submit
from rollwright.tree import Sampling

LENGTH = 12


class Machine:
    """Applies operations to a table and to an array that stands for the KV cache."""

    def __init__(self, num_slots: int) -> None:
        self.table = SlotTable()
        self.table.resize(num_slots, LENGTH)
        self.cache = np.full((num_slots, LENGTH), -9)
        self.name_to_tokens: dict[str, list[int]] = {}
        self.num_made = 0

    def move(self, moves: Moves) -> None:
        taken = self.cache[moves.sources, : moves.length].copy()
        self.cache[moves.targets, : moves.length] = taken

    def join(self, num: int, group: int, tokens: list[int]) -> None:
        num = min(num, self.table.num_slots - self.table.num_live)
        self.move(self.table.make_room(num))
        for i in range(num):
            name = f"a{self.num_made}"
            self.num_made += 1
            command = Submit(
                ask=name,
                group=f"g{group}",
                parent="p",
                at=0,
                stream=0,
                start=0,
                max_tokens=1,
                sampling=Sampling(),
            )
            slot = self.table.num_live + i
            self.table.place(Entry(command, self.num_made, np.array(tokens), 0), slot)
            own = [*tokens, self.num_made % 3]
            self.table.set(slot, keys=len(own), number=self.num_made)
            self.table.tokens[slot, : len(own)] = own
            self.cache[slot, : len(own)] = own
            self.name_to_tokens[name] = own
        self.table.num_live += num

    def end(self, picks: list[int]) -> None:
        rows = {p % self.table.num_live for p in picks} if self.table.num_live else set()
        self.move(self.table.park(rows))

    def check(self) -> None:
        table = self.table
        for slot, entry in enumerate(table.entries):
            if entry is None:
                assert slot >= table.num_live, "a hole among the live rows"
                continue
            own = self.name_to_tokens[entry.command.ask]
            assert entry.slot == slot
            assert table.num_keys(entry) == len(own)
            assert table.ints[-1, slot] == entry.number
            assert list(table.tokens[slot, : len(own)]) == own
            assert list(self.cache[slot, : len(own)]) == own
        indexed = [e for entries in table.group_to_entries.values() for e in entries]
        assert sorted(map(id, indexed)) == sorted(id(e) for e in table.entries if e is not None)

    def check_find(self, group: int, wanted: list[int]) -> None:
        def shared(entry: Entry) -> int:
            own = self.name_to_tokens[entry.command.ask]
            pairs = zip(own, wanted, strict=False)
            return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(own), len(wanted)))

        of_group = [e for e in self.table.entries if e is not None and e.command.group == f"g{group}"]
        best = max((shared(e) for e in of_group), default=0)
        entry, num = self.table.find(f"g{group}", np.array(wanted, dtype=np.int64))
        assert num == best and (entry is None) == (best == 0)
        assert entry is None or shared(entry) == num


TOKENS = st.lists(st.integers(0, 2), min_size=1, max_size=LENGTH - 1)
OPERATIONS = st.one_of(
    st.tuples(st.just("join"), st.integers(1, 4), st.integers(0, 2), TOKENS),
    st.tuples(st.just("end"), st.lists(st.integers(0, 20), min_size=1, max_size=4)),
    st.tuples(st.just("retire"), st.integers(0, 2)),
    st.tuples(st.just("find"), st.integers(0, 2), st.lists(st.integers(0, 2), max_size=LENGTH + 2)),
    st.tuples(st.just("resize"), st.integers(0, 5)),
)


@settings(max_examples=150, deadline=None)
@given(st.integers(3, 9), st.lists(OPERATIONS, max_size=25))
def test_keys_follow_their_entries(num_slots, operations):
    """Oracle: a dict from ask to tokens. Broken by: moving a parked entry's columns but not its keys."""
    machine = Machine(num_slots)
    for name, *arguments in operations:
        if name == "join":
            machine.join(*arguments)
        elif name == "end":
            machine.end(*arguments)
        elif name == "retire":
            machine.table.retire(f"g{arguments[0]}")
            assert all(e.command.group != f"g{arguments[0]}" for e in machine.table.parked)
        elif name == "resize":
            num = machine.table.num_live + arguments[0]
            machine.table.resize(num, LENGTH)
            grown = np.full((num, LENGTH), -9)
            grown[: machine.cache.shape[0]] = machine.cache[:num]
            machine.cache = grown
        else:
            machine.check_find(*arguments)
        machine.check()


def test_the_least_recently_used_makes_room():
    """Oracle: closed form: three parked, one slot for them, the one that was looked up stays."""
    machine = Machine(3)
    for group in range(3):
        machine.join(1, group, [group, group])
    machine.end([0, 1, 2])
    machine.table.find("g1", np.array([1, 1]))
    machine.join(2, 0, [2])
    assert [e.command.group for e in machine.table.parked] == ["g1"]
    machine.check()
