"""Worker processes: what goes over its limits is killed and replaced. Oracle: by hand, and the system."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from rollwright.errors import ConfigError, GraderError
from rollwright.grade.pool import Pool


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool(2, memory_mb=300, warm_up=()) as pool:
        yield pool


def test_order_is_kept_and_limits_hit_one_job_each(pool: Pool) -> None:
    """By hand: a sleeper in the middle times out; all others come back, in order, from living workers."""
    pool.warm()
    jobs = [(0,)] * 20
    jobs[7] = (60,)
    start = time.monotonic()
    outcomes = pool.map("time:sleep", jobs, 3.0)
    assert time.monotonic() - start < 30
    assert [outcome.kind for outcome in outcomes] == ["done"] * 7 + ["timeout"] + ["done"] * 12
    assert [o.value for o in pool.map("builtins:pow", [(2, k) for k in range(40)], 20)] == [
        2**k for k in range(40)
    ]
    pool.warm()
    assert pool.num_alive == 2


def test_each_failure_has_its_kind(pool: Pool) -> None:
    """By hand: too much memory, an exception, an exit; then the pool still works."""
    [outcome] = pool.map("builtins:bytearray", [(1 << 40,)], 20)
    assert outcome.kind == "memory"
    [outcome] = pool.map("builtins:int", [("x",)], 20)
    assert outcome.kind == "raised" and "ValueError" in outcome.detail
    [outcome] = pool.map("os:_exit", [(3,)], 20)
    assert outcome.kind == "died" and "3" in outcome.detail
    assert pool.map("builtins:len", [("abc",)], 20)[0].value == 3


def test_prints_do_not_get_between_answers(pool: Pool) -> None:
    """By hand: a job that prints to its output returns its value all the same."""
    assert [outcome.kind for outcome in pool.map("builtins:print", [("x" * 1000,)] * 5, 20)] == ["done"] * 5


def test_several_threads_share_the_workers(pool: Pool) -> None:
    """By hand: five callers at once each get their own answers."""
    results: dict[int, list[object]] = {}

    def call(number: int) -> None:
        jobs = [(number, k) for k in range(20)]
        results[number] = [o.value for o in pool.map("operator:mul", jobs, 20)]

    threads = [threading.Thread(target=call, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == {number: [number * k for k in range(20)] for number in range(5)}


def test_closing_leaves_no_process() -> None:
    """Oracle: the system: after close, none of the workers' ids is a child any more."""
    with Pool(2, warm_up=()) as pool:
        ids = [o.value for o in pool.map("os:getpid", [()] * 40, 20)]
        assert os.getpid() not in ids and 1 <= len(set(ids)) <= 2
    for number in set(ids):
        with pytest.raises(ProcessLookupError):
            os.kill(int(str(number)), 0)
    with pytest.raises(ConfigError, match="closed"):
        pool.map("os:getpid", [()], 1)


def test_a_worker_that_cannot_start_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand: no interpreter behind the command: an error, not a hang and not a score."""
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with Pool(1) as pool, pytest.raises(GraderError, match="did not start"):
        pool.map("os:getpid", [()], 1)
    for bad in ({"num_workers": 0}, {"memory_mb": 0}):
        with pytest.raises(ConfigError):
            Pool(**bad)
