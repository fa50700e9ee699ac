"""The pool of pages: who holds them, and who may write on."""

from __future__ import annotations

import numpy as np
import pytest

from rollwright.engine.schedule.pages import CACHED, LIVE, PagePool, cut, num_common


def as_pages(*pages: int) -> np.ndarray:
    return np.array(pages, np.int32)


def counts(pool: PagePool) -> tuple[int, int, int]:
    return pool.num_live, pool.num_cached, pool.num_free


def test_a_page_goes_from_free_to_live_to_cached_and_back():
    """Oracle: hand. Every page is in exactly one of the three."""
    pool = PagePool(4)
    pages = pool.take(3)
    assert pages.tolist() == [0, 1, 2] and counts(pool) == (3, 0, 1)
    pool.share(pages[:2], CACHED)
    assert counts(pool) == (3, 0, 1)
    assert pool.release(pages) == 1 and counts(pool) == (0, 2, 2)
    pool.share(pages[:1])
    assert counts(pool) == (1, 1, 2)
    assert pool.refcounts.tolist() == [2, 1, 0, 0]
    assert pool.release(pages[:1], CACHED) == 0 and counts(pool) == (1, 1, 2)
    assert pool.release(pages[1:2], CACHED) == 1 and counts(pool) == (1, 0, 3)
    assert pool.release(pages[:1], LIVE) == 1 and counts(pool) == (0, 0, 4)
    assert sorted(pool.free.tolist()) == [0, 1, 2, 3]


def test_misuse_is_refused():
    """Oracle: hand. A page is not freed twice, not shared when free, not taken when there is none."""
    pool = PagePool(2)
    pages = pool.take(2)
    with pytest.raises(AssertionError, match="1 pages are wanted, 0 are free"):
        pool.take(1)
    with pytest.raises(AssertionError, match="owner does not hold"):
        pool.release(pages[:1], CACHED)
    pool.release(pages)
    with pytest.raises(AssertionError, match="owner does not hold"):
        pool.release(pages)
    with pytest.raises(AssertionError, match="free page"):
        pool.share(pages)
    with pytest.raises(AssertionError, match="only grow"):
        pool.grow(1)
    assert counts(pool) == (0, 0, 2)


def test_one_writer_at_most_goes_on_in_a_page():
    """Oracle: hand. The rest of a page is for the first who asks and sees all that was written."""
    pool = PagePool(1, page=16)
    page = int(pool.take(1)[0])
    assert pool.claim(page, 5) == 0, "it was promised to the one who took it"
    pool.give_up(page, 5)
    assert pool.claim(page, 4) == 0, "a fork that sees less must not write over the rest"
    assert pool.claimable(page, 5) == 11
    assert pool.claim(page, 5) == 11
    assert pool.claim(page, 5) == 0
    pool.give_up(page, 7)
    assert pool.claim(page, 5) == 0 and pool.claim(page, 7) == 9


def test_a_page_that_comes_back_is_whole_again():
    """Oracle: hand."""
    pool = PagePool(1)
    page = pool.take(1)
    pool.give_up(int(page[0]), 3)
    pool.release(page)
    assert pool.take(1).tolist() == page.tolist()
    assert pool.claim(int(page[0]), 3) == 0


def test_the_pool_grows_and_keeps_what_it_holds():
    """Oracle: hand."""
    pool = PagePool(2)
    pages = pool.take(2)
    pool.grow(5)
    assert counts(pool) == (2, 0, 3) and pool.num_pages == 5
    assert pool.take(3).tolist() == [2, 3, 4]
    assert pool.release(pages) == 2


@pytest.mark.parametrize(
    ("num", "expected"),
    [
        (0, []),
        (1, [(7, 1)]),
        (3, [(7, 3)]),
        (4, [(7, 3), (9, 1)]),
        (5, [(7, 3), (9, 2)]),
        (9, [(7, 3), (9, 2), (4, 4)]),
    ],
)
def test_cut_keeps_the_first_tokens(num, expected):
    """Oracle: hand."""
    pages, sees = cut(as_pages(7, 9, 4), as_pages(3, 2, 4), num)
    assert list(zip(pages.tolist(), sees.tolist(), strict=True)) == expected


def test_num_common_against_a_loop():
    """Oracle: slow reference."""
    rng = np.random.default_rng(0)
    for _ in range(300):
        a, b = (rng.integers(0, 2, rng.integers(0, 6)) for _ in range(2))
        expected = 0
        while expected < min(a.size, b.size) and a[expected] == b[expected]:
            expected += 1
        assert num_common(a, b) == expected
