"""No wait without an end: every way in which a run could wait for nothing."""

from dataclasses import dataclass

import pytest

from rollwright.errors import ConfigError
from rollwright.events import (
    Abort,
    EmitBatch,
    Extended,
    Finish,
    Observed,
    Reset,
    Resumed,
    Sampled,
    Score,
    Scored,
    SetTimer,
    Started,
    StopAsked,
    Submit,
    TimerFired,
    WorkerLost,
)
from rollwright.stage import Carry, Close, Grant, Stop
from rollwright.stages.allocate.even import Even
from rollwright.testing.hand import Hand, plain_method, plain_settings
from rollwright.tree import StopReason


@dataclass(frozen=True, slots=True)
class On:
    """A control that acts once on the first event of a kind about an ask (or any ask)."""

    kind: type
    action: type
    ask: str = ""

    def __call__(self, event, view):
        if not isinstance(event, self.kind) or self.ask not in event.ask:
            return ()
        if self.action is Close:
            return (Close("test"),) if view.step == 0 else ()
        if view.step > 0:
            return ()
        return (Carry(event.ask) if self.action is Carry else Stop(event.ask, "test"),)


@dataclass(frozen=True, slots=True)
class Extra:
    """Four rollouts each, then two more for every open group in a second round."""

    def grant(self, step, left):
        if step.round == 0:
            return Grant(step.num_tasks, 2)
        return Grant(extra={g.id: 2 for g in step.groups}) if step.round == 1 else Grant()


def test_carry_without_close_ends_the_step():
    """A carried ask must not hold the step open: metamorphic, the other group is still trained."""
    hand = Hand(plain_method(2, control=(On(Sampled, Carry, "t/4"),)), chunk=1)
    hand.start()
    for ask in hand.asks(Submit):
        hand.sample(ask, (3,), stop=None)
    for ask in list(hand.aborts):
        hand.sample(ask, (), stop=StopReason.INTERRUPTED)
    for ask in hand.asks(Submit):
        hand.sample(ask, (0,))
    for ask in hand.asks(Score):
        hand.score(ask, 1.0)
    assert not hand.is_stuck
    assert hand.batch is not None and [g.task for g in hand.batch.groups] == ["t/0"]
    hand.publish()
    carried = [c for c in hand.owed.values() if isinstance(c, Submit) and "t/4" in c.ask]
    assert [c.start for c in carried] == [3, 3], "the carried rollouts go on after their first token"


def test_interruption_that_nobody_asked_for_is_resumed_at_once():
    """An engine that gives work back (weights, shutdown) gets it again from the next token."""
    hand = Hand()
    hand.start()
    ask = hand.asks(Submit)[0]
    commands = hand.sample(ask, (3, 4), stop=StopReason.INTERRUPTED)
    assert [(c.ask, c.start) for c in commands] == [(ask, 4)]


def test_worker_lost_while_closing_ends_the_step():
    """A worker that dies with an abort under way has given all it will: the step closes."""
    hand = Hand(plain_method(2, control=(On(Scored, Close),)), chunk=1)
    hand.start()
    done = hand.asks(Submit)[:2]
    for ask in done:
        hand.sample(ask, (3, 0))
    for ask in hand.asks(Score):
        hand.score(ask, 1.0)
    assert hand.aborts
    hand.owed.clear()
    lost, hand.aborts = tuple(hand.aborts), {}
    hand.send(WorkerLost(worker="w", asks=lost))
    assert not hand.is_stuck
    assert hand.batch is not None


def test_worker_lost_does_not_revive_a_stopped_ask():
    """A stop holds though the worker dies before it answers: the node ends PRUNED, nothing is resampled."""
    hand = Hand(plain_method(2, control=(On(Sampled, Stop, "t/4#0/0"),)), chunk=1)
    hand.start()
    ask = "t/4#0/0:0"
    hand.sample(ask, (3,), stop=None)
    assert list(hand.aborts) == [ask]
    hand.owed.pop(ask), hand.aborts.clear()
    commands = hand.send(WorkerLost(worker="w", asks=(ask,)))
    assert not [c for c in commands if isinstance(c, Submit)]
    group = hand.runner.groups["t/4#0"]
    assert group.pruned and ask not in hand.runner.asks


def test_worker_lost_leaves_waiting_asks_alone():
    """An ask that waits for the next step is with no worker: it is not asked for in this one."""
    hand = Hand(plain_method(2, control=(On(Sampled, Carry, "t/4#0/0"),)), chunk=1)
    hand.start()
    ask = "t/4#0/0:0"
    hand.sample(ask, (3,), stop=None)
    hand.sample(ask, (), stop=StopReason.INTERRUPTED)
    assert hand.send(WorkerLost(worker="w", asks=(ask, "unknown"))) == []


def test_close_on_an_answer_that_asks_for_more():
    """Close in the event that makes a new submit: the engine never sees it, so nothing is aborted."""
    hand = Hand(
        plain_method(1, control=(On(Observed, Close, "t/0#0/0"),)), is_dialogue=True, max_turns=3, num_tasks=1
    )
    hand.start()
    ask = hand.asks(Submit)[0]
    [step] = hand.sample(ask, (3,), stop=StopReason.STOP)
    commands = hand.observe(step.ask, (5,))
    assert not [c for c in commands if isinstance(c, Abort)]
    assert not hand.is_stuck, "the step closes at once: nothing is in flight"
    again = [c for c in hand.owed.values() if isinstance(c, Submit)]
    assert [c.start for c in again] == [4], "the second turn is asked for in the next step"


def test_extra_rollouts_for_a_group_whose_reset_failed():
    """A group without a prompt cannot grow: the grant is lost, not waited for."""
    hand = Hand(plain_method(allocate=Extra()))
    hand.send(Started())
    bad, good = hand.asks(Reset)
    hand.fail(bad, "data", "row has no prompt")
    hand.observe(good, (1, 2))
    hand.finish_rollouts([1, 0])
    hand.finish_rollouts([1, 0])
    assert not hand.is_stuck
    assert hand.batch is not None and len(hand.batch.groups[0].trajectories) == 4
    hand.publish()
    assert hand.reports[0].metrics["num_failed"] == 2


def test_extra_rollouts_for_a_group_whose_prompt_is_too_long():
    """A prompt that fills the context is not gradable, in any round."""
    hand = Hand(plain_method(allocate=Extra()))
    hand.send(Started())
    bad, good = hand.asks(Reset)
    hand.observe(bad, tuple(range(64)))
    hand.observe(good, (1, 2))
    hand.finish_rollouts([1, 0])
    hand.finish_rollouts([1, 0])
    assert hand.batch is not None
    hand.publish()
    metrics = hand.reports[0].metrics
    assert metrics["num_failed"] == 2 and metrics["num_rollouts"] == 4


def test_a_budget_too_small_for_a_group_ends_the_run():
    """Rollouts left for no whole group: finish and say so, not one empty step after the other."""
    hand = Hand(plain_method(4), num_steps=100_000, budget={"rollouts": 11})
    hand.start()
    hand.finish_rollouts([1, 0])
    assert len(hand.batch.groups) == 2
    hand.publish()
    assert hand.finished is not None and "rollouts" in hand.finished
    assert len(hand.reports) == 1


def test_deadline_closes_every_open_ask():
    """The timer leaves nothing open, whatever each ask waits for, and a hung engine cannot hold the run."""
    hand = Hand(is_dialogue=True, max_turns=2, num_tasks=1)
    hand.send(Started())
    hand.reset()
    a, _, c, d = hand.asks(Submit)
    hand.sample(a, (3,), stop=StopReason.STOP)  # a waits for the environment
    for _ in range(2):
        [ask] = [ask for ask in hand.owed if ask.startswith("t/0#0/1:")]
        if isinstance(hand.owed[ask], Submit):
            hand.sample(ask, (3,), stop=StopReason.STOP)
        else:
            hand.observe(ask, (5,), terminated=True)  # b waits for its grader
    hand.sample(c, (3, 4), stop=None)
    assert {type(command).__name__ for command in hand.owed.values()} == {"EnvStep", "Score", "Submit"}
    hand.send(TimerFired(timer="rollouts:0"))
    assert set(hand.aborts) == {c, d}
    hand.sample(c, (5,), stop=StopReason.INTERRUPTED)
    assert "rollouts:0" in hand.timers, "the wait for the abort has a deadline too"
    hand.send(TimerFired(timer="rollouts:0"))  # d's engine never answers
    assert hand.finished or hand.reports, "the step ended"
    fates = hand.runner.ledger.fates
    assert fates["failed"] == 5 and fates["held"] == 0
    assert hand.reports[0].metrics["num_failed"] == 3
    assert hand.reports[0].metrics["num_not_scored"] == 1


def test_deadline_is_the_end_of_the_rounds():
    """After the deadline no further round is asked for: the step is trained with what is there."""
    hand = Hand(plain_method(allocate=Extra()), num_steps=1)
    hand.start()
    first, *others = hand.asks(Submit)
    for ask in others:
        hand.sample(ask, (3, 0))
    for i, ask in enumerate(hand.asks(Score)):
        hand.score(ask, float(i % 2))
    hand.send(TimerFired(timer="rollouts:0"))
    hand.sample(first, (), stop=StopReason.INTERRUPTED)
    assert hand.batch is not None
    assert [len(group.trajectories) for group in hand.batch.groups] == [1, 2]


@pytest.mark.parametrize("policy", ["drop_group", "stop"])
def test_deadline_failures_follow_the_policy(policy):
    """A rollout lost to the deadline is a failed rollout like any other."""
    hand = Hand(plain_method(2), on_failure=policy)
    hand.start()
    first, *others = hand.asks(Submit)
    for ask in others:
        hand.sample(ask, (3, 0))
    for i, ask in enumerate(hand.asks(Score)):
        hand.score(ask, float(i % 2))
    hand.send(TimerFired(timer="rollouts:0"))
    hand.sample(first, (), stop=StopReason.INTERRUPTED)
    if policy == "drop_group":
        assert [group.task for group in hand.batch.groups] == ["t/4"]
    else:
        hand.publish()
        assert hand.finished is not None and "deadline" in hand.finished


def test_deadline_while_closing_keeps_carried_work():
    """An abort for a carry that is never answered: the work waits for the next step, nothing failed."""
    hand = Hand(plain_method(2, control=(On(Scored, Close),)), chunk=1)
    hand.start()
    slow = hand.asks(Submit)[3]
    hand.sample(slow, (3,), stop=None)
    for ask in hand.asks(Submit)[:2]:
        hand.sample(ask, (3, 0))
    for ask in hand.asks(Score):
        hand.score(ask, 1.0)
    hand.send(TimerFired(timer="rollouts:0"))
    assert hand.batch is not None
    hand.publish()
    assert hand.runner.ledger.fates["failed"] == 0
    assert [c.start for c in hand.owed.values() if isinstance(c, Submit) and c.ask == slow] == [3]


def test_learner_deadline_finishes_and_resume_gives_the_batch_again():
    """A learner that does not answer ends the run with a reason; a resumed run owes it the same batch."""
    hand = Hand()
    hand.start()
    hand.finish_rollouts([1, 0])
    batch = hand.batch
    hand.send(TimerFired(timer="learn:0"))
    assert hand.finished is not None and "learner" in hand.finished
    hand.finished = None
    commands = hand.resume()
    assert [c for c in commands if isinstance(c, EmitBatch)] == [batch]
    assert [c.timer for c in commands if isinstance(c, SetTimer)] == ["learn:0"]
    hand.publish()
    assert hand.asks(Reset)


def test_resume_before_the_start_starts():
    """A crash before the first event is in the journal: the resumed run begins."""
    hand = Hand()
    hand.send(Resumed())
    assert len(hand.asks(Reset)) == 2


def test_resume_after_the_end_says_so_again():
    """A run that is done is done after a restart too, with the same reason; an extension goes on."""
    hand = Hand(num_steps=1)
    hand.start()
    hand.finish_rollouts([1, 0])
    hand.publish()
    assert hand.finished == "all steps done"
    assert [c for c in hand.resume() if isinstance(c, Finish)] == [Finish(reason="all steps done")]
    hand.finished = None
    hand.send(Extended(num_steps=2))
    assert hand.runner.step_number == 1 and len(hand.asks(Reset)) == 2


def test_resume_after_a_stop_goes_on():
    """A clean stop by the user finishes the step; a resumed run goes on with the next one."""
    hand = Hand(num_steps=3)
    hand.start()
    hand.send(StopAsked())
    hand.finish_rollouts([1, 0])
    hand.publish()
    assert hand.finished == "stopped by the user"
    hand.finished = None
    hand.resume()
    assert hand.runner.step_number == 1 and len(hand.asks(Reset)) == 2
    hand.reset()
    hand.finish_rollouts([1, 0])
    hand.publish()
    assert hand.finished is None and hand.runner.step_number == 2


def test_nothing_is_submitted_after_the_end():
    """Answers that come after the run ended ask for nothing new."""
    hand = Hand(
        plain_method(2, control=(On(Scored, Close),)), is_dialogue=True, max_turns=3, num_steps=1, num_tasks=2
    )
    hand.start()
    first, second, third, fourth = hand.asks(Submit)
    [step] = hand.sample(third, (3,), stop=StopReason.STOP)  # stays with the environment
    for ask in (first, second):
        [env] = hand.sample(ask, (3,), stop=StopReason.STOP)
        hand.observe(env.ask, (5,), terminated=True)
    for ask in hand.asks(Score):
        hand.score(ask, 1.0)
    hand.sample(fourth, (), stop=StopReason.INTERRUPTED)
    hand.publish()
    assert hand.finished == "all steps done"
    assert hand.observe(step.ask, (5,)) == []


@pytest.mark.parametrize(
    "change",
    [
        {"num_tasks": 0},
        {"num_steps": -1},
        {"context": 0},
        {"max_tokens": 0},
        {"max_turns": 0},
        {"retries": -1},
        {"max_age": -1},
        {"chunk": -1},
        {"rollout_deadline": 0.0},
        {"learn_deadline": float("nan")},
        {"on_failure": "ignore"},
    ],
)
def test_settings_that_cannot_run_are_refused(change):
    """Each limit is checked when the settings are built, and the message names it."""
    with pytest.raises(ConfigError, match=next(iter(change))):
        plain_settings(**change)


def test_even_refuses_zero():
    """No rollouts per task is no run."""
    with pytest.raises(ConfigError, match="each = 0"):
        Even(0)
