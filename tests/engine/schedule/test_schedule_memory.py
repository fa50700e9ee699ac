"""Who joins, who loses a row, and what is evicted when pages are few."""

from __future__ import annotations

import pytest
from schedule_world import num_computed, world


def test_cached_prefixes_are_evicted_before_anyone_loses_a_row():
    """Oracle: hand. 8 pages of 4: a finished sequence's 4 pages go, one by one, oldest last."""
    w = world(num_pages=8, page=4, max_rows=4)
    w.add([9] * 13, num_new=1)
    w.run()
    assert w.scheduler.num_pages_cached == 4
    w.add([1] * 4, num_new=28, group="h")
    w.run()
    assert w.num_left_early == 0 and num_computed(w) == 13 + 31


def test_under_pressure_the_last_in_turn_loses_its_row_and_goes_on_later():
    """Oracle: hand. Three rows of up to 20 keys in 12 pages of 4: the last waits for one to end.

    It had 16 keys when pages ran out. Two pages were evicted for the others; the other 8 keys it finds again.
    """
    w = world(num_pages=12, page=4, max_rows=4)
    for i in range(3):
        w.add([i], num_new=20, group=str(i))
    victims = [(seq.name, seq.tokens.size) for _ in range(30) for seq in w.step().preempted]
    assert victims == [("s2", 17)]
    w.run()
    w.check()
    assert w.num_computed["s0"] == w.num_computed["s1"] == 20
    assert w.num_computed["s2"] == 20 + 8


def test_the_first_in_turn_never_loses_its_row():
    """Oracle: metamorphic. It takes as many passes in a crowd as alone, whatever is done to the others."""

    def num_steps(crowd: int) -> int:
        w = world(num_pages=10, page=2, max_rows=8)
        first = w.add([0, 1], num_new=18, group="first", priority=1)
        for i in range(crowd):
            w.add([i % 3, 2, i % 2], num_new=16, group=str(i % 2))
        num = 0
        while first.name in w.open:
            w.step()
            num += 1
        assert (w.num_left_early > 0) == (crowd > 0)
        w.run()
        return num

    assert num_steps(0) == num_steps(6)


def test_a_victim_stays_out_until_somebody_ends():
    """Oracle: hand. Its keys and a page to go on are more than what it left, so it cannot come and go."""
    w = world(num_pages=12, page=4, max_rows=4)
    for i in range(3):
        w.add([i], num_new=20 + 4 * (i == 0), group=str(i))
    while not w.step().preempted:
        pass
    while "s1" in w.open:
        assert not w.admit()
        w.step()
    w.step()
    assert w.scheduler.num_live == 2
    assert w.num_left_early == 1


def test_admission_needs_room_for_the_whole_prefix_and_a_page_for_each_row():
    """Oracle: hand. Of 10 pages of 4, a row has 2; six for a prefix less a token and two to go on fit."""
    for num, joins in ((25, True), (26, False)):
        w = world(num_pages=10, page=4, max_rows=4)
        w.add([1] * 8, num_new=9, group="a")
        w.step()
        w.add([2] * num, num_new=1, group="b")
        w.add([3], num_new=1, group="c")
        assert len(w.admit()) == joins, "and nobody overtakes the one that lacks memory"
        w.run()


def test_cached_pages_that_are_taken_over_are_not_counted_as_free():
    """Oracle: hand. 8 pages of 4: 5 are cached and wanted, 2 live, so that one is left for two rows."""
    w = world(num_pages=8, page=4, max_rows=4)
    w.add([1] * 20, num_new=1, group="a")
    w.run()
    w.add([2] * 8, num_new=9, group="b")
    w.step()
    assert (w.scheduler.num_pages_cached, w.scheduler.num_pages_live) == (5, 2)
    w.add([1] * 20, num_new=5, group="a")
    assert not w.admit()
    w.run()


def test_one_that_fills_the_whole_pool_runs_alone():
    """Oracle: hand. 8 tokens in 2 pages of 4: no page is left to go on in, and none is needed."""
    w = world(num_pages=2, page=4, max_rows=2)
    w.add([1] * 8, num_new=1)
    w.add([2] * 2, num_new=7)
    w.run()
    assert num_computed(w) == 16


def test_short_runs_do_not_keep_one_alone_from_its_end():
    """Oracle: hand. Forks of forks put one token into each page; one that follows needs the whole pool."""
    w = world(num_pages=6, page=4, max_rows=2)
    for i in range(1, 6):
        w.add([*range(i), 99 - i], num_new=1)
        w.run()
    w.add([*range(6)], num_new=19)
    w.run()
    w.check()


def test_a_burst_takes_the_pages_of_cached_prefixes():
    """Oracle: hand. 8 pages of 4, 4 of them cached, 4 live: two rows may run 4 steps, once and again."""
    w = world(num_pages=8, page=4, max_rows=2)
    w.add([9] * 16, num_new=1)
    w.run()
    for i in range(2):
        w.add([i] * 8, num_new=17, group=str(i))
    w.step()
    scheduler = w.scheduler
    assert (scheduler.num_pages_free, scheduler.num_pages_cached) == (0, 4)
    for left in (2, 0):
        assert w.burst(4, 4)
        w.check()
        assert scheduler.num_pages_cached == left
    assert not w.burst(4, 4) and scheduler.num_pages_live == 8


@pytest.mark.parametrize("num_done", [0, 1, 2, 4])
def test_a_burst_gives_back_the_pages_that_nobody_reached(num_done):
    """Oracle: hand. Rows have room for 2 of 4 tokens: the reserved pages stay from the third on."""
    w = world(page=4, max_rows=2)
    for i in range(2):
        w.add([i] * 6, num_new=17, group=str(i))
    w.step()
    assert w.burst(4, num_done)
    w.check()
    assert w.scheduler.num_pages_live == 2 * (3 if num_done > 2 else 2)
    w.run()


@pytest.mark.parametrize("which", ["row", "head"])
def test_who_lacks_memory_is_looked_at_again_when_somebody_goes(which):
    """Oracle: hand. Nothing fits behind a large one, until a row ends or the large one is aborted."""
    w = world(num_pages=8, page=4, max_rows=4)
    row = w.add([1] * 12, num_new=5, group="a")
    w.step()
    head = w.add([2] * 24, num_new=1, group="b")
    w.add([3] * 4, num_new=1, group="c")
    assert not w.admit()
    assert not w.admit()
    w.remove(row if which == "row" else head)
    assert [seq.name for seq in w.admit()] == (["s1"] if which == "row" else ["s2"])
    w.run()


def test_more_pages_let_the_next_one_in():
    """Oracle: hand."""
    w = world(num_pages=4, page=4, max_rows=4)
    w.add([1] * 8, num_new=5, group="a")
    w.step()
    w.add([2] * 8, num_new=1, group="b")
    assert not w.admit()
    w.scheduler.resize(8)
    assert len(w.admit()) == 1
    w.check()
    w.run()
