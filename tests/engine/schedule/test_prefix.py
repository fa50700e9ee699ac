"""The tree of cached prefixes, against a list of what was put in."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from schedule_lines import num_lines

from rollwright.engine.schedule import PagePool, PrefixTree
from rollwright.engine.schedule.pages import CACHED, LIVE

Runs = list[tuple[int, int]]


class Cache:
    """A tree, a pool, and what stands in every place: the tokens up to it."""

    def __init__(self, num_pages: int = 64, page: int = 4) -> None:
        self.pool = PagePool(num_pages, page)
        self.tree = PrefixTree(self.pool)
        self.memory: dict[tuple[int, int], tuple[int, ...]] = {}

    def write(self, tokens: list[int], keep: int = 0, stays: bool = False, group: str = "g") -> Runs:
        """Compute a sequence that takes over up to ``keep`` cached tokens; put it in; return its runs."""
        num, pages, counts = self.tree.match(np.array(tokens[:keep]))
        self.pool.share(pages)
        runs = list(zip(pages.tolist(), counts.tolist(), strict=True))
        for start in range(num, len(tokens), self.pool.page):
            page = int(self.pool.take(1)[0])
            part = range(start, min(start + self.pool.page, len(tokens)))
            self.memory.update({(page, at - start): tuple(tokens[: at + 1]) for at in part})
            runs.append((page, len(part)))
        held = np.array([page for page, _ in runs], np.int32)
        sees = np.array([count for _, count in runs], np.int32)
        self.tree.insert(np.array(tokens), held, sees, group)
        if not stays:
            self.pool.release(held)
        return runs

    def match(self, tokens: list[int]) -> int:
        """Return the length of the cached prefix, after a look at every place of it."""
        num, pages, counts = self.tree.match(np.array(tokens, np.int64))
        places = [(int(p), at) for p, c in zip(pages, counts, strict=True) for at in range(c)]
        assert [self.memory[place] for place in places] == [tuple(tokens[: i + 1]) for i in range(num)]
        assert len(set(pages.tolist())) == pages.size
        return num

    def check_references(self) -> None:
        counted = np.zeros(self.pool.num_pages, np.int32)
        for node in self.tree:
            np.add.at(counted, node.pages, 1)
        assert counted.tolist() == self.pool.refs[CACHED].tolist()


TEXT = st.lists(st.integers(0, 1), min_size=1, max_size=14)


@settings(max_examples=80, deadline=None)
@given(
    texts=st.lists(st.tuples(TEXT, st.integers(0, 14), st.sampled_from("ab")), min_size=1, max_size=8),
    wanted=TEXT,
    num_evict=st.integers(0, 30),
    page=st.sampled_from([1, 3, 4]),
)
def test_match_finds_the_longest_prefix_that_was_put_in(texts, wanted, num_evict, page):
    """Oracle: slow reference. Any token is a boundary; evicting n pages frees n of those not in use."""
    cache = Cache(num_pages=160, page=page)
    for tokens, keep, group in texts:
        cache.write(tokens, keep, group=group)
    cache.check_references()
    known = {tuple(tokens[:i]) for tokens, _, _ in texts for i in range(len(tokens) + 1)}
    for text in [wanted, *(tokens for tokens, _, _ in texts)]:
        assert cache.match(text) == max(i for i in range(len(text) + 1) if tuple(text[:i]) in known)
    before = cache.pool.num_cached
    assert cache.tree.evict(num_evict) == min(num_evict, before) == before - cache.pool.num_cached
    cache.check_references()
    for tokens, _, _ in texts:
        cache.match(tokens)
    cache.tree.retire("a")
    cache.check_references()
    kept = {tuple(tokens[:i]) for tokens, _, group in texts if group == "b" for i in range(len(tokens) + 1)}
    for tokens, _, _ in texts:
        longest = max(i for i in range(len(tokens) + 1) if tuple(tokens[:i]) in kept | {()})
        assert cache.match(tokens) == longest or (num_evict and cache.match(tokens) < longest)
    cache.tree.clear()
    assert cache.pool.num_free == 160 and not list(cache.tree)


def test_what_is_known_keeps_its_older_pages():
    """Oracle: hand. The same tokens computed twice stand in the tree once; the newer go on from within.

    Six tokens lie in pages 0 and 1. A second sequence computed all of them again, in pages 2 to 4, and has
    ten: of its own pages the tree needs the one with token 6 (page 3, which brings 4 and 5 too) and page 4.
    """
    cache = Cache()
    tokens = list(range(10))
    assert cache.write(tokens[:6]) == [(0, 4), (1, 2)]
    assert cache.write(tokens, stays=True) == [(2, 4), (3, 4), (4, 2)]
    num, pages, counts = cache.tree.match(np.array(tokens))
    assert (num, pages.tolist(), counts.tolist()) == (10, [0, 3, 4], [4, 4, 2])
    num, pages, counts = cache.tree.match(np.array(tokens[:6]))
    assert (num, pages.tolist(), counts.tolist()) == (6, [0, 1], [4, 2])


def test_the_least_recently_used_leaf_goes_first_from_its_end():
    """Oracle: hand. A match counts as use; a leaf loses no more pages than were asked for."""
    cache = Cache(num_pages=9)
    texts = [[i] * 12 for i in range(3)]
    for text in texts:
        cache.write(text)
    cache.match(texts[0])
    assert cache.tree.evict(2) == 2
    assert [cache.match(t) for t in texts] == [12, 4, 12]
    assert cache.tree.evict(3) == 3  # those calls were uses too: 0 is the oldest now
    assert [cache.match(t) for t in texts] == [0, 4, 12]


def test_pages_in_use_stay_and_so_do_their_nodes():
    """Oracle: hand. There is nothing to gain from them while others can go."""
    cache = Cache(num_pages=6)
    cache.write([0] * 12, stays=True)  # the least recently used
    cache.write([1] * 12)
    assert cache.tree.evict(99) == 3
    assert cache.match([0] * 12) == 12 and cache.match([1] * 12) == 0


def test_a_node_in_use_goes_if_what_lies_above_it_must():
    """Oracle: hand. A live sequence computed a prompt itself; the cache's older copy of it can be freed."""
    cache = Cache(num_pages=8)
    prompt = [0] * 8
    cache.write(prompt)
    cache.write([*prompt, *[1] * 8], stays=True)  # all four pages its own
    assert cache.pool.num_cached == 2
    assert cache.tree.evict(2) == 2
    assert cache.pool.num_cached == 0 and cache.pool.num_live == 4
    cache.check_references()


def test_retire_frees_what_only_that_group_used():
    """Oracle: hand. Two groups share six tokens; the rest is their own."""
    cache = Cache()
    cache.write([0] * 6 + [1] * 6, group="a")
    cache.write([0] * 6 + [2] * 6, keep=6, group="b")
    assert cache.tree.retire("a") == 1  # the page that holds four of its own; the other two share a page
    assert cache.match([0] * 6 + [1] * 6) == 6
    assert cache.match([0] * 6 + [2] * 6) == 12
    assert cache.tree.retire("a") == 0 and cache.tree.retire("never seen") == 0
    cache.tree.retire("b")
    assert cache.pool.num_free == cache.pool.num_pages


def test_a_group_that_uses_a_part_keeps_that_part():
    """Oracle: hand."""
    cache = Cache()
    cache.write(list(range(12)), group="a")
    cache.write(list(range(8)), keep=8, group="b")
    assert cache.tree.retire("a") == 1
    assert cache.match(list(range(12))) == 8


def test_evicted_and_retired_nodes_are_forgotten():
    """Oracle: hand. What was dropped is not kept alive by the list of leaves, however often it happens."""
    cache = Cache()
    for i in range(1000):
        cache.write([i], group=f"g{i}")
        cache.tree.retire(f"g{i}")
    assert len(cache.tree._leaves) < 200 and cache.tree.num_nodes == 0


@pytest.mark.parametrize("name", ["match", "insert", "split", "evict"])
def test_no_python_per_token(name):
    """Oracle: metamorphic. A hundred times the tokens, the same number of lines run."""

    def lines(num: int) -> int:
        cache = Cache(num_pages=4 * num, page=16)
        tokens = np.arange(num)
        pages = cache.pool.take(num // 16)
        counts = np.full(pages.size, 16, np.int32)
        if name == "insert":
            return num_lines(lambda: cache.tree.insert(tokens, pages, counts, "g"))
        cache.tree.insert(tokens, pages, counts, "g")
        if name == "match":
            return num_lines(lambda: cache.tree.match(tokens))
        if name == "split":
            return num_lines(
                lambda: cache.tree.insert(tokens[: num // 2], pages[: num // 32], counts[: num // 32], "h")
            )
        cache.pool.release(pages, LIVE)
        return num_lines(lambda: cache.tree.evict(pages.size // 2))

    assert lines(320) == lines(32_000) > 0
