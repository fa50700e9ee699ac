"""Case S08: a slow task under a limit on age. Its durations are in learner steps, and exact."""

from collections import Counter

from rollwright.events import Submit
from rollwright.runner.batch import age
from rollwright.stages.allocate.refill import Refill
from rollwright.stages.control.close_at_target import CloseAtTarget
from rollwright.stages.replay.full_batch import FullBatch
from rollwright.testing.hand import Hand, plain_method
from rollwright.tree import StopReason

DURATIONS = {"t/0": 1, "t/1": 1, "t/2": 1, "t/3": 6}
STEPS, MAX_AGE = 24, 2


class InOrder:
    def pick(self, history, num_tasks, rng):
        return [history.tasks[(history.num_picked + i) % 4] for i in range(num_tasks)]


def trained(**settings):
    """Run 24 steps, each as long as a fast rollout; return rows trained per task, ages and the ledger."""
    method = plain_method(
        1, select=InOrder(), allocate=Refill(1, 2.0), control=(CloseAtTarget(),), replay=FullBatch(hold=True)
    )
    tasks = tuple(DURATIONS)
    hand = Hand(method, tasks=tasks, num_tasks=2, num_steps=STEPS, chunk=1, **settings)
    hand.start()
    began, now = {}, 0
    while not hand.finished:
        now += 1
        assert now < 20 * STEPS, "the run stands still"
        for ask in hand.asks(Submit):
            began.setdefault(ask, now)
        for ask in [ask for ask in hand.asks(Submit) if now - began[ask] < DURATIONS[ask.split("#")[0]] - 1]:
            if ask in hand.owed:
                hand.sample(ask, (3,), stop=None)
        for ask in [ask for ask in hand.asks(Submit) if now - began[ask] >= DURATIONS[ask.split("#")[0]] - 1]:
            if ask in hand.owed:
                hand.sample(ask, (0,))
        for ask in [ask for ask in hand.owed if ask not in hand.asks(Submit)]:
            hand.score(ask, 1.0)
        for ask in list(hand.aborts):
            hand.sample(ask, (), stop=StopReason.INTERRUPTED)
        if hand.batch:
            hand.publish()
        hand.reset()
    rows = Counter(g.task for batch in hand.batches for g in batch.groups for _ in g.trajectories)
    ages = [age(g, t.leaf, b.version) for b in hand.batches for g in b.groups for t in g.trajectories]
    return rows, max(ages), hand.runner.ledger


def test_s08_admission_trains_the_slow_task_within_the_limit():
    """Case S08: every task is trained at least once, nothing is older than 2, and nothing is thrown away."""
    for num_ahead, max_carry in ((0, 2), (1, 1), (2, 0)):
        rows, oldest, ledger = trained(num_ahead=num_ahead, max_carry=max_carry)
        assert set(rows) == set(DURATIONS) and min(rows.values()) >= 1, (num_ahead, max_carry, rows)
        assert oldest <= MAX_AGE and ledger.fates["stale"] == 0


def test_s08_discarding_what_is_too_old_starves_it():
    """The wrong way of the case, which max_age alone is: 0 rows of task 3, its tokens stale, and said so."""
    rows, oldest, ledger = trained(max_age=MAX_AGE)
    assert rows["t/3"] == 0 and min(rows[task] for task in ("t/0", "t/1", "t/2")) >= 6
    assert oldest <= MAX_AGE and ledger.reasons["stale:max_age"] > 0
