"""What the scheduler promises to an engine: who goes when, and what is computed how often."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from schedule_lines import num_lines
from schedule_world import World

from rollwright.errors import EngineError


def world(num_pages: int = 1000, max_rows: int = 64, token_budget: int = 512, page: int = 16) -> World:
    return World(num_pages=num_pages, max_rows=max_rows, token_budget=token_budget, page=page)


def num_computed(w: World) -> int:
    return sum(w.num_computed.values())


# ------------------------------------------------------------------ sharing


@pytest.mark.parametrize("token_budget", [16, 50, 512])
def test_a_group_prompt_is_computed_once(token_budget):
    """Oracle: closed form. 100 prompt tokens once (less the last), then one token for each one sampled."""
    w = world(token_budget=token_budget, max_rows=16)
    for _ in range(16):
        w.add(list(range(100)), num_new=5)
    w.run()
    w.check()
    assert num_computed(w) == 99 + 16 * 5


@settings(max_examples=40, deadline=None)
@given(
    texts=st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=20), min_size=1, max_size=12),
    token_budget=st.integers(12, 40),
)
def test_with_ample_memory_nothing_is_computed_twice(texts, token_budget):
    """Oracle: closed form. One group: each distinct prefix once, and the last token of each sequence."""
    w = world(token_budget=token_budget, max_rows=12)
    for text in texts:
        w.add(text, num_new=1)
    w.run()
    inner = {tuple(t[:i]) for t in texts for i in range(1, len(t))}
    assert num_computed(w) <= len(inner) + len(texts)
    assert num_computed(w) >= len(inner | {tuple(t) for t in texts})


def test_64_forks_of_2000_tokens_compute_64_tokens_and_take_pages_of_their_own_only():
    """Oracle: closed form. Nothing is prefilled, no page is copied: one page for each child's own tokens."""
    w = world(num_pages=1000, max_rows=65, token_budget=4096)
    parent = w.add(list(range(2000)), num_new=400)
    w.step()
    w.step()
    before, pages_before = num_computed(w), w.scheduler.num_pages_live
    for _ in range(64):
        w.add(list(range(2000)), num_new=10)
    plan = w.step()
    w.check()
    assert plan.rows.size == 65 and (plan.nums == 1).all() and plan.samples.all()
    assert num_computed(w) - before == 65
    assert w.scheduler.num_pages_live - pages_before == 64
    assert parent.row == 0


def test_a_fork_of_a_live_parent_takes_over_what_it_sampled():
    """Oracle: closed form. The fork is cut inside a page, 20 tokens after the prompt's 30."""
    w = world()
    w.add(list(range(30)), num_new=100)
    for _ in range(40):
        w.step()
    fork = w.add(w.tokens["s0"][:50], num_new=3)
    w.step()
    assert fork.num_cached == 49 and w.num_computed[fork.name] == 1
    w.run()
    w.check()


def test_the_next_turn_of_a_dialogue_computes_what_is_new():
    """Oracle: closed form. The turn before left its keys but for its last token, which was never fed."""
    w = world(page=4)
    first = w.add(list(range(10)), num_new=8)
    w.run()
    turn = w.add([*w.tokens[first.name], 5, 6, 7], num_new=4)
    w.run()
    assert turn.num_cached == 17 and w.num_computed[turn.name] == 4 + 3
    pages = [page for node in w.scheduler.tree for page in node.pages.tolist()]
    assert len(set(pages)) == 6, "it goes on in the partly filled page: 24 keys in 6 pages of 4"


def test_a_prompt_that_groups_share_is_computed_once_from_a_page_on():
    """Oracle: closed form. Eight tasks arrive at once under one system prompt of 64 tokens."""
    w = world()
    for i in range(8):
        w.add([*range(64), 100 + i, 200 + i], num_new=1, group=f"task{i}")
    w.run()
    assert num_computed(w) == 64 + 8 * 2


def test_few_common_tokens_hold_no_other_group_back():
    """Oracle: hand. A begin token in common is no reason to wait."""
    w = world()
    for i in range(8):
        w.add([0, 100 + i, 200 + i], num_new=1, group=f"task{i}")
    assert w.step().rows.size == 8


def test_those_held_back_let_others_go_first():
    """Oracle: hand. While a long prompt is computed in chunks, other work fills the pass."""
    w = world(token_budget=32, max_rows=32)
    for _ in range(3):
        w.add(list(range(100)), num_new=2)
    other = w.add([7, 8, 9], num_new=2, group="other")
    names = [w.rows[row] for _ in range(4) for row in w.step().rows]
    assert "s0" in names and other.name in names
    assert not {"s1", "s2"} & set(names)
    w.run()
    assert num_computed(w) == 99 + 3 * 2 + 4


def test_a_follower_that_needs_a_part_goes_on_when_that_part_is_there():
    """Oracle: hand. It shares 40 of its leader's 100 tokens, and joins after 64 of them."""
    w = world(token_budget=64, max_rows=8)
    w.add(list(range(100)), num_new=1)
    follower = w.add([*range(40), 7, 7], num_new=1)
    w.step()
    w.check()
    assert follower.row == -1
    w.admit()
    assert follower.row == 1 and follower.num_cached == 40
    w.run()


def test_a_row_that_others_wait_for_starts_to_decode_with_them():
    """Oracle: hand. The prompt is one pass; in the next all four sample their first token."""
    w = world()
    for _ in range(4):
        w.add(list(range(20)), num_new=3)
    assert not w.step().samples.any()
    plan = w.step()
    assert plan.rows.size == 4 and plan.samples.all()


@pytest.mark.parametrize("live", [True, False])
def test_when_a_leader_ends_the_next_one_leads(live):
    """Oracle: hand. Abort the leader in mid-prompt: what it computed is not lost, and nobody waits on."""
    w = world(token_budget=8, max_rows=8, page=4)
    seqs = [w.add(list(range(40)), num_new=2) for _ in range(3)]
    if live:
        w.step()
        w.step()
    w.remove(seqs[0])
    w.run()
    w.check()
    assert w.num_computed["s0"] == (16 if live else 0)
    assert num_computed(w) == 39 + 2 * 2


def test_followers_can_be_removed():
    """Oracle: hand."""
    w = world(token_budget=64)
    seqs = [w.add(list(range(100)), num_new=2) for _ in range(4)]
    w.step()
    assert w.scheduler.num_waiting == 3
    w.remove(seqs[2])
    w.check()
    assert w.scheduler.num_waiting == 2
    w.run()
    with pytest.raises(AssertionError, match="does not wait"):
        w.scheduler.remove(seqs[2])


# ------------------------------------------------------------------ order


def test_decoding_comes_before_prefill_and_prefill_fills_the_budget():
    """Oracle: hand. Budget 10: three rows decode, seven tokens are left for a prompt of 30."""
    w = world(token_budget=10, max_rows=8)
    for i in range(3):
        w.add([i], num_new=20)
    w.step()
    w.add(list(range(100, 130)), num_new=2, priority=9)
    plans = [w.step() for _ in range(5)]
    assert [p.nums.tolist() for p in plans] == [[1, 1, 1, 7]] * 4 + [[1, 1, 1, 2]]
    assert [bool(p.samples[3]) for p in plans] == [False] * 4 + [True]


def test_larger_priorities_join_first_and_ties_go_by_number():
    """Oracle: hand. Two rows only; priorities 0, 1, 0, 1, 2."""
    w = world(max_rows=2)
    for i, priority in enumerate([0, 1, 0, 1, 2]):
        w.add([i], num_new=1, priority=priority, group=str(i))
    order = []
    while w.open:
        order.append([seq.number for seq in w.admit()])
        w.step()
    assert order == [[4, 1], [3, 0], [2]]


def test_an_urgent_prompt_does_not_wait_for_a_long_one():
    """Oracle: hand. 1,000 tokens of low priority are left; the urgent one joins and is computed at once."""
    w = world(token_budget=10, max_rows=4)
    w.add(list(range(1000)), num_new=1)
    w.step()
    later = w.add([5] * 8, num_new=1, group="b")
    urgent = w.add([7] * 8, num_new=1, group="c", priority=1)
    assert w.step().nums.tolist() == [2, 8]
    assert urgent.name not in w.open and later.row == -1


def test_prefill_goes_by_turn_and_whom_one_waits_for_inherits_the_turn():
    """Oracle: hand. An urgent ask waits for the keys that a row of low priority computes."""
    w = world(token_budget=10, max_rows=10, page=4)
    w.add(list(range(9)), num_new=1, group="x")
    w.add([5] * 30, num_new=1, group="y")
    assert w.step().nums.tolist() == [9, 1]
    w.add([*range(50, 60)], num_new=1, group="z", priority=1)
    urgent = w.add([5] * 20, num_new=1, group="y", priority=2)
    plan = w.step()
    assert [w.rows[row] for row in plan.rows] == ["s1"]
    w.step()
    w.step()
    assert w.num_computed[urgent.name] == 1
    w.run()


def test_no_more_join_than_the_budget_can_begin_with():
    """Oracle: hand. A row without a token in this pass only holds memory."""
    w = world(token_budget=16, max_rows=16)
    for i in range(10):
        w.add([i] * 12, num_new=1, group=str(i))
    assert [seq.number for seq in w.admit()] == [0, 1]


# ------------------------------------------------------------------ memory


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


def test_w01_nothing_cached_survives_new_weights():
    """Oracle: hand, case W01. After `clear` all is computed again, in the old order."""
    w = world(max_rows=2, page=4)
    prompts = [[i] * 9 for i in range(4)]
    for i, prompt in enumerate(prompts):
        w.add(prompt, num_new=4, group=str(i), priority=i % 2)
    w.step()
    w.step()
    live = [seq.name for seq in w.clear()]
    assert live == ["s1", "s3"]
    w.check()
    assert w.scheduler.num_pages_free == w.scheduler.num_pages
    before = w.num_computed["s1"]
    admitted = w.admit()
    assert [(seq.name, seq.num_cached) for seq in admitted] == [("s1", 0), ("s3", 0)]
    w.run()
    again = w.add(prompts[1], num_new=1, group="1")
    w.admit()
    assert again.num_cached == 8, "what the new weights computed is cached"
    assert w.num_computed["s1"] == before + 9 + 4 - 1


def test_retire_frees_a_group_and_leaves_the_others():
    """Oracle: hand."""
    w = world(page=4)
    for group in "ab":
        w.add([0] * 8 + [ord(group)] * 8, num_new=1, group=group)
    w.run()
    before = w.scheduler.num_pages_cached
    w.scheduler.retire("a")
    assert before - w.scheduler.num_pages_cached == 2
    w.check()


# ------------------------------------------------------------------ cost, and what is refused


def test_the_steady_state_runs_no_python_per_row():
    """Oracle: metamorphic. 64 rows or 2, with pages to take or without: the same number of lines run."""

    def lines(num_rows: int, num_steps: int) -> int:
        w = world(max_rows=num_rows)
        for i in range(num_rows):
            w.add([i] * 3, num_new=100, group=str(i))
        for _ in range(num_steps):
            w.step()
        scheduler = w.scheduler
        scheduler.pool.take = w._take  # without the world's look at it

        def one_pass() -> None:
            scheduler.admit()
            plan = scheduler.plan()
            scheduler.commit(plan)
            scheduler.grow(plan.rows)

        return num_lines(one_pass)

    for num_steps in (5, 14):  # the 17th key needs a page
        assert lines(64, num_steps) == lines(2, num_steps) < 70
    assert lines(2, 14) > lines(2, 5)


def test_no_python_per_token_of_a_prompt():
    """Oracle: metamorphic. A prompt a hundred times as long costs the same number of lines."""

    def lines(num: int) -> int:
        w = world(num_pages=num, token_budget=num)
        w.add(list(range(num)), num_new=1)

        def one_pass() -> None:
            w.scheduler.admit()
            w.scheduler.commit(w.scheduler.plan())

        return num_lines(one_pass)

    assert lines(170) == lines(17_000)


def test_a_plan_is_the_engines_to_read_only():
    """Oracle: hand. A steady plan shares arrays with the next ones."""
    w = world()
    w.add([1], num_new=9)
    plan = w.step()
    for column in (plan.rows, plan.nums, plan.samples):
        with pytest.raises(ValueError, match="read-only"):
            column[0] = 1


def test_what_cannot_work_is_refused():
    """Oracle: hand."""
    with pytest.raises(EngineError, match="budget of 3 is smaller than 4 rows"):
        world(max_rows=4, token_budget=3)
    w = world(num_pages=2, page=4)
    with pytest.raises(AssertionError, match="can never fit"):
        w.add([1] * 4, num_new=6)
    w = world()
    w.add([1, 2], num_new=1)
    w.admit()
    plan = w.plan()
    for call in (w.scheduler.plan, w.scheduler.admit, lambda: w.scheduler.remove(w.open["s0"])):
        with pytest.raises(AssertionError, match="not committed"):
            call()
    w.scheduler.commit(plan)
    with pytest.raises(AssertionError, match="no plan"):
        w.scheduler.commit(plan)


def test_the_tables_are_zero_behind_their_rows_pages():
    """Oracle: hand. A kernel may read whole rows: page 0 with no tokens is nothing."""
    w = world(page=4)
    seqs = [w.add([i] * 30, num_new=9, group=str(i)) for i in range(3)]
    w.step()
    w.remove(seqs[0])
    scheduler = w.scheduler
    assert scheduler.counts[:2].sum(1).tolist() == [30, 30]
    assert not scheduler.counts[2:].any() and not scheduler.table[2:].any()


def test_no_torch():
    """Oracle: hand. The scheduler can be loaded, tested and simulated without torch."""
    code = (
        "import sys, rollwright.engine.schedule; sys.exit('torch' in sys.modules or 'asyncio' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_columns_have_the_types_that_kernels_read():
    """Oracle: hand."""
    w = world()
    w.add([1, 2, 3], num_new=5)
    for plan in (w.step(), w.step()):  # one of each kind: prefill, and all rows decode
        for name in ("rows", "starts", "nums", "pages", "offsets"):
            assert getattr(plan, name).dtype == np.int32, name
        assert plan.samples.dtype == np.bool_
    scheduler = w.scheduler
    assert scheduler.table.dtype == scheduler.counts.dtype == scheduler.num_pages_of.dtype == np.int32
    assert scheduler.num_keys.dtype == scheduler.num_known.dtype == np.int64
    assert scheduler.table.flags.c_contiguous and scheduler.counts.flags.c_contiguous
