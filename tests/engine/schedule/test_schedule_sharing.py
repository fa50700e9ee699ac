"""What the scheduler computes once although several sequences need it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from schedule_world import num_computed, world


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
