"""The crew and its driver, on a Ray that runs in this process: any order, any deaths, no waiting."""

from __future__ import annotations

import functools
import random
import sys

import pytest
from async_help import TASK, settings_of
from async_help import Journal as Rows
from drive_help import run_inline, toy_settings
from fake_ray import FakeRay, install
from ray_help import Run, ToySampler, ToyTrainer, outcome, toy_crew, toy_world

from rollwright.discovery import load_method
from rollwright.drive.inline import InlineDriver
from rollwright.drive.place.cache_aware import CacheAware
from rollwright.drive.place.group_home import GroupHome
from rollwright.drive.place.round_robin import RoundRobin
from rollwright.drive.placement import LeastLoaded
from rollwright.drive.ray import actors
from rollwright.drive.ray.actors import Served, Submission
from rollwright.drive.ray.recipe import Recipe
from rollwright.errors import ConfigError, EngineError, GraderError, LearnerError
from rollwright.events import EmitBatch, Failed, Sampled, WorkerLost
from rollwright.runner import Runner
from rollwright.runner.batch import age
from rollwright.runner.state import AskState
from rollwright.store.journal import Journal, check_replay, read
from rollwright.testing.chaos import check_fold, check_tokens
from rollwright.testing.fake import FakeEngine, ToyTask
from rollwright.testing.hand import plain_method

DIALOGUE = ToyTask(max_turns=3, context=64)


@pytest.fixture
def fake(monkeypatch):
    return install(monkeypatch, FakeRay())


def recipe_of(task, sampler=ToySampler, trainer=ToyTrainer):
    return Recipe(sampler, functools.partial(toy_world, task), trainer)


def run(fake, task=None, recipe=None, journal=None, num_each=2, run_options=None, batches=None, **settings):
    """Run the toy task on the fake to its end; ``settings`` are the crew's."""
    task = task or ToyTask()
    runner = Runner(plain_method(num_each), toy_settings(task, **(run_options or {})))
    with toy_crew(recipe or recipe_of(task), fake.clock, **settings) as crew:
        it = Run(crew, runner, journal)
        it.batches = it.batches if batches is None else batches
        it.reason, it.crew = it.driver.run(), crew
    return it


def inline(task=None, num_each=2, **options):
    return run_inline(task or ToyTask(), plain_method(num_each), **options)


def killing(fake, seed, share, most=10):
    """Let actors die at random moments: when a call of theirs, or of another, is about to run."""
    killed = []

    def before(actor, call):
        if len(killed) < most and fake.random.random() < share:
            victim = fake.random.choice(fake.living())
            killed.append(victim.kind.__name__)
            fake.kill(victim, True)

    fake.random.seed(seed)
    fake.before_call = before
    return killed


@pytest.mark.parametrize("task", [ToyTask(), DIALOGUE], ids=["single", "dialogue"])
def test_it_trains_what_the_inline_driver_trains(fake, task):
    """Oracle: the inline driver; whole batches are equal, tree for tree."""
    it = run(fake, task)
    assert it.reason == "all steps done"
    assert it.batches == inline(task).batches
    assert [kind for kind, *_ in (a for a in fake.log if a[1] == "train")] == ["Learner"] * 4


@pytest.mark.parametrize("seed", range(12))
def test_random_deaths_change_no_sample(fake, tmp_path, seed):
    """Oracle: the inline driver. Ten actors of any kind die at random moments of a dialogue; the run ends,
    the same tokens, logprobs, versions and rewards are trained, the ledger balances, the journal replays.
    """
    killed = killing(fake, seed, 0.15)
    journal = Journal(tmp_path / "journal.jsonl")
    it = run(fake, DIALOGUE, journal=journal, worker_asks=3, grader_asks=2, losses=50)
    assert it.reason == "all steps done" and len(killed) == 10
    crew = it.crew
    lost = {"RolloutWorker": crew.workers, "Grader": crew.graders, "Learner": crew.seat}
    for kind, pool in lost.items():  # one that ended last may not have been missed
        assert killed.count(kind) - 1 <= pool.num_lost <= killed.count(kind)
    assert not crew.graders._suspects  # all of them were cleared by an answer
    whole = inline(DIALOGUE)
    assert outcome(it.batches) == outcome(whole.batches)
    it.runner.ledger.check()
    assert it.runner.ledger.fates == whole.runner.ledger.fates
    journal.flush()
    again = Runner(plain_method(2), toy_settings(DIALOGUE))
    assert check_replay(journal.path, again.step) == journal.num_records
    assert any(isinstance(event, WorkerLost) for event, _ in read(journal.path))


@pytest.mark.parametrize("seed", range(9))
def test_random_deaths_keep_the_laws_of_racing_and_overlapping_runs(fake, seed):
    """Oracle: the fold, byte for byte; the toy policy, by which every token is sampled again under the
    version that it is labelled with; the bound on ages; the ledger; and no flush without the answers to its
    aborts. What is trained may depend on who died: these methods take what comes first.
    """
    name, num_ahead = ["april", "grpo", "dapo"][seed % 3], seed // 3
    settings = settings_of(num_ahead=num_ahead, max_carry=1, num_steps=5, chunk=2)
    method, batches = load_method(name, each=3), []
    killed, journal = killing(fake, seed, 0.1), Rows()
    with toy_crew(recipe_of(TASK), fake.clock, worker_asks=2, grader_asks=3, losses=50) as crew:
        it = Run(crew, Runner(method, settings), journal)
        batches = it.batches
        assert it.driver.run() == "all steps done"
    assert len(killed) > 5
    it.runner.ledger.check()
    assert check_fold(method, settings, journal.rows).ledger == it.runner.ledger
    assert [batch.step for batch in batches] == list(range(5))
    for batch in batches:
        for group in batch.groups:
            check_tokens(group, settings.seed)
            ages = [age(group, t.leaf, batch.version) for t in group.trajectories]
            assert max(ages) <= num_ahead + (name == "april")
    again, flushed = Runner(method, settings), set(journal.flushed)
    for number, (event, _) in enumerate(journal.rows, 1):
        again.step(event)
        aborting = [live for live in again.asks.values() if live.state is AskState.ABORTING]
        assert not (number in flushed and aborting)


def test_weights_travel_once_to_each_machine(fake):
    """Oracle: hand. 4 workers on 2 machines and 4 updates: 5 objects (the last one is needed by nobody), each
    given to every worker, fetched by each machine at most once, and never by the driver.
    """
    objects = []

    def note(actor, call):
        if call.method == "publish":
            objects.append(call.args[1])

    fake.before_call = note
    it = run(fake, workers=4)
    distinct = set(objects)
    assert it.crew.num_versions == 5 and len(distinct) == 4
    assert len(objects) == 4 * 4
    moves = [(ref, node) for ref, node in fake.sent if ref in distinct]
    assert len(moves) == len(set(moves)) == 4  # from the learner's machine to the other one
    assert not any(ref.is_with_driver for ref in distinct)


def test_a_new_worker_serves_only_with_the_current_weights(fake):
    """Oracle: the toy engine, which samples by the weights that it was given. A worker dies in each step;
    whoever comes is given weights before its first ask, those of the moment.
    """
    first = {}

    def before(actor, call):
        if actor.kind.__name__ != "RolloutWorker" or call.method == "begin":
            return
        first.setdefault(actor.number, call.method)
        fake.before_call.count += 1
        if fake.before_call.count % 8 == 0:
            fake.kill(actor, True)

    before.count = 0
    fake.before_call = before
    it = run(fake, run_options={"num_steps": 6}, losses=50)
    assert it.crew.workers.num_lost > 3
    assert set(first.values()) == {"publish"}
    assert outcome(it.batches) == outcome(inline(num_steps=6).batches)


def test_nothing_is_queued_without_a_bound(fake):
    """Oracle: the limits. No worker has more asks than it may, no actor more calls than it may."""
    most = {"asks": 0, "RolloutWorker": 0, "Grader": 0, "jobs": 0}

    def before(actor, call):
        kind = actor.kind.__name__
        if kind in most:
            most[kind] = max(most[kind], len(actor.queue))
        if kind == "RolloutWorker" and call.method == "work":
            most["asks"] = max(most["asks"], len(actor.instance.engine.live))
        if call.method == "serve":
            most["jobs"] = max(most["jobs"], len(call.args[0]))

    fake.before_call = before
    run(fake, num_each=8, worker_asks=3, grader_asks=2)
    assert most["asks"] == 3
    assert most["RolloutWorker"] == 2  # work, and weights
    assert most["Grader"] == 1 and most["jobs"] == 2


@pytest.mark.parametrize("placement", [CacheAware(8.0), RoundRobin(), LeastLoaded(), GroupHome()])
def test_where_an_ask_goes_changes_no_sample(fake, placement):
    """Oracle: the inline driver, for every placement of the simulator; and a count: with homes, all asks of a
    group that finds room are on one worker.
    """
    workers = {}

    def before(actor, call):
        if call.method == "work":
            for order in call.args[0]:
                if isinstance(order, Submission):
                    workers.setdefault(order.command.group, set()).add(actor.number)

    fake.before_call = before
    it = run(fake, DIALOGUE, num_each=4, placement=placement, workers=3)
    assert outcome(it.batches) == outcome(inline(DIALOGUE, 4).batches)
    if isinstance(placement, GroupHome):
        assert {len(names) for names in workers.values()} == {1} and len(set.union(*workers.values())) == 3
    elif isinstance(placement, RoundRobin):
        assert max(len(names) for names in workers.values()) > 1


def test_the_machine_with_the_weights_is_lost(fake):
    """Oracle: the inline driver. The learner's machine goes when its update is answered and nobody has
    fetched it: the next learner makes the same weights again.
    """
    state = {"lost": 0}
    original = fake._run

    def run_then_lose(actor, call):
        original(actor, call)
        if call.method == "train" and not state["lost"]:
            state["lost"] += 1
            fake.machines["c"] = 2.0
            fake.lose_machine(actor.node)

    fake._run = run_then_lose
    it = run(fake)
    assert state["lost"] and it.crew.seat.num_lost == 1
    assert it.reason == "all steps done"
    assert outcome(it.batches) == outcome(inline().batches)


def test_a_worker_that_hangs_is_replaced(fake):
    """Oracle: the inline driver, and the fake's clock: after ``engine_s`` others go on with its asks."""
    hung = []

    def before(actor, call):
        if call.method == "work" and not hung and call.args[0]:
            actor.is_hung = True
            hung.append(actor)

    fake.before_call = before
    it = run(fake, engine_s=30.0)
    assert it.crew.workers.num_lost == 1 and hung[0].is_dead and 30 < fake.now < 60
    assert outcome(it.batches) == outcome(inline().batches)


def breaking(fake, dice, most=15):
    """Let actors die or hang, and machines come and go, at random moments; return what was done."""
    done = []

    def before(actor, call):
        chance = dice.random()
        if len(done) >= most or chance >= 0.11:
            return
        if chance < 0.06:
            fake.kill(dice.choice(fake.living()), True)
            done.append("kill")
        elif chance < 0.08:
            # Neither an update nor one grade alone, which has failed then: the samples would differ.
            if call.method == "work" or (call.method == "serve" and len(call.args[0]) > 1):
                actor.is_hung = True
                done.append("hang")
        elif chance < 0.09 and len(fake.machines) > 1:
            fake.lose_machine(dice.choice(list(fake.machines)))
            done.append("lose")
        elif chance >= 0.09:
            fake.machines[f"machine {len(done)}"] = 2.0
            done.append("join")

    fake.before_call = before
    return done


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_hundred_broken_clusters(monkeypatch):
    """Oracle: the inline driver. Deaths, hangs and machines that come and go, with crews of every size."""
    whole, done = outcome(inline(DIALOGUE).batches), []
    for seed in range(100):
        fake, dice = install(monkeypatch, FakeRay(seed)), random.Random(seed)
        broken = breaking(fake, dice)
        settings = {
            "workers": dice.choice([0, 1, 2, 4]),
            "graders": dice.choice([1, 2]),
            "worker_asks": dice.choice([1, 3, 50]),
            "grader_asks": dice.choice([1, 4, 50]),
        }
        limits = {"engine_s": 30.0, "grader_s": 30.0, "environment_s": 30.0, "start_s": 1e6}
        it = run(fake, DIALOGUE, losses=100, **settings, **limits)
        assert it.reason == "all steps done" and outcome(it.batches) == whole, (seed, settings)
        it.runner.ledger.check()
        done += broken
    assert all(done.count(kind) > 50 for kind in ("kill", "hang", "lose", "join"))


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_case_d03_the_number_of_workers_changes_no_sample(fake, workers):
    """Oracle: the inline driver, and the noise keys: the samples of a group are numbered before they are
    spread, so no two of them share a key.
    """
    keys = []

    def before(actor, call):
        if call.method == "work":
            keys.extend(o.command.stream for o in call.args[0] if isinstance(o, Submission))

    fake.before_call = before
    it = run(fake, num_each=4, workers=workers, worker_asks=2)
    assert it.batches == inline(num_each=4).batches
    assert len(keys) == len(set(keys)) == 4 * 4 * 4


def asks_of(call):
    """Return the asks whose grades a call is for."""
    jobs = call.args[0] if call.method == "serve" else ()
    return [job.command.ask for job in jobs if type(job.command).__name__ == "Score"]


@pytest.mark.parametrize("grader_asks", [1, 4])
def test_a_grade_that_hangs_has_failed(fake, tmp_path, grader_asks):
    """Oracle: hand. One answer hangs every grader that reads it: it is a failure of ours with no reward, and
    those that were sent with it are graded. Nobody waits for a call longer than ``grader_s``.
    """
    calls = []

    def before(actor, call):
        if "toy/train/3#0/0:1" in asks_of(call):
            calls.append(len(call.args[0]))
            actor.is_hung = True

    fake.before_call = before
    journal, options = Journal(tmp_path / "journal.jsonl"), {"num_tasks": 12, "num_steps": 1}
    settings = {"grader_s": 20.0, "grader_asks": grader_asks, "run_options": options}
    it = run(fake, journal=journal, **settings)
    journal.flush()
    events = [event for event, _ in read(journal.path)]
    assert [(e.ask, e.kind, e.message) for e in events if isinstance(e, Failed)] == [
        ("toy/train/3#0/0:1", "grader", "no answer within 20 s")
    ]
    assert calls[-1] == 1 and len(calls) == (1 if calls[0] == 1 else 2)
    assert calls[0] > 1 or grader_asks == 1
    assert it.reason == "all steps done" and fake.now - 20 * len(calls) < 10
    whole, got = outcome(inline(**options).batches), outcome(it.batches)
    (lost,) = (key for key in whole if got[key] != whole[key])
    assert got[lost][3:] == (None, "grader_error") and got[lost][:3] == whole[lost][:3]


def test_a_grader_that_one_answer_ends_is_not_fed_for_ever(fake, tmp_path):
    """Oracle: hand. One answer ends every grader that reads it: after ``losses`` of them, which had it alone,
    it has failed.
    """
    alone = []

    def before(actor, call):
        if "toy/train/3#0/0:1" in asks_of(call):
            alone.append(len(call.args[0]) == 1)
            fake.kill(actor, True)

    fake.before_call = before
    journal = Journal(tmp_path / "journal.jsonl")
    it = run(fake, journal=journal, losses=3, run_options={"num_tasks": 12, "num_steps": 1})
    journal.flush()
    failed = [event for event, _ in read(journal.path) if isinstance(event, Failed)]
    assert it.reason == "all steps done" and it.crew.graders.num_lost == len(alone)
    assert alone == [False, True, True, True]
    assert [(e.ask, e.kind) for e in failed] == [("toy/train/3#0/0:1", "grader")]
    assert "3 graders ended" in failed[0].message


def test_slow_jobs_go_one_by_one_and_quick_ones_together(fake, monkeypatch):
    """Oracle: hand, with the grader's own clock: calls of quick jobs grow, those of slow ones do not."""
    sizes = {}
    for name, job_s in (("quick", 1e-4), ("slow", 0.2)):
        sizes[name] = []
        served = actors.Grader.serve

        def serve(self, jobs, retired=(), job_s=job_s, served=served):
            return Served(served(self, jobs, retired).answers, job_s * len(jobs))

        def before(actor, call, found=sizes[name]):
            if call.method == "serve":
                found.append(len(call.args[0]))

        with monkeypatch.context() as patch:
            patch.setattr(actors.Grader, "serve", serve)
            fake.before_call = before
            run(fake, num_each=8, grader_asks=16, run_options={"num_tasks": 12})
    assert max(sizes["quick"]) == 16 and set(sizes["slow"]) == {1}


class Exits(ToyTask):
    """Some answers end the process that grades them."""

    def grade(self, task_id, state, turns, truncated):
        if "11" in turns[0]:
            sys.exit(0)
        return super().grade(task_id, state, turns, truncated)


def test_a_grader_that_exits_ends_nothing_else(fake):
    """Oracle: the inline driver, but for the rollouts that the grader cannot survive."""

    it = run(fake, recipe=recipe_of(Exits()), losses=2)
    whole, got = outcome(inline().batches), outcome(it.batches)
    lost = {key for key in whole if got.get(key) != whole[key]}
    assert it.reason == "all steps done" and len(whole) > len(lost) > 1
    assert lost == {key for key, (tokens, *_) in whole.items() if "11" in "".join(map(str, tokens))}
    assert all(got[key][3] is None for key in lost & got.keys())  # a group without any score is left out


def make_nothing():
    raise ConfigError("there is no such model")


def test_what_cannot_be_made_is_said_at_once(fake):
    """Oracle: the maker's own error, for each kind of actor, after one try."""
    for kind, error in (("sampler", ConfigError), ("world", ConfigError)):
        parts = {"sampler": ToySampler, "world": toy_world, "trainer": ToyTrainer, kind: make_nothing}
        with pytest.raises(error, match="no such model"):
            run(fake, recipe=Recipe(**parts))
    with pytest.raises(ConfigError, match="no such model"):
        run(fake, recipe=Recipe(ToySampler, toy_world, make_nothing))


def test_workers_that_all_end_end_the_run(fake):
    """Oracle: hand. Five in a row without an answer: an error that says how to go on, and no endless loop."""

    def before(actor, call):
        if call.method == "work":
            fake.kill(actor, True)

    fake.before_call = before
    with pytest.raises(EngineError, match=r"5 rollout workers in a row .* resume the run"):
        run(fake)


def test_a_cluster_without_room_is_an_error_in_time(fake):
    """Oracle: the fake's clock. The message names what one needs and what there is."""
    with pytest.raises(EngineError, match=r"waited 60 s for a worker.*needs 3 CPUs.*2 machines with 4 CPUs"):
        run(fake, worker_cpus=3.0, start_s=60.0)
    assert 60 < fake.now < 70
    with pytest.raises(GraderError, match="for a grader"):
        run(fake, grader_cpus=3.0, start_s=60.0)


def test_the_crew_follows_the_machines(fake):
    """Oracle: the inline driver, and a count of workers. Machines come and go; nothing is lost by it."""
    seen = []

    def before(actor, call):
        seen.append(len(fake.living("RolloutWorker")))
        if call.method == "train" and "c" not in fake.machines:
            fake.machines["c"] = 4.0
            fake.now += 10.0  # time for the next count
        elif call.method == "train" and "a" in fake.machines and call.args[0].step == 3:
            fake.lose_machine("a")
            fake.now += 10.0

    fake.before_call = before
    it = run(fake, workers=0, worker_cpus=1.0, losses=50, run_options={"num_steps": 8})
    assert seen[0] <= 4 and max(seen) == 8 and seen[-1] == 6
    assert outcome(it.batches) == outcome(inline(num_steps=8).batches)


def test_a_learner_that_fails_ends_the_run_with_everything_kept(fake, tmp_path):
    """Oracle: hand. An error of its code is not tried again; the batch is owed when the run is resumed."""

    def before(actor, call):
        if call.method == "train" and call.args[0].step == 2:
            actor.instance.trainer.version = 7

    fake.before_call = before
    journal = Journal(tmp_path / "journal.jsonl")
    batches = []
    with pytest.raises(LearnerError, match="given a batch for version 2 at version 7"):
        run(fake, journal=journal, batches=batches)
    journal.flush()
    last = [event for event, _ in read(journal.path)][-1]
    assert isinstance(last, Failed) and (last.ask, last.kind) == ("learn:2", "learner")
    again = Runner(plain_method(2), toy_settings(ToyTask()))
    check_replay(journal.path, again.step)
    fake.before_call = lambda actor, call: None
    with toy_crew(recipe_of(ToyTask()), fake.clock) as crew:
        crew.seat.since += batches[:2]
        crew.version = again.version
        resumed = Run(crew, again)
        assert resumed.driver.run(is_resumed=True) == "all steps done"
    assert outcome([*batches, *resumed.batches]) == outcome(inline().batches)


def test_learners_that_all_end_end_the_run(fake):
    """Oracle: hand."""

    def before(actor, call):
        if call.method == "train":
            fake.kill(actor, True)

    fake.before_call = before
    with pytest.raises(LearnerError, match="3 learners in a row ended"):
        run(fake, losses=3)


def test_a_checkpoint_is_where_the_next_learner_begins(fake):
    """Oracle: the toy learner's record of its steps: each once, with and without a checkpoint between."""
    steps, saved = [], {}
    task = ToyTask()

    def before(actor, call):
        if call.method == "train" and call.args[0].step == 3 and not steps:
            fake.kill(actor, True)
            steps.append(None)

    fake.before_call = before
    runner = Runner(plain_method(2), toy_settings(task))
    with toy_crew(recipe_of(task), fake.clock) as crew:
        crew.seat.checkpoint = lambda: saved or ToyTrainer().save()
        it = Run(crew, runner)
        it.driver.on_report = lambda report: crew.seat.save(saved.update) if report.step == 1 else None
        assert it.driver.run() == "all steps done"
        assert [batch.step for batch in crew.seat.since] == [2, 3]
    assert crew.seat.num_lost == 1
    assert outcome(it.batches) == outcome(inline().batches)


def test_a_checkpoint_that_is_gone_is_found_out(fake):
    """Oracle: hand. A learner that comes back older than what was published must not train."""
    killed = []

    def before(actor, call):
        if call.method == "train" and call.args[0].step == 3 and not killed:
            killed.append(actor)
            fake.kill(actor, True)

    fake.before_call = before
    task = ToyTask()
    with toy_crew(recipe_of(task), fake.clock) as crew:
        it = Run(crew, Runner(plain_method(2), toy_settings(task)))
        it.driver.on_report = lambda report: crew.seat.since.clear()
        with pytest.raises(LearnerError, match="version 0, where version 3 was published"):
            it.driver.run()


def test_an_evaluation_beside_a_run_takes_only_its_own_answers(fake):
    """Oracle: each run alone. The host's asks are in flight while the guest runs to its end."""
    task = ToyTask()
    options = {"is_evaluation": True, "num_steps": 1, "tasks": tuple(task.ids("test")), "num_tasks": 12}

    host = Runner(plain_method(2), toy_settings(task, chunk=2))
    with toy_crew(recipe_of(task), fake.clock, worker_asks=4) as crew:
        it = Run(crew, host)
        found = []

        def evaluate_once(command, execute=it.driver.execute):
            answers = execute(command)
            if isinstance(command, EmitBatch) or found or len(fake.log) < 40:
                return answers
            guest = Runner(plain_method(1), toy_settings(task, **options), crew.version)
            alone = Runner(plain_method(1), toy_settings(task, **options), crew.version)
            found.extend([guest, alone])
            Run(crew, guest, is_guest=True).driver.run()
            InlineDriver(alone, FakeEngine(version=crew.version), toy_world(task)).run()
            return answers

        it.driver.execute = evaluate_once
        assert it.driver.run() == "all steps done"
    guest, alone = found
    assert guest.batch == alone.batch and guest.ledger.fates == alone.ledger.fates
    assert outcome(it.batches) == outcome(inline(task, chunk=2).batches)
    assert host.num_late == 0


@pytest.mark.parametrize("num_events", [1, 7, 30, 90, 160])
def test_a_driver_that_ends_anywhere_is_resumed(fake, tmp_path, num_events):
    """Oracle: the uninterrupted run. The driver ends after so many journal records, all actors with it; a new
    one folds the journal and goes on with a new crew. What was acknowledged is a prefix of the journal.
    """
    task = DIALOGUE

    class Ends(BaseException):
        pass

    class Cut(Journal):
        def append(self, event, commands):
            super().append(event, commands)
            if self.num_records >= num_events:
                self.flush()
                raise Ends

    options = {"chunk": 3}
    path = tmp_path / "journal.jsonl"
    with Cut(path) as journal, pytest.raises(Ends):
        run(fake, task, journal=journal, run_options=options)
    kept = path.read_bytes()
    again, batches = Runner(plain_method(2), toy_settings(task, **options)), {}

    def fold(event):
        commands = again.step(event)
        batches.update({c.version: c for c in commands if isinstance(c, EmitBatch)})
        return commands

    assert check_replay(path, fold) >= num_events - 1
    with Journal(path) as journal, toy_crew(recipe_of(task), fake.clock) as crew:
        crew.seat.since += [batch for version, batch in batches.items() if version < again.version]
        crew.version = again.version
        it = Run(crew, again, journal)
        assert it.driver.run(is_resumed=True) == "all steps done"
    assert path.read_bytes().startswith(kept)
    assert outcome([*batches.values(), *it.batches]) == outcome(inline(task, **options).batches)
    sampled = sum(len(event.tokens) for event, _ in read(path) if isinstance(event, Sampled))
    assert sampled == again.ledger.spent["sampled_tokens"]
