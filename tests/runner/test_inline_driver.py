"""The inline driver: timers, ends that are undone, and asks that the engine never had."""

import pytest

from rollwright.drive.inline import InlineDriver
from rollwright.drive.world import World
from rollwright.errors import EngineError, LawBroken
from rollwright.events import Extended, Published, Resumed, Sampled, TimerFired
from rollwright.runner import Runner
from rollwright.stage import Close
from rollwright.testing.fake import FakeEngine, ToyTask, ToyTokenizer
from rollwright.testing.hand import plain_method, plain_settings


class Rows:
    """A journal in memory."""

    def __init__(self):
        self.events = []

    def append(self, event, commands):
        self.events.append(event)

    def flush(self):
        pass


def driver(method=None, engine=None, clock=lambda: 0.0, runner=None, train=True, **settings):
    task = ToyTask()
    fields = {
        "tasks": tuple(task.ids("train")),
        "context": task.context,
        "max_tokens": task.max_tokens,
        "chunk": 4,
    }
    runner = runner or Runner(method or plain_method(2), plain_settings(**{**fields, **settings}))

    def learn(batch):
        return Published(step=batch.step, version=batch.version + 1)

    engine = engine or FakeEngine(version=runner.version)
    world = World(task, ToyTokenizer(), (0,))
    return InlineDriver(runner, engine, world, learn if train else None, Rows(), clock=clock)


def test_a_due_timer_fires_once():
    """A clock that jumps past the deadline: one event, the asks are failed, the run ends by itself."""
    times = iter([0.0, *[0.0] * 5, *[5000.0] * 10_000])
    it = driver(clock=lambda: next(times), num_steps=1, rollout_deadline=60.0)
    assert it.run() == "all steps done"
    fired = [event for event in it.journal.events if isinstance(event, TimerFired)]
    assert len(fired) == 1
    assert it.runner.ledger.fates["failed"] > 0 and it.runner.ledger.fates["held"] == 0


def test_a_finished_run_may_be_extended():
    """Resumed says that it is over, the extension undoes that, and the next step begins."""
    it = driver(num_steps=1)
    assert it.run() == "all steps done"
    again = driver(runner=it.runner)
    assert again.run(is_resumed=True, extend_to=3) == "all steps done"
    assert it.runner.version == 3
    assert [type(event) for event in again.journal.events[:2]] == [Resumed, Extended]


def test_a_finished_run_is_finished_after_a_restart():
    """Nothing is done twice."""
    it = driver(num_steps=1)
    it.run()
    again = driver(runner=it.runner)
    assert again.run(is_resumed=True) == "all steps done"
    assert again.engine.num_tokens == 0


def test_a_stop_leaves_the_batch_to_the_resumed_run():
    """The batch that is owed is not trained any more, and is given again."""
    it = driver(num_steps=1)
    trained = it.train
    it.on_report = None

    class Stopping(FakeEngine):
        def step(self):
            chunks = super().step()
            if not self.live:
                it.stop()
            return chunks

    it.engine = Stopping()
    assert it.run() is None and it.runner.version == 0
    again = driver(runner=it.runner)
    assert again.run(is_resumed=True) == "all steps done"
    assert it.runner.version == 1 and trained is not None


class CloseOnce:
    def __call__(self, event, view):
        return (Close("now"),) if isinstance(event, Sampled) and view.step == 0 else ()


def test_an_ask_that_was_refused_is_not_aborted():
    """Close in the chunk that follows a refusal: the engine is asked to abort only what it has."""

    class Picky(FakeEngine):
        def submit(self, command, prefix):
            if command.ask.endswith("/0:0"):
                raise EngineError("no")
            super().submit(command, prefix)

        def abort(self, ask):
            assert ask in self.live
            return super().abort(ask)

    it = driver(plain_method(2, control=(CloseOnce(),)), Picky(), num_steps=2, retries=1)
    assert it.run() == "all steps done"
    it.runner.ledger.check()


def test_a_batch_without_a_learner_is_a_broken_law():
    """A driver without a learner can only evaluate."""
    with pytest.raises(LawBroken, match="no learner"):
        driver(train=False, num_steps=1).run()


def test_an_evaluation_needs_no_learner():
    """One step, all fates evaluation."""
    it = driver(train=False, num_steps=1, is_evaluation=True)
    assert it.run() == "evaluated"
    assert it.runner.ledger.fates["evaluation"] == it.runner.ledger.spent["sampled_tokens"] > 0


def test_an_engine_that_goes_silent_is_told():
    """Asks in flight, but the engine has nothing: a bug that must not become a busy loop."""

    class Silent(FakeEngine):
        def step(self):
            self.live.clear()
            return []

    with pytest.raises(LawBroken, match="waits for nothing"):
        driver(engine=Silent()).run()
