"""What the scheduler promises to an engine: who goes when, at what cost, and what is refused."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from schedule_lines import num_lines
from schedule_world import world

from rollwright.errors import EngineError


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
