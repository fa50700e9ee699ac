"""The asynchronous driver: the same runs as inline, overlap that is real, deadlines that hold."""

import threading
import time

import pytest
from async_help import TASK, Jitter, Run, SlowEngine, SlowWorld, publish, rows

from rollwright.discovery import load_method
from rollwright.drive.asynchronous import Limits
from rollwright.drive.inline import InlineDriver
from rollwright.drive.world import World
from rollwright.errors import EngineError, LearnerError
from rollwright.events import Abort, EmitBatch, Failed, Published, Sampled, Scored
from rollwright.runner import Runner
from rollwright.runner.batch import age
from rollwright.runner.state import AskState
from rollwright.testing.chaos import check_fold, check_tokens
from rollwright.testing.fake import FakeEngine, ToyTask, ToyTokenizer
from rollwright.tree import Origin

SOON = 10.0  # seconds after which a test gives up waiting for a thread


def inline(method, settings):
    batches = []

    def train(batch):
        batches.append(batch)
        return publish(batch)

    runner = Runner(method, settings)
    InlineDriver(runner, FakeEngine(), World(TASK, ToyTokenizer(), (0,)), train).run()
    return batches, runner


@pytest.mark.parametrize("name", ["grpo", "dapo", "vigor", "rlep"])
def test_in_turn_it_trains_what_the_inline_driver_trains(name):
    """Other implementation: with num_ahead 0 every batch is equal, token for token, whatever threads do."""
    jitter = Jitter(3)
    run = Run(load_method(name, each=4), SlowEngine(jitter), SlowWorld(TASK, jitter), limits=Limits(2, 2))()
    batches, runner = inline(run.method, run.settings)
    assert [rows(batch) for batch in run.batches] == [rows(batch) for batch in batches]
    assert run.reason == "all steps done" and run.runner.ledger.fates == runner.ledger.fates


@pytest.mark.parametrize("seed", range(6))
def test_any_order_of_threads_keeps_the_laws(seed):
    """Fold (byte for byte), tokens sampled again from their versions, the bound on ages, the ledger."""
    name = ["grpo", "april", "dapo"][seed % 3]
    num_ahead, jitter = seed % 2 + 1, Jitter(seed)

    def train(batch):
        jitter()
        return publish(batch)

    world = SlowWorld(TASK, jitter)
    limits = Limits(2, 2, publish="drain" if seed % 4 == 3 else "interrupt")
    run = Run(name, SlowEngine(jitter), world, train, limits=limits, num_ahead=num_ahead, max_carry=1)()
    assert check_fold(run.method, run.settings, run.journal.rows).ledger == run.runner.ledger
    run.runner.ledger.check()
    assert run.reason == "all steps done" and [batch.step for batch in run.batches] == [0, 1, 2, 3]
    for batch in run.batches:
        for group in batch.groups:
            check_tokens(group, run.settings.seed)
            ages = [age(group, t.leaf, batch.version) for t in group.trajectories]
            assert max(ages) <= num_ahead + (name == "april")


def test_rollouts_go_on_while_the_learner_learns():
    """Step 1 is sampled, graded and recorded during the update of step 0, which waits for just that."""
    learning = threading.Event()

    class Later(FakeEngine):
        """Samples the first step's groups only, until the learner is at work."""

        def step(self):
            time.sleep(0.001)
            asks = [a for a in self.live if learning.is_set() or a.split("#")[0] in run.first]
            return [self.advance(ask) for ask in asks]

    def train(batch):
        learning.set()
        tokens, events = run.engine.num_tokens, len(run.journal.rows)
        until = time.monotonic() + SOON
        while batch.step == 0 and (run.engine.num_tokens <= tokens or len(run.journal.rows) <= events + 3):
            assert time.monotonic() < until, "nothing was sampled, or nothing recorded, during the update"
            time.sleep(0.001)
        return publish(batch)

    run = Run(engine=Later(), train=train, num_ahead=1)
    run.first = {group.task for group in inline(run.method, run.settings)[0][0].groups}
    assert run().reason == "all steps done" and len(run.batches) == 4


def test_rollouts_go_on_while_a_grader_grades():
    """The first grade ends only when another rollout's tokens came: neither blocks the other."""
    came = threading.Event()

    class Waiting(World):
        def score(self, *given):
            assert came.wait(SOON), "no token came while the grader worked"
            return super().score(*given)

    class Telling(FakeEngine):
        num_ended = 0

        def step(self):
            chunks = super().step()
            self.num_ended += sum(chunk.stop is not None for chunk in chunks)
            if self.num_ended >= 6:
                came.set()
            return chunks

    task = ToyTask(num_tasks=6, max_tokens=9, context=40)
    run = Run(engine=Telling(), world=Waiting(task, ToyTokenizer(), (0,)), task=task, num_steps=1)()
    assert run.reason == "all steps done"
    assert all(t.reward is not None for g in run.batches[0].groups for t in g.trajectories)


# ---------------------------------------------------------------- deadlines


class Hanging(World):
    """Grades of texts that begin with 3, 4 or 5 hang until the test is over, or steps of first turns do."""

    def __init__(self, task, what):
        super().__init__(task, ToyTokenizer(), (0,))
        self.what, self.over, self.num_back = what, threading.Event(), 0

    def _hang(self):
        self.over.wait(6 * SOON)
        self.num_back += 1

    def score(self, command, task, nodes, truncated):
        if self.what == "grade" and self.text(nodes[command.leaf].tokens).startswith(("3", "4", "5")):
            self._hang()
        return super().score(command, task, nodes, truncated)

    def env_step(self, command, task, nodes):
        if self.what == "step" and command.ask.endswith("/0:1"):
            self._hang()
        return super().env_step(command, task, nodes)


def test_a_grader_that_hangs_is_given_up_and_its_thread_replaced():
    """Kind grader, no reward, a count of threads; two places in the pool serve the others meanwhile."""
    task = ToyTask(num_tasks=6, max_tokens=9, context=40)
    world, limits = Hanging(task, "grade"), Limits(num_graders=2, grader_s=0.5)
    run = Run(world=world, task=task, limits=limits, num_steps=2, retries=0)()
    assert world.num_back == 0, "nobody waited for them"
    failed = [event for event in run.journal.events if isinstance(event, Failed)]
    assert len(failed) > 2, "more than there are places"
    assert {event.kind for event in failed} == {"grader"} and "no answer within 0.5 s" in failed[0].message
    assert run.driver.num_abandoned == len(failed)
    trained = [t for batch in run.batches for g in batch.groups for t in g.trajectories]
    statuses = {t.status for t in trained}
    assert "grader_error" in statuses and {"right", "wrong"} & statuses
    assert all((t.reward is None) == (t.status == "grader_error") for t in trained)
    assert run.reason == "all steps done"
    world.over.set()


def test_an_answer_after_the_deadline_is_no_answer():
    """What the thread that was left behind says later is heard by nobody: it answers during the update."""
    task = ToyTask(num_tasks=6, max_tokens=9, context=40)
    world = Hanging(task, "grade")

    def train(batch):
        world.over.set()
        until = time.monotonic() + SOON
        while world.num_back < run.driver.num_abandoned and time.monotonic() < until:
            time.sleep(0.01)
        time.sleep(0.1)  # the answers are on their way
        return publish(batch)

    run = Run(world=world, train=train, task=task, limits=Limits(grader_s=0.5), num_steps=1, retries=0)
    run()
    failed = {event.ask for event in run.journal.events if isinstance(event, Failed)}
    scored = [event.ask for event in run.journal.events if isinstance(event, Scored)]
    assert world.num_back and failed and not failed & set(scored) and len(scored) == len(set(scored))
    assert run.runner.num_late == 0


def test_an_environment_that_hangs_is_given_up():
    """Kind environment: its rollout is lost, the others go on."""
    world, limits = Hanging(TASK, "step"), Limits(num_environments=1, environment_s=1.0)
    run = Run(world=world, limits=limits, num_steps=1, retries=0)()
    failed = [event for event in run.journal.events if isinstance(event, Failed)]
    assert len(failed) == 2 and {event.kind for event in failed} == {"environment"}
    assert run.reports[0].metrics["num_failed"] == 2 and len(run.batches) == 1
    world.over.set()


def test_an_engine_that_hangs_ends_the_run_with_everything_kept():
    """EngineError within its deadline; what was acknowledged folds to the runner's state."""

    class Hanging(FakeEngine):
        def step(self):
            chunks = super().step()
            if self.num_tokens > 60:
                time.sleep(3.0)
            return chunks

    run = Run(engine=Hanging(), limits=Limits(engine_s=0.3))
    start = time.monotonic()
    with pytest.raises(EngineError, match=r"did not come back within 0\.3 s"):
        run()
    assert time.monotonic() - start < 2.5
    assert check_fold(run.method, run.settings, run.journal.rows).ledger == run.runner.ledger


def test_an_engine_that_fails_ends_the_run_with_its_error():
    """The error is raised here, not swallowed in a thread."""

    class Broken(FakeEngine):
        def step(self):
            if self.num_tokens > 30:
                raise EngineError("the weights are no numbers")
            return super().step()

    with pytest.raises(EngineError, match="no numbers"):
        Run(engine=Broken())()


def test_a_learner_that_hangs_ends_the_run_and_can_be_resumed():
    """The runner's own deadline; the batch is owed again, and trained once it is resumed."""

    given_up = threading.Event()

    def hang(batch):
        given_up.wait(SOON)
        return publish(batch)

    run = Run(train=hang, learn_deadline=0.3)()
    assert "learner did not answer" in run.reason and run.driver.is_learning
    given_up.set()
    owed = [c for _, commands in run.journal.rows for c in commands if isinstance(c, EmitBatch)]
    again = Run(runner=run.runner)(is_resumed=True)
    assert again.reason == "all steps done" and rows(again.batches[0]) == rows(owed[0])


def test_a_learner_that_fails_is_in_the_journal_and_raised():
    """Its own error comes out of run; the journal says learner; a resumed run is given the batch again."""

    def fail(batch):
        raise LearnerError("the loss is nan")

    run = Run(train=fail, num_ahead=1)
    with pytest.raises(LearnerError, match="the loss is nan"):
        run()
    [failed] = [event for event in run.journal.events if isinstance(event, Failed)]
    assert (failed.ask, failed.kind) == ("learn:0", "learner")
    assert run.runner.end_reason == "the learner failed: LearnerError: the loss is nan"
    again = Run(runner=run.runner, num_ahead=1)(is_resumed=True)
    assert again.reason == "all steps done" and rows(again.batches[0]) == rows(run.batches[0])


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_in_a_grader_ends_the_run(kind):
    """Case C03's second half: cancellation is no failure of a rollout, in a thread either."""

    class Interrupted(World):
        def score(self, *given):
            raise kind

    with pytest.raises(kind):
        Run(world=Interrupted(TASK, ToyTokenizer(), (0,)))()


# ---------------------------------------------------------------- weights


class TwoHalves(FakeEngine):
    """An engine whose weights are two numbers that must always be equal."""

    def __init__(self):
        super().__init__()
        self.halves = [0, 0]
        self.seen = set()

    def step(self):
        first = self.halves[0]
        time.sleep(0.001)
        assert first == self.halves[1] == self.version, "half of an update was sampled from"
        self.seen.add(first)
        return super().step()


def test_no_token_is_sampled_from_half_an_update():
    """Case W02: the learner changes its weights piece by piece; the engine sees whole versions only."""
    engine, learner = TwoHalves(), [0, 0]

    def train(batch):
        for half in (0, 1):
            learner[half] = batch.version + 1
            time.sleep(0.01)
        return publish(batch)

    def load():
        assert threading.current_thread().name == "engine"  # which cannot sample meanwhile
        assert learner[0] == learner[1]
        for half in (0, 1):
            engine.halves[half] = learner[half]
            time.sleep(0.005)

    run = Run(engine=engine, train=train, load=load, num_ahead=2, num_steps=6)()
    assert run.reason == "all steps done" and len(engine.seen) > 3


def versions_in_asks(run):
    """Return, for each ask that was sampled, the versions of its chunks."""
    found = {}
    for event in run.journal.events:
        if isinstance(event, Sampled) and event.tokens:
            found.setdefault(event.ask, set()).add(event.version)
    return found


@pytest.mark.parametrize("how", ["interrupt", "drain"])
def test_what_runs_goes_on_under_new_weights_or_ends_under_the_old(how):
    """Interrupt: some turn has tokens of two versions. Drain: none has, and new asks wait for new weights."""
    task = ToyTask(num_tasks=6, max_tokens=200, context=240, share=0.0)

    run = Run(  # long answers: updates come in the middle of them
        engine=SlowEngine(lambda: time.sleep(0.001), num_words=40),
        task=task,
        world=World(task, ToyTokenizer(), (0,)),
        limits=Limits(publish=how),
        num_ahead=2,
        num_steps=6,
        num_tasks=1,
        chunk=1,
    )()
    mixed = [ask for ask, versions in versions_in_asks(run).items() if len(versions) > 1]
    assert bool(mixed) == (how == "interrupt")
    nodes = [n for batch in run.batches for g in batch.groups for n in g.nodes.values()]
    assert all(n.version is not None for n in nodes if n.origin is Origin.SAMPLED and n.num_steps)
    ages = [age(g, t.leaf, b.version) for b in run.batches for g in b.groups for t in g.trajectories]
    assert max(ages) <= 2


# ---------------------------------------------------------------- records


@pytest.mark.parametrize("driver", ["inline", "async"])
def test_a_close_and_the_answers_to_its_aborts_are_flushed_at_once(driver):
    """At no flush is an abort unanswered: a crash there loses no tokens that were made and not reported."""
    run = Run("april", FakeEngine(arrival=1), chunk=1, num_steps=6)
    if driver == "inline":
        world = World(TASK, ToyTokenizer(), (0,))
        InlineDriver(run.runner, FakeEngine(arrival=1), world, publish, run.journal).run()
    else:
        run()
    runner, flushed = Runner(run.method, run.settings), set(run.journal.flushed)
    num_aborts = 0
    for number, (event, commands) in enumerate(run.journal.rows, 1):
        runner.step(event)
        num_aborts += sum(isinstance(command, Abort) for command in commands)
        if number in flushed:
            assert not [live for live in runner.asks.values() if live.state is AskState.ABORTING]
    assert num_aborts


def test_stop_lets_the_update_end_and_a_resume_goes_on():
    """What is being done now is recorded; the batch is not trained again; no later batch was begun."""

    def train(batch):
        run.driver.stop()
        time.sleep(0.05)
        return publish(batch)

    run = Run(num_ahead=1, num_steps=4, train=train)
    assert run().reason is None
    assert [event.version for event in run.journal.events if isinstance(event, Published)] == [1]
    emitted = [c.step for _, commands in run.journal.rows for c in commands if isinstance(c, EmitBatch)]
    assert len(run.batches) == 1 and emitted[:1] == [0]
    again = Run(runner=run.runner, num_ahead=1, num_steps=4)(is_resumed=True)
    assert again.reason == "all steps done" and [batch.step for batch in again.batches] == [1, 2, 3]


def test_threads_end_with_the_run():
    """No thread of engine, graders, environments or learner is left behind."""
    before = set(threading.enumerate())
    Run(num_ahead=1)()
    until = time.monotonic() + SOON
    while (left := set(threading.enumerate()) - before) and time.monotonic() < until:
        time.sleep(0.01)
    assert not left
