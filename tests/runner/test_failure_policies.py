"""What each kind of failure leads to: retries, waits before them, consequences, quarantine, small groups."""

import pickle

import pytest

from rollwright.errors import ConfigError, UnknownName
from rollwright.events import (
    Abort,
    CancelTimer,
    Reset,
    Score,
    SetTimer,
    Started,
    Submit,
    TimerFired,
    WorkerLost,
)
from rollwright.stage import Close
from rollwright.testing.hand import Hand, plain_method, plain_settings
from rollwright.tree import StopReason


def retry(hand, ask):
    """Let the timer of a retry fire."""
    del hand.timers[f"retry:{ask}"]
    return hand.send(TimerFired(timer=f"retry:{ask}"))


def test_each_retry_waits_twice_as_long_and_goes_on_from_the_last_token():
    """2, 4, 8 seconds by closed form; nothing is submitted before; the runner pickled in between."""
    hand = Hand(plain_method(1), num_tasks=1, retries=3, backoff=2.0)
    hand.start()
    [ask] = hand.asks(Submit)
    hand.sample(ask, (3, 4), stop=None)
    for seconds in (2.0, 4.0, 8.0):
        [timer] = hand.fail(ask)
        assert isinstance(timer, SetTimer) and (timer.timer, timer.seconds) == (f"retry:{ask}", seconds)
        hand.runner = pickle.loads(pickle.dumps(hand.runner))
        assert hand.sample(ask, (9,), stop=None) == [], "what the failed worker still says is late"
        [again] = retry(hand, ask)
        assert (again.ask, again.start) == (ask, 4)
    hand.fail(ask)
    assert hand.finished or hand.reports, "the fourth failure is final"
    assert hand.runner.ledger.reasons == {"failed:late": 3, "failed:engine:lost": 2}


def test_a_restart_keeps_the_wait_before_a_retry():
    """The timer is set again, the ask is not asked early."""
    hand = Hand(plain_method(1), num_tasks=1, retries=1, backoff=2.0)
    hand.start()
    [ask] = hand.asks(Submit)
    hand.fail(ask)
    commands = hand.resume()
    assert not [c for c in commands if isinstance(c, Submit)]
    assert {c.timer for c in commands if isinstance(c, SetTimer)} == {"rollouts:0", f"retry:{ask}"}
    assert [c.ask for c in retry(hand, ask)] == [ask]


class CloseLate:
    """Close step 0 once its first group is complete."""

    def __call__(self, event, view):
        return (Close("test"),) if view.step == 0 and view.num_complete else ()


def test_a_close_carries_what_waits_for_a_retry():
    """No abort (nobody has it), its timer is taken back, it goes on in the next step."""
    hand = Hand(plain_method(1, control=(CloseLate(),)), retries=1, backoff=2.0)
    hand.start()
    first, second = hand.asks(Submit)
    hand.fail(second)
    hand.sample(first, (3, 0))
    commands = hand.score(hand.asks(Score)[0], 1.0)
    assert not [c for c in commands if isinstance(c, Abort)]
    assert [c.timer for c in commands if isinstance(c, CancelTimer)] == [f"retry:{second}", "rollouts:0"]
    hand.publish()
    assert second in hand.asks(Submit)


def test_the_deadline_gives_up_what_waits_for_a_retry():
    """Nothing flies, so nothing is aborted: it is lost with its timer, and the step ends."""
    hand = Hand(plain_method(1), num_tasks=1, retries=1, backoff=2.0)
    hand.start()
    [ask] = hand.asks(Submit)
    hand.fail(ask)
    commands = hand.send(TimerFired(timer="rollouts:0"))
    assert f"retry:{ask}" in [c.timer for c in commands if isinstance(c, CancelTimer)]
    assert hand.reports[0].metrics["num_failed"] == 1


@pytest.mark.parametrize(("kind", "num"), [("grader", 2), ("engine", 0), ("environment", 1)])
def test_each_kind_has_its_own_number_of_retries(kind, num):
    """Oracle: a count by hand; kinds that are not named have the common number."""
    hand = Hand(plain_method(1), num_tasks=1, retries=1, retries_by_kind={"grader": 2, "engine": 0})
    hand.start()
    [ask] = hand.asks(Submit)
    for _ in range(num):
        assert [c.ask for c in hand.fail(ask, kind)] == [ask]
    hand.fail(ask, kind)
    assert hand.reports[0].metrics["num_failed"] == 1


def test_each_kind_has_its_own_consequence():
    """A failed grade takes its group with it, a failed engine only its sample."""
    hand = Hand(plain_method(2), on_failure_by_kind={"grader": "drop_group"}, num_steps=1)
    hand.start()
    first, *others = hand.asks(Submit)
    hand.fail(first, "engine")
    for ask in others:
        hand.sample(ask, (3, 0))
    graded = hand.asks(Score)
    hand.score(graded[0], 1.0)
    hand.fail(graded[1], "grader")
    hand.score(graded[2], 1.0)
    assert [(group.task, len(group.trajectories)) for group in hand.batch.groups] == [("t/0", 1)]


def test_a_lost_worker_costs_an_ask_nothing_unless_the_settings_say_so():
    """Twice with a dying worker and once more: only with ``worker`` named is the ask given up."""
    for by_kind, is_given_up in (({}, False), ({"worker": 2}, True)):
        hand = Hand(plain_method(1), num_tasks=1, retries_by_kind=by_kind)
        hand.start()
        [ask] = hand.asks(Submit)
        for _ in range(2):
            assert [c.ask for c in hand.send(WorkerLost(worker="w", asks=(ask,)))] == [ask]
        hand.send(WorkerLost(worker="w", asks=(ask,)))
        assert bool(hand.reports) == is_given_up
        if is_given_up:
            assert hand.reports[0].notes == ("1 of 1 rollouts failed: 3 workers were lost with it (worker)",)


@pytest.mark.parametrize(("num_failed", "is_trained"), [(0, True), (1, True), (2, False)])
def test_the_smallest_viable_group(num_failed, is_trained):
    """min_group 3 of 4: with one failure it is trained, with two dropped with its reason, tokens filtered."""
    hand = Hand(plain_method(4), num_tasks=1, min_group=3, num_steps=1)
    hand.start()
    asks = hand.asks(Submit)
    for ask in asks[:num_failed]:
        hand.fail(ask)
    for ask in asks[num_failed:]:
        hand.sample(ask, (3, 0))
    for ask in hand.asks(Score):
        hand.score(ask, 1.0)
    assert (hand.batch is not None) == is_trained
    if not is_trained:
        assert hand.reports[0].metrics["dropped:too_few_scored"] == 1
        assert hand.runner.ledger.reasons == {"filtered:too_few_scored": 4}


def test_a_group_without_failures_may_be_smaller_than_the_smallest_viable():
    """The method made it so: two rollouts, none failed."""
    hand = Hand(plain_method(2), num_tasks=1, min_group=3)
    hand.start()
    hand.finish_rollouts([1, 0])
    assert hand.batch is not None


# ---------------------------------------------------------------- quarantine


class InOrder:
    """Task k mod 3 at pick k."""

    def pick(self, history, num_tasks, rng):
        start = history.num_picked
        return [history.tasks[(start + i) % 3] for i in range(num_tasks)]


def visits(num_steps, bad=("t/0",), **settings):
    """Return the tasks of each step and the reports; a bad task's grader always fails."""
    tasks = ("t/0", "t/1", "t/2")
    hand = Hand(plain_method(1, select=InOrder()), num_tasks=1, num_steps=num_steps, tasks=tasks, **settings)
    hand.send(Started())
    seen = []
    while not hand.finished:
        [ask] = hand.asks(Reset)
        task = hand.owed[ask].task
        seen.append(task)
        hand.reset()
        hand.sample(hand.asks(Submit)[0], (3, 0))
        score = hand.asks(Score)[0]
        hand.fail(score, "grader") if task in bad else hand.score(score, 1.0)
        if hand.batch:
            hand.publish()
        hand.runner = pickle.loads(pickle.dumps(hand.runner))
    return "".join(task[-1] for task in seen), hand.reports


def test_a_task_that_keeps_failing_is_passed_over_for_some_visits():
    """By hand: two bad visits of task 0, then two visits are left out, then it is tried again, and so on."""
    seen, reports = visits(14, quarantine_after=2, quarantine_visits=2)
    #      bad   bad; passed over twice; bad again: passed over at once
    assert seen == "01201212120121"
    named = [[name for name in report.metrics if name.startswith("quarantine:")] for report in reports]
    assert named[3] == ["quarantine:t/0"] and reports[3].metrics["quarantine:t/0"] == 2
    assert named[2] == []


def test_a_good_visit_ends_the_count():
    """Bad visits must come in a row."""
    assert visits(9, bad=(), quarantine_after=1)[0] == "012012012"
    assert visits(9, quarantine_after=0)[0] == "012012012", "off"


def test_a_run_whose_tasks_are_all_in_quarantine_goes_on():
    """Every task fails: they are passed over and come back; the run is not stuck and not over."""
    seen, _ = visits(9, bad=("t/0", "t/1", "t/2"), quarantine_after=1, quarantine_visits=2)
    assert len(seen) == 9 and set(seen) == {"0", "1", "2"}


def test_settings_that_cannot_be_are_refused():
    """Unknown kinds and numbers out of range, each with what was expected."""
    with pytest.raises(UnknownName, match="did you mean 'grader'"):
        plain_settings(retries_by_kind={"graders": 1})
    with pytest.raises(UnknownName, match="kind of failure"):
        plain_settings(on_failure_by_kind={"learner": "stop"})
    with pytest.raises(ConfigError, match="expected one of drop_sample"):
        plain_settings(on_failure_by_kind={"grader": "ignore"})
    for bad in ({"backoff": -1.0}, {"max_carry": -1}, {"num_ahead": -1}, {"retries_by_kind": {"data": -1}}):
        with pytest.raises(ConfigError):
            plain_settings(**bad)


def test_a_prompt_that_fails_is_retried_after_its_wait_too():
    """Resets, environment steps and grades wait like tokens do."""
    hand = Hand(plain_method(1), num_tasks=1, retries=1, backoff=1.0)
    hand.send(Started())
    [ask] = hand.asks(Reset)
    hand.fail(ask, "environment")
    assert [type(c) for c in retry(hand, ask)] == [Reset]
    hand.reset()
    hand.sample(hand.asks(Submit)[0], (3, 0), stop=StopReason.EOS)
    [score] = hand.asks(Score)
    hand.fail(score, "grader")
    assert [type(c) for c in retry(hand, score)] == [Score]
