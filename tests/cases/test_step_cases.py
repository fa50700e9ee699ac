"""Real cases of metrics and queues, through the runner: K01, K02, S03."""

import numpy as np

from rollwright.events import EnvStep, Score, Submit
from rollwright.stage import Grant
from rollwright.stages.allocate.even import Even
from rollwright.stages.replay.full_batch import FullBatch
from rollwright.testing.hand import Hand, plain_method
from rollwright.tree import Group, Node, Origin, StopReason


def test_k01_the_mean_reward_is_over_rollouts():
    """Case K01 (labs-molt#64), exact: 2 turns with reward 1, 6 turns with reward 0: 0.5, not 0.25."""
    hand = Hand(plain_method(2), num_tasks=1, num_steps=1, is_dialogue=True, max_turns=9)
    hand.start()
    for i, num_turns in enumerate((2, 6)):
        for turn in range(num_turns):
            [ask] = [ask for ask in hand.asks(Submit) if ask.startswith(f"t/0#0/{i}:")]
            hand.sample(ask, (3,), stop=StopReason.STOP)
            [ask] = hand.asks(EnvStep)
            hand.observe(ask, (5,), terminated=turn == num_turns - 1)
    first, second = hand.asks(Score)
    hand.score(first, 1.0)
    hand.score(second, 0.0)
    hand.publish()
    metrics = hand.reports[0].metrics
    assert metrics["reward_mean"] == 0.5 and metrics["turns_mean"] == 4.0


def test_k02_missing_values_and_running_groups():
    """Case K02 (trl#4501), exact: the mean of what is there, with its count; nothing becomes NaN."""
    hand = Hand(plain_method(6), num_tasks=1, num_steps=1)
    hand.start()
    for ask, num in zip(hand.asks(Submit), (5, 5, 5, 5, 5, 8), strict=True):
        hand.sample(ask, (3,) * num, stop=StopReason.LENGTH if num == 8 else StopReason.EOS)
    for ask, reward in zip(hand.asks(Score), (0.5, None, None, 0.8, 0.6, 0.7), strict=True):
        hand.score(ask, reward, "right" if reward is not None else "no_answer")
    hand.publish()
    metrics = hand.reports[0].metrics
    assert metrics["reward_mean"] == 0.65 and metrics["num_scored"] == 4
    assert metrics["truncated_share"] == 1 / 6, "a share of all rollouts, not of those with the flag"
    assert (metrics["length_max"], metrics["length_mean"]) == (8, 33 / 6), "from sampled tokens, not masks"
    assert all(value is None or np.isfinite(value) for value in metrics.values())


def test_s03_what_is_finished_is_returned_queued_or_rejected():
    """Case S03 (slime#2238), exact: ten finished groups, batches of four: 0-3, 4-7, and 8, 9 stay."""

    def group(i):
        return Group(f"t/{i}#0", f"t/{i}", {"root": Node("root", None, 0, Origin.PROMPT, (1,))})

    replay, rng = FullBatch(hold=True), np.random.default_rng(0)
    state, first = replay.exchange(replay.init(), [group(i) for i in range(10)], 0, rng, 4)
    state, second = replay.exchange(state, [], 1, rng, 4)
    names = [[g.task for g in some] for some in (first, second, state)]
    assert names == [[f"t/{i}" for i in some] for some in ((0, 1, 2, 3), (4, 5, 6, 7), (8, 9))]
    assert list(replay.holds(state)) == ["t/8#0", "t/9#0"]


def test_s03_the_ledger_holds_what_is_queued():
    """Case S03 through a run: ten groups finish, four are trained, six are held with all their tokens."""

    class Ten(Even):
        def grant(self, step, left):
            return Grant(10, 1) if step.round == 0 and step.step == 0 else Grant()

    hand = Hand(plain_method(allocate=Ten(), replay=FullBatch(hold=True)), num_tasks=4, num_steps=3)
    hand.start()
    hand.finish_rollouts([1.0])
    trained = []
    for fates in ((8, 12), (16, 4), (20, 0)):
        trained.append([group.task for group in hand.batch.groups])
        hand.publish()
        ledger = hand.runner.ledger.fates
        assert (ledger["trained"], ledger["held"]) == fates
    assert len({task for some in trained for task in some}) == 10
    assert [len(some) for some in trained] == [4, 4, 2]
    assert hand.finished == "all steps done"
