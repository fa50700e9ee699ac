"""Idle shares, rows that do not overlap, and tokens per second, from the journal alone."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest
from lab_help import (
    batch,
    learning,
    opened,
    prompted,
    published,
    report,
    reset,
    sampled,
    score,
    scored,
    simulated,
    submit,
    write,
)

from rollwright.drive.virtual import EngineModel, LogNormal, Model, TaskModel
from rollwright.events import Failed, Resumed, Retire, Started, TimerFired, WorkerLost
from rollwright.lab.activity import Work, read_activity
from rollwright.lab.simulate import make_report
from rollwright.lab.timeline import count, idle, lanes, length, merged, steps_of, tokens_per_second
from rollwright.store.layout import JOURNAL
from rollwright.tree import StopReason

A, B = "t/1#0/0", "t/1#0/1"


def two_steps():
    """One group of two rollouts a step. The first step, in seconds: see the test."""
    return [
        (Started(at=1.0), [opened(0), reset("t/1#0")]),
        (prompted("t/1#0", 2.0), [submit(A), submit(B)]),
        (sampled(A, 3, 4.0, None), []),
        (sampled(A, 2, 5.0), [score(A)]),
        (scored(A, 1.0, 6.0), []),
        (sampled(B, 5, 8.0), [score(B)]),
        (scored(B, 0.0, 9.0), [*learning(0), batch(0, [A, B])]),
        (
            published(0, 12.0),
            [Retire(group="t/1#0"), *report(0, fate_trained=10.0), opened(1), reset("t/2#0")],
        ),
        (prompted("t/2#0", 14.0), [submit("t/2#0/0")]),
        (sampled("t/2#0/0", 6, 20.0), []),
    ]


def test_idle_of_a_run_by_hand(tmp_path) -> None:
    """Oracle: by hand. Until 1 nothing, 2 prompt, 8 sampling, 9 grade, 12 learner, 14 report, 20 sampling.

    Kills: overlapping requests counted twice, a grade beside sampling counted as waiting.
    """
    found = idle(read_activity(write(tmp_path, two_steps()) / JOURNAL))
    assert found.seconds == 20.0
    assert found.learner_idle == pytest.approx(17 / 20)
    assert found.engine_idle == pytest.approx(8 / 20)
    assert found.engine_idle_by_policy == {"policy": pytest.approx(8 / 20)}
    assert (found.both_idle, found.overlap) == (pytest.approx(5 / 20), 0.0)
    # From 12 to 14 a prompt was owed as well as a report: the prompt is what is waited for.
    assert found.waits == {"grade": 1, "environment": 0, "prompt": 3, "reporting": 1, "nothing": 0}
    assert found.in_flight_mean == pytest.approx((2 * 3 + 3 + 6) / 12)
    assert found.tokens_per_second == pytest.approx(16 / 20)
    assert found.tokens_per_busy_second == pytest.approx(16 / 12)


def test_work_that_ends_otherwise(tmp_path) -> None:
    """Oracle: by hand. A lost worker, a retry, a late answer, a deadline, a restart: when each was over."""
    lost = "t/1#0/2"
    records = [
        (Started(at=0.0), [opened(0, 9.0), reset("t/1#0")]),
        (prompted("t/1#0", 1.0), [submit(A), submit(B), submit(lost)]),
        (WorkerLost(worker="w", asks=(f"{A}:0",), at=2.0), [submit(A, attempt=1)]),
        (sampled(A, 4, 3.0, attempt=0), []),  # the lost worker's own answer
        (Failed(ask=f"{B}:0", kind="engine", message="?", at=4.0), [submit(B, attempt=1)]),
        (sampled(A, 2, 5.0, attempt=1), [score(A)]),
        (sampled(lost, 1, 6.0, StopReason.FAILED), []),
        (TimerFired(timer="rollouts:0", at=9.0), []),
        (Resumed(at=10.0), [submit(B, attempt=2)]),
        (sampled(B, 3, 12.0, attempt=2), []),
    ]
    activity = read_activity(write(tmp_path, records) / JOURNAL)
    found = {(w.ask, w.attempt): (w.began, w.ended, w.outcome, w.num_tokens) for w in activity.work}
    assert found == {
        ("t/1#0/root", 0): (0.0, 1.0, "answered", 0),
        (f"{A}:0", 0): (1.0, 2.0, "lost", 0),
        (f"{A}:0", 1): (2.0, 5.0, "eos", 2),
        (f"{B}:0", 0): (1.0, 4.0, "failed", 0),
        (f"{B}:0", 1): (4.0, 10.0, "lost", 0),
        (f"{B}:0", 2): (10.0, 12.0, "eos", 3),
        (f"{lost}:0", 0): (1.0, 6.0, "failed", 1),
        (f"{A}:1", 0): (5.0, 9.0, "given up", 0),
    }
    assert (activity.restarts, activity.open) == ([10.0], {})
    assert [(t.name, t.deadline, t.ended, t.has_fired) for t in activity.waits] == [
        ("rollouts:0", 9.0, 9.0, True)
    ]


@pytest.mark.parametrize("method", ["grpo", "april", "dapo"])
def test_idle_is_what_the_simulator_accounts(runs, method) -> None:
    """Oracle: other implementation. The modelled engine and learner add up their own busy seconds."""
    folder, driver, recorder = runs[method]
    found, use = idle(read_activity(folder / JOURNAL)), driver.engine.account()
    known = make_report(driver, recorder, "")
    assert found.seconds == pytest.approx(driver.now)
    assert found.learner_idle == pytest.approx(known.learner_idle_share)
    # A request with an engine that finishes a decode step for others is not worked on yet: a hair's breadth.
    assert found.engine_idle == pytest.approx(known.engine_idle_share, abs=2e-3)
    assert found.tokens_per_second * found.seconds == pytest.approx(use.num_made)


def test_failing_workers_do_not_lose_tokens(tmp_path) -> None:
    """Oracle: the engine's own count of tokens, in a run whose workers fail. Kills: late chunks counted."""
    engine = EngineModel(num_workers=2, num_slots=8, failure_seconds=15.0, restart_seconds=4.0)
    driver, _ = simulated(
        tmp_path, model=Model(engine=engine, tasks=TaskModel(response=LogNormal(60, 1))), num_steps=3
    )
    activity = read_activity(tmp_path / JOURNAL)
    assert any(work.outcome == "lost" for work in activity.work), "no worker failed"
    assert sum(work.num_tokens for work in activity.work) == driver.engine.account().num_made


def test_a_lost_request_that_is_tried_again_later(tmp_path) -> None:
    """Oracle: by hand. Between the loss of its worker and the retry nobody works on it."""
    records = [
        (Started(at=0.0), [opened(0), reset("t/1#0")]),
        (prompted("t/1#0", 1.0), [submit(A)]),
        (WorkerLost(worker="w", asks=(f"{A}:0",), at=2.0), []),
        (TimerFired(timer=f"retry:{A}:0", at=7.0), [submit(A, attempt=1)]),
        (sampled(A, 1, 8.0, attempt=1), []),
    ]
    activity = read_activity(write(tmp_path, records) / JOURNAL)
    assert [(w.began, w.ended) for w in activity.work] == [(0.0, 1.0), (1.0, 2.0), (7.0, 8.0)]


def test_steps_begin_and_end(runs) -> None:
    """Oracle: the recorder of the simulator, which sees the commands as they are carried out."""
    folder, _, recorder = runs["april"]
    steps = steps_of(read_activity(folder / JOURNAL))
    assert [step.step for step in steps] == [step.step for step in recorder.steps]
    for step, known in zip(steps, recorder.steps, strict=True):
        assert step.is_done
        assert step.ended - step.began == pytest.approx(known.rollouts_seconds + known.learn_seconds)


def random_work(rng: random.Random) -> list[Work]:
    found = []
    for k in range(rng.randrange(30)):
        began = float(rng.randrange(20))
        found.append(Work("sample", str(k), "g", "t", began, began + rng.choice([0, 0, 1, 2, 5, 9])))
    return found


def test_rows_hold_one_piece_of_work_at_a_time() -> None:
    """Oracle: the property itself, on 300 random loads, and the largest load for the number of rows.

    Kills: a row that is taken again before it is free, a row too many.
    """
    rng = random.Random(5)
    for _ in range(300):
        work = random_work(rng)
        rows: dict[int, list[Work]] = {}
        for row, one in lanes(work, 40.0):
            rows.setdefault(row, []).append(one)
        assert sum(map(len, rows.values())) == len(work)
        for mine in rows.values():
            for before, after in pairwise(mine):
                assert before.ended is not None and before.ended <= after.began
        load = [sum(w.began <= t < w.ended or w.began == t == w.ended for w in work) for t in range(30)]
        assert len(rows) <= max(load, default=0)
        longer = [w for w in work if w.ended != w.began]
        alone = {row for row, _ in lanes(longer, 40.0)}
        busiest = max((sum(w.began <= t < w.ended for w in longer) for t in range(30)), default=0)
        assert alone == set(range(busiest))


def test_counts_and_unions() -> None:
    """Oracle: slow reference, second by second, on random spans."""
    rng = random.Random(6)
    for _ in range(200):
        spans = [(w.began, w.ended) for w in random_work(rng)]
        times, counts = count(spans)
        busy = [sum(a <= t + 0.5 < b for a, b in spans) for t in range(30)]
        for t, expected in enumerate(busy):
            place = int(np.searchsorted(times, t + 0.5)) - 1
            assert (counts[place] if place >= 0 else 0) == expected
        assert length(spans) == sum(num > 0 for num in busy)
        joined = merged(spans)
        assert all(b < c for (_, b), (c, _) in pairwise(joined))


@pytest.mark.parametrize("method", ["grpo", "april"])
def test_rates_add_up_to_the_tokens(runs, method) -> None:
    """Oracle: the number of tokens, for any number of bins. Kills: tokens at an edge lost or doubled."""
    folder, driver, _ = runs[method]
    activity = read_activity(folder / JOURNAL)
    num = driver.engine.account().num_made
    for bins in (1, 7, 200):
        edges, rates = tokens_per_second(activity, bins)
        assert (rates >= -1e-6).all()
        assert float((rates * np.diff(edges)).sum()) == pytest.approx(num, rel=1e-6)


def test_rates_of_a_run_by_hand(tmp_path) -> None:
    """Oracle: by hand. A: 3 tokens over 2-4, 2 over 4-5; B: 5 over 2-8; 6 over 14-20."""
    edges, rates = tokens_per_second(read_activity(write(tmp_path, two_steps()) / JOURNAL), 20)
    expected = [0.0] * 20
    for began, ended, num in ((2, 4, 3), (4, 5, 2), (2, 8, 5), (14, 20, 6)):
        for second in range(began, ended):
            expected[second] += num / (ended - began)
    assert list(edges) == pytest.approx(list(range(21)))
    assert list(rates) == pytest.approx(expected, abs=1e-5)


def test_steps_that_overlap(tmp_path) -> None:
    """Oracle: the simulator's own account, and that a step ahead begins before the one before it is over."""
    driver, recorder = simulated(tmp_path, num_ahead=1)
    activity = read_activity(tmp_path / JOURNAL)
    found, known = idle(activity), make_report(driver, recorder, "")
    assert found.learner_idle == pytest.approx(known.learner_idle_share)
    assert found.engine_idle == pytest.approx(known.engine_idle_share, abs=2e-3)
    busy = (1 - found.learner_idle) + (1 - found.engine_idle)
    assert found.overlap == pytest.approx(busy - (1 - found.both_idle)) and found.overlap > 0.02
    steps = steps_of(activity)
    assert [step.step for step in steps] == list(range(6))
    assert all(after.began < before.ended for before, after in pairwise(steps))
