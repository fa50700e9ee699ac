"""Steps that overlap: who may begin when, what goes on without a pause, what is waited for."""

import pickle

import pytest

from rollwright.events import (
    BudgetChanged,
    EmitBatch,
    Extended,
    Failed,
    Reset,
    Sampled,
    SetTimer,
    Started,
    StopAsked,
    Submit,
    TimerFired,
)
from rollwright.runner.state import Phase
from rollwright.stage import Carry, Close, Grant
from rollwright.stages.allocate.refill import Refill
from rollwright.stages.replay.full_batch import FullBatch
from rollwright.testing.hand import Hand, plain_method
from rollwright.tree import StopReason


def groups_of(hand, kind=Submit):
    """Return the groups for which asks of a kind are owed, each once, in order."""
    return list(dict.fromkeys(c.group for c in hand.owed.values() if isinstance(c, kind)))


def finish(hand, group, rewards=(1.0, 0.0)):
    """Let every rollout of a group end, and grade them."""
    for ask in [ask for ask, c in hand.owed.items() if isinstance(c, Submit) and c.group == group]:
        hand.sample(ask, (3, 0))
    scores = [ask for ask, c in hand.owed.items() if c.group == group]
    for i, ask in enumerate(scores):
        hand.score(ask, rewards[i % len(rewards)])


@pytest.mark.parametrize("num_ahead", [0, 1, 3])
def test_rollouts_of_a_step_open_once_all_but_num_ahead_before_it_are_over(num_ahead):
    """Oracle: the rule itself, counted by hand at every publication."""
    hand = Hand(plain_method(2), num_ahead=num_ahead, num_steps=6, num_tasks=1)
    hand.start()
    for step in range(6):
        expected = min(step + num_ahead, 5) + 1
        assert hand.runner.num_opened == expected and list(hand.runner.steps) == list(range(step, expected))
        finish(hand, groups_of(hand)[0])
        assert hand.batch.step == step
        if step + num_ahead < 5:
            assert not hand.asks(Reset), "the learner works: nothing new is admitted"
        hand.publish()
        hand.reset()
    assert hand.finished == "all steps done"
    assert [batch.version for batch in hand.batches] == list(range(6))


def test_a_step_that_is_ready_early_waits_for_the_older_one():
    """Batches leave in the order of their steps, whatever finishes first; each is made when it leaves."""
    hand = Hand(plain_method(2), num_ahead=1, num_steps=2, num_tasks=1)
    hand.start()
    older, younger = groups_of(hand)
    finish(hand, younger)
    assert hand.batch is None and hand.runner.steps[1].phase is Phase.READY
    assert [(w.step, w.what) for w in hand.runner.waits()] == [(0, "tokens"), (1, "older step")]
    finish(hand, older)
    assert [group.id for group in hand.batch.groups] == [older]
    commands = hand.publish()
    assert [c.step for c in commands if isinstance(c, EmitBatch)] == [1]
    assert (hand.batch.version, [group.id for group in hand.batch.groups]) == (1, [younger])
    assert hand.reports[0].metrics["age_max"] == 0
    hand.publish()
    assert hand.reports[1].metrics["age_max"] == 1 and hand.finished


def test_which_tasks_a_step_has_does_not_depend_on_how_far_ahead_it_ran():
    """Metamorphic: the groups of each batch are those of the run in turn."""

    def batches(num_ahead):
        hand = Hand(plain_method(2), num_ahead=num_ahead, num_steps=5)
        hand.start()
        while not hand.finished:
            finish(hand, groups_of(hand)[-1]) if groups_of(hand) else hand.publish()
            hand.reset()
        return [[group.id for group in batch.groups] for batch in hand.batches]

    assert batches(0) == batches(1) == batches(2)


def test_an_update_that_is_skipped_counts_as_a_step_that_is_over():
    """Nothing was scored: the version stays, and the run goes on (a rule by versions would wait for ever)."""
    hand = Hand(plain_method(2), num_ahead=1, num_steps=4, num_tasks=1)
    hand.start()
    for _ in range(3):
        finish(hand, groups_of(hand)[0], rewards=(None,))
        hand.reset()
    assert hand.runner.version == 0 and hand.runner.step_number == 3
    finish(hand, groups_of(hand)[0])
    hand.publish()
    assert hand.finished == "all steps done"


class CloseFirst:
    """Close step 0 as soon as one of its groups is complete."""

    def __call__(self, event, view):
        return (Close("test"),) if view.step == 0 and view.num_complete else ()


def closing(max_carry=None, num_ahead=1, **changes):
    """Return (hand, group that is left, commands of the close): step 0 closes with one of two groups."""
    method = plain_method(2, control=(CloseFirst(),))
    hand = Hand(method, num_ahead=num_ahead, num_steps=4, max_carry=max_carry, **changes)
    hand.start()
    done, left = groups_of(hand)[:2]
    ask = next(ask for ask in hand.asks(Submit) if ask.startswith(left))
    hand.sample(ask, (3, 4), stop=None)
    for ask in [ask for ask in hand.asks(Submit) if ask.startswith(done)]:
        hand.sample(ask, (3, 0))
    first, second = [ask for ask, c in hand.owed.items() if c.group == done]
    hand.score(first, 1.0)
    return hand, left, hand.score(second, 0.0)


def test_a_close_moves_groups_into_the_step_that_is_open():
    """No abort and no new submit; the batch leaves at once; the group counts for step 1."""
    hand, left, commands = closing()
    assert not hand.aborts and not [c for c in commands if isinstance(c, Submit)]
    assert hand.batch.step == 0 and hand.runner.groups[left].step == 1
    assert next(iter(hand.runner.steps[1].groups)) == left, "the oldest first"
    view = hand.runner.view(hand.runner.steps[1])
    assert [group.is_carried for group in view.groups] == [True, False, False]
    hand.publish()
    hand.reset()
    for group in list(hand.runner.steps[1].groups):
        finish(hand, group)
    assert hand.batch.groups[0].id == left and len(hand.batch.groups) == 3


@pytest.mark.parametrize("num_ahead", [0, 1])
def test_a_group_that_may_not_be_carried_is_waited_for(num_ahead):
    """max_carry 0: the step stays open for it, its next turns go out, and it is trained with its step."""
    hand, left, _ = closing(0, num_ahead, is_dialogue=False)
    assert hand.batch is None and not hand.aborts
    assert hand.runner.steps[0].phase is Phase.CLOSING
    assert {w.what for w in hand.runner.waits() if w.step == 0} == {"tokens"}
    finish(hand, left)
    assert left in {group.id for group in hand.batch.groups}


def test_further_turns_of_a_group_that_is_waited_for_are_sampled_while_the_step_closes():
    """Only what may be carried over is kept back while a step closes."""
    hand = Hand(
        plain_method(1, control=(CloseFirst(),)), max_carry=0, num_steps=1, is_dialogue=True, max_turns=3
    )
    hand.start()
    first, second = hand.asks(Submit)
    [step] = hand.sample(first, (3,), stop=StopReason.STOP)
    [score] = hand.observe(step.ask, (5,), terminated=True)
    hand.score(score.ask, 1.0)
    assert hand.runner.phase is Phase.CLOSING
    [step] = hand.sample(second, (3,), stop=StopReason.STOP)
    [submit] = hand.observe(step.ask, (5,))
    assert isinstance(submit, Submit)
    [step] = hand.sample(submit.ask, (3,), stop=StopReason.STOP)
    [score] = hand.observe(step.ask, (5,), terminated=True)
    hand.score(score.ask, 1.0)
    assert len(hand.batch.groups) == 2


class CarryAll:
    """Carry every ask at its first chunk."""

    def __call__(self, event, view):
        is_chunk = isinstance(event, Sampled) and event.stop is None
        return (Carry(event.ask),) if is_chunk else ()


def test_a_carry_is_refused_to_a_group_that_may_not_be_carried():
    """max_carry 1: interrupted in its first step, not again in the second."""
    hand = Hand(plain_method(2, control=(CarryAll(),)), max_carry=1, num_tasks=1, num_steps=3)
    hand.start()
    ask = hand.asks(Submit)[0]
    hand.sample(ask, (3,), stop=None)
    assert list(hand.aborts) == [ask]
    hand.sample(ask, (), stop=StopReason.INTERRUPTED)
    hand.sample(hand.asks(Submit)[0], (3, 0))
    hand.score(next(a for a in hand.owed if not isinstance(hand.owed[a], Submit)), 1.0)
    assert hand.runner.step_number == 1, "step 0 had nothing to train"
    hand.sample(ask, (3,), stop=None)
    assert not hand.aborts
    hand.sample(ask, (0,))
    hand.score(next(iter(hand.owed)), 0.0)
    assert [group.opened_step for group in hand.runner.groups.values()] == [0] and hand.batch.step == 1


class Three:
    """Three groups in every step, whatever a batch needs."""

    def grant(self, step, left):
        return Grant(3, 2) if step.round == 0 else Grant()


@pytest.mark.parametrize(("max_carry", "sizes"), [(None, [2, 2, 2, 2]), (1, [2, 2, 2, 3]), (0, [3, 3, 3, 3])])
def test_a_batch_grows_rather_than_hold_a_group_too_long(max_carry, sizes):
    """Three groups come and two go in each step; one that may not wait any longer is in the batch too."""
    method = plain_method(2, allocate=Three(), replay=FullBatch(hold=True))
    hand = Hand(method, num_steps=4, max_carry=max_carry, tasks=tuple(f"t/{i}" for i in range(12)))
    hand.start()
    while not hand.finished:
        hand.finish_rollouts([1.0, 0.0])
        hand.publish()
        hand.reset()
    assert [len(batch.groups) for batch in hand.batches] == sizes
    order = [group.id for batch in hand.batches for group in batch.groups]
    assert order == list(dict.fromkeys(order)), "each is trained once"


def test_a_group_that_the_learner_has_is_not_held_for_a_later_step():
    """By hand: the one held group is in the batch; the step that opens meanwhile needs groups of its own."""
    method = plain_method(1, allocate=Refill(1, 2.0), replay=FullBatch(hold=True))
    hand = Hand(method, num_ahead=1, num_tasks=1, num_steps=3)
    hand.start()
    first, second, third, fourth = groups_of(hand)
    finish(hand, first)
    finish(hand, second)
    assert [group.id for group in hand.batch.groups] == [first], "the second is held"
    for group in (third, fourth):
        finish(hand, group, rewards=(None,))
    while hand.runner.steps[1].phase is Phase.ROLLOUTS:  # nothing was scored: it asks for more, in rounds
        hand.reset()
        finish(hand, groups_of(hand)[0], rewards=(None,))
    hand.publish()
    assert [group.id for group in hand.batch.groups] == [second]
    assert len(hand.asks(Reset)) == 2, "step 2 asks for what it lacks"


def test_asks_of_older_steps_go_first_in_an_engines_line():
    """Their priority is larger whatever the method's own priorities are."""
    hand = Hand(plain_method(2), num_ahead=2, num_steps=5, num_tasks=1)
    hand.start()
    priorities = [hand.owed[ask].priority for ask in hand.asks(Submit)]
    assert priorities == sorted(priorities, reverse=True) and len(set(priorities)) == 3
    in_turn = Hand(plain_method(2), num_steps=5)
    in_turn.start()
    assert {in_turn.owed[ask].priority for ask in in_turn.asks(Submit)} == {0}


# ---------------------------------------------------------------- ends and restarts


def test_a_stop_opens_no_further_step_and_finishes_the_open_ones():
    """Both open steps are trained; the third never begins."""
    hand = Hand(plain_method(2), num_ahead=1, num_steps=9, num_tasks=1)
    hand.start()
    hand.send(StopAsked())
    for _ in range(2):
        finish(hand, groups_of(hand)[0])
        hand.publish()
    assert hand.finished == "stopped by the user" and hand.runner.num_opened == 2


def test_a_larger_budget_or_a_later_end_admits_at_once():
    """Open steps are looked at again after every event, not only at the end of a step."""
    hand = Hand(plain_method(2), num_ahead=1, num_tasks=1, num_steps=1)
    hand.start()
    assert len(hand.runner.steps) == 1
    assert [c for c in hand.send(Extended(num_steps=3)) if isinstance(c, Reset)]
    hand = Hand(plain_method(2), num_ahead=1, num_tasks=1, num_steps=3, budget={"rollouts": 2})
    hand.start()
    assert len(hand.runner.steps) == 1
    assert [c for c in hand.send(BudgetChanged(granted={"rollouts": 20})) if isinstance(c, Reset)]


def test_a_run_that_the_learner_ended_goes_on_with_everything_that_flew():
    """After the learner's deadline and a restart: the batch again, and the rollouts of the next step too."""
    hand = Hand(plain_method(2), num_ahead=1, num_steps=3, num_tasks=1)
    hand.start()
    older, younger = groups_of(hand)
    hand.sample(hand.asks(Submit)[-1], (3, 4), stop=None)
    finish(hand, older)
    hand.send(TimerFired(timer="learn:0"))
    assert "learner did not answer" in hand.finished
    hand.finished = None
    commands = hand.resume()
    assert [c.step for c in commands if isinstance(c, EmitBatch)] == [0]
    assert sorted(c.start for c in commands if isinstance(c, Submit)) == [2, 4]
    timers = [c.timer for c in commands if isinstance(c, SetTimer)]
    assert sorted(timers) == ["learn:0", "rollouts:1"]
    finish(hand, younger)
    hand.publish()
    assert hand.batch.step == 1


def test_a_learner_that_fails_ends_the_run_with_its_batch_kept():
    """The reason is in the journal; a resumed run owes the same batch; a second failure is late."""
    hand = Hand(plain_method(2), num_tasks=1)
    hand.start()
    finish(hand, groups_of(hand)[0])
    batch = hand.batch
    failure = Failed(ask="learn:0", kind="learner", message="LearnerError: nan")
    hand.send(failure)
    assert hand.finished == "the learner failed: LearnerError: nan"
    hand.finished = None
    assert [c for c in hand.resume() if isinstance(c, EmitBatch)] == [batch]
    hand.publish()
    assert hand.runner.version == 1 and hand.send(failure) == [] and hand.runner.num_late == 1


def test_the_rule_holds_after_a_restart_at_any_event():
    """Metamorphic: pickled and resumed after event k, no more steps are open than the rule allows."""
    hand = Hand(plain_method(2), num_ahead=2, num_steps=6, num_tasks=1)
    hand.start()
    while not hand.finished:
        hand.runner = pickle.loads(pickle.dumps(hand.runner))
        hand.resume()
        assert hand.runner.next_step - hand.runner.step_number <= 3
        if groups_of(hand):
            finish(hand, groups_of(hand)[-1])
        if hand.batch:
            hand.publish()
        hand.reset()
    assert [batch.step for batch in hand.batches if batch.version == batch.step] == sorted(
        batch.step for batch in hand.batches
    )


def test_an_evaluation_is_one_step_however_far_ahead_training_runs():
    """It opens nothing beyond its own tasks."""
    hand = Hand(plain_method(1), num_ahead=3, num_steps=1, is_evaluation=True)
    hand.send(Started())
    assert len(hand.asks(Reset)) == 2 and len(hand.runner.steps) == 1


# ---------------------------------------------------------------- waits


def test_every_wait_is_listed_with_its_deadline():
    """By hand: prompt, tokens, retry, abort, environment, grade and learner, one after the other."""
    hand = Hand(
        plain_method(1, control=(CarryAll(),)),
        num_tasks=1,
        num_steps=2,
        is_dialogue=True,
        max_turns=2,
        retries=1,
        backoff=5.0,
        rollout_deadline=100.0,
        learn_deadline=50.0,
    )

    def waits():
        return [(w.step, w.phase, w.what, w.since, w.deadline, w.timer, w.asks) for w in hand.runner.waits()]

    ask = "t/0#0/0:0"
    rolling = (0, "rollouts")
    hand.send(Started(at=1.0))
    assert waits() == [(*rolling, "prompt", 1.0, 101.0, "rollouts:0", ("t/0#0/root",))]
    hand.reset()
    assert waits() == [(*rolling, "tokens", 1.0, 101.0, "rollouts:0", (ask,))]
    hand.send(Failed(ask=ask, kind="engine", message="lost", at=2.0))
    assert waits() == [(*rolling, "retry", 1.0, 7.0, f"retry:{ask}", (ask,))]
    hand.send(TimerFired(timer=f"retry:{ask}", at=7.0))
    assert waits() == [(*rolling, "tokens", 7.0, 101.0, "rollouts:0", (ask,))]
    hand.sample(ask, (3,), stop=None, at=8.0)
    assert waits() == [(*rolling, "abort", 8.0, 101.0, "rollouts:0", (ask,))]
    hand.sample(ask, (), stop=StopReason.INTERRUPTED, at=9.0)
    assert waits()[-1] == (1, "rollouts", "tokens", 9.0, 109.0, "rollouts:1", (ask,)), "step 0 had no batch"
    hand.sample(ask, (3,), stop=StopReason.STOP, at=10.0)
    assert [w[2:4] for w in waits()] == [("environment", 10.0)]
    hand.observe("t/0#0/0:1", (5,), terminated=True, at=11.0)
    assert waits()[0][2:4] == ("grade", 11.0)
    hand.score("t/0#0/0:2", 1.0)
    assert waits() == [(1, "learning", "learner", 11.0, 61.0, "learn:1", ())]
    hand.publish()
    assert hand.finished and waits() == []
