"""Failures on our side: never a reward, never silent, never the end of the others."""

import math

import pytest

from rollwright.drive.inline import InlineDriver
from rollwright.drive.world import World
from rollwright.errors import ConfigError, EngineError, LawBroken
from rollwright.events import Published, Reset, Sampled, Score, Started, Submit, WorkerLost
from rollwright.runner import Runner
from rollwright.stage import Verdict
from rollwright.store.codec import pack_event
from rollwright.tasks.api import Verdict as Graded
from rollwright.testing.fake import FakeEngine, ToyTask, ToyTokenizer
from rollwright.testing.hand import Hand, plain_method, plain_settings
from rollwright.tree import StopReason


def test_c03_one_failed_rollout_of_eight():
    """Case C03, exact: 7 rows, groups [4, 3], and the report says which failed and why."""
    hand = Hand(num_steps=1)
    hand.start()
    for ask in hand.asks(Submit):
        if ask == "t/4#0/2:0":
            hand.fail(ask, "engine", "ConnectionError: reset by peer")
        else:
            hand.sample(ask, (3, 0))
    for i, ask in enumerate(hand.asks(Score)):
        hand.score(ask, float(i % 2))
    groups = hand.batch.groups
    assert [len(group.trajectories) for group in groups] == [4, 3]
    assert [t.index for t in groups[1].trajectories] == [0, 1, 3]
    # the group of three: rewards 0, 1, 0; mean 1/3, sample std 0.57735
    assert [t.advantages[0] for t in groups[1].trajectories] == pytest.approx(
        [-0.577349, 1.154699, -0.577349], abs=1e-5
    )
    hand.publish()
    report = hand.reports[0]
    assert report.metrics["num_failed"] == 1 and report.metrics["num_rollouts"] == 7
    assert report.notes == ("1 of 8 rollouts failed: ConnectionError: reset by peer (engine)",)


def test_c03_cancellation_propagates():
    """A KeyboardInterrupt in a grader is no failure of a rollout: it ends the run."""

    class Interrupted(ToyTask):
        def grade(self, task_id, state, turns, truncated):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(Interrupted())


def run(task, engine=None, num_steps=1, journal=None, **settings):
    settings = plain_settings(
        tasks=tuple(task.ids("train")),
        num_steps=num_steps,
        context=task.context,
        max_tokens=task.max_tokens,
        max_turns=task.max_turns,
        is_dialogue=task.max_turns > 1,
        **settings,
    )
    runner = Runner(plain_method(), settings)
    batches, reports = [], []

    def train(batch):
        batches.append(batch)
        return Published(step=batch.step, version=batch.version + 1)

    world = World(task, ToyTokenizer(), (0,))
    driver = InlineDriver(runner, engine or FakeEngine(), world, train, journal, on_report=reports.append)
    driver.run()
    return runner, batches, reports


def test_a_grader_that_raises_gives_no_reward():
    """Status grader_error, reward None, advantage 0, no say in the baseline, tokens failed."""
    runner, batches, reports = run(ToyTask(bad="4", share=0.0))
    statuses = [t.status for batch in batches for group in batch.groups for t in group.trajectories]
    assert "grader_error" in statuses and len(set(statuses)) > 1
    for batch in batches:
        for group in batch.groups:
            for t in group.trajectories:
                assert (t.reward is None) == (t.status == "grader_error")
                assert t.reward is not None or not any(t.advantages)
    assert runner.ledger.fates["failed"] > 0
    assert set(runner.ledger.reasons) == {"failed:not_scored:grader_error"}
    assert any("toy grader cannot read this" in note for note in reports[0].notes)


@pytest.mark.parametrize("reward", [math.nan, math.inf, -math.inf, 1e200, -1e31])
def test_a_reward_that_is_no_number_is_not_scored(reward):
    """NaN, infinity and what no learner can hold are a grader's error: the siblings do not see them."""
    hand = Hand(num_steps=1, num_tasks=1)
    hand.start()
    hand.finish_rollouts([1.0, reward, 0.0, 1.0])
    group = hand.batch.groups[0]
    assert [t.reward for t in group.trajectories] == [1.0, None, 0.0, 1.0]
    assert group.trajectories[1].status == "grader_error"
    hand.publish()
    assert hand.reports[0].metrics["reward_mean"] == pytest.approx(2 / 3)


@pytest.mark.parametrize("is_raised", [True, False])
def test_what_a_grader_says_can_always_be_journalled(is_raised):
    """Half a surrogate pair in its message, from a broken decoding, is escaped and does not end the run."""

    class Garbled(ToyTask):
        def grade(self, task_id, state, turns, truncated):
            if is_raised:
                raise ValueError("not \ud800 text")
            return Graded(None, "grader\ud800", detail="not \ud800 text")

    class Packed:
        def append(self, event, commands):
            said.append(pack_event(event)[0])

        def flush(self):
            pass

    said = []
    run(Garbled(), journal=Packed())
    assert sum(rb"not \\ud800 text" in line for line in said) == 8


def test_a_group_with_nothing_scored_is_dropped():
    """No rewards, no update: the tokens are failed, not filtered, and the step says so."""
    hand = Hand(num_steps=1)
    hand.start()
    hand.finish_rollouts([None])
    assert hand.batch is None and hand.finished == "all steps done"
    assert hand.runner.ledger.fates["failed"] == 16
    assert hand.reports[0].metrics["skipped_update"] == 1
    assert hand.reports[0].metrics["dropped:nothing_scored"] == 2
    assert hand.reports[0].metrics["reward_mean"] is None


def test_a_retry_goes_on_from_the_last_acknowledged_token():
    """With retries 1 the first failure is asked again from where it was, the second is final."""
    hand = Hand(retries=1)
    hand.start()
    ask = hand.asks(Submit)[0]
    hand.sample(ask, (3, 4), stop=None)
    [again] = hand.fail(ask)
    assert (again.ask, again.start, again.max_tokens) == (ask, 4, 6)
    hand.fail(ask)
    group = hand.runner.groups["t/0#0"]
    assert [node.tokens for node in group.nodes.values()][1:] == [(3, 4), ()]
    assert group.num_failed == 1


def test_a_grader_is_asked_again():
    """A failed score is retried as it was."""
    hand = Hand(retries=1)
    hand.start()
    hand.sample(hand.asks(Submit)[0], (3, 0))
    [ask] = hand.asks(Score)
    command = hand.owed[ask]
    assert hand.fail(ask, "grader") == [command]


def test_an_engine_that_gives_up_is_a_failure():
    """A chunk with stop FAILED is retried, then lost; it is never graded."""
    hand = Hand(retries=1)
    hand.start()
    ask = hand.asks(Submit)[0]
    [again] = hand.sample(ask, (3,), stop=StopReason.FAILED)
    assert isinstance(again, Submit) and again.start == 3
    assert hand.sample(ask, (), stop=StopReason.FAILED) == []
    assert not hand.asks(Score)


@pytest.mark.parametrize("kind", ["engine", "environment", "grader"])
def test_on_failure_drop_group(kind):
    """A lost rollout takes its group with it: the other group is trained alone, the tokens are failed."""
    hand = Hand(plain_method(2), on_failure="drop_group", num_steps=1, is_dialogue=kind == "environment")
    hand.start()
    first, *others = hand.asks(Submit)
    if kind == "engine":
        hand.fail(first, kind)
    else:
        [command] = hand.sample(first, (3, 0))
        hand.fail(command.ask, kind)
    for ask in others:
        [command] = hand.sample(ask, (3, 0))
        if kind == "environment":
            hand.observe(command.ask, (), terminated=True)
    for ask in hand.asks(Score):
        hand.score(ask, 1.0)
    assert [group.task for group in hand.batch.groups] == ["t/4"]
    hand.publish()
    ledger = hand.runner.ledger
    assert ledger.fates["failed"] == ledger.spent["sampled_tokens"] - 4
    assert hand.reports[0].metrics[f"dropped:failed_rollout:{kind}"] == 1


def test_on_failure_stop():
    """The step is finished and trained, then the run ends with the failure as its reason."""
    hand = Hand(on_failure="stop")
    hand.start()
    hand.fail(hand.asks(Submit)[0], "engine", "lost")
    hand.finish_rollouts([1, 0])
    assert len(hand.batch.groups) == 2
    hand.publish()
    assert hand.finished == "engine failure of t/0#0/0:0: lost"


def test_a_failed_reset_takes_its_group_only():
    """A bad row is named; its message stays out of the metric's name; the others go on."""
    hand = Hand(num_steps=1)
    hand.send(Started())
    bad, good = hand.asks(Reset)
    hand.fail(bad, "data", "KeyError: 'answer'")
    hand.observe(good, (1, 2))
    hand.finish_rollouts([1, 0])
    hand.publish()
    metrics = hand.reports[0].metrics
    assert metrics["dropped:reset_failed:data"] == 1 and metrics["num_failed"] == 4
    assert hand.reports[0].notes == ("4 of 8 rollouts failed: KeyError: 'answer' (data)",)


@pytest.mark.parametrize("num", [0, 64, 65])
def test_a_prompt_that_does_not_fit(num):
    """An empty prompt or one without room for a token: counted with its length, nothing is sampled."""
    hand = Hand(num_steps=1)
    hand.send(Started())
    bad, good = hand.asks(Reset)
    hand.observe(bad, (1,) * num)
    hand.observe(good, (1, 2))
    assert {command.group for command in hand.owed.values()} == {"t/4#0"}
    hand.finish_rollouts([1, 0])
    hand.publish()
    assert hand.reports[0].metrics["dropped:prompt_length"] == 1
    assert f"prompt of {num} steps" in hand.reports[0].notes[0]


def test_late_answers_are_counted():
    """Answers to asks that are closed change nothing; late tokens are booked and failed."""
    hand = Hand()
    hand.start()
    ask = hand.asks(Submit)[0]
    hand.sample(ask, (3, 0))
    score = hand.asks(Score)[0]
    hand.score(score, 1.0)
    before = dict(hand.runner.groups["t/0#0"].nodes)
    hand.sample(ask, (5, 5, 0))
    hand.score(score, 0.0)
    hand.observe("t/0#0/root", (9, 9))
    assert hand.runner.num_late == 3
    assert hand.runner.ledger.reasons == {"failed:late": 3}
    assert hand.runner.groups["t/0#0"].nodes == before
    assert hand.runner.groups["t/0#0"].trajectories["t/0#0/0.0"].reward == 1.0


def test_a_worker_that_was_given_up_may_still_report():
    """Its chunk would put tokens in twice: it answers an earlier submit, so it is late."""
    hand = Hand(plain_method(1), num_tasks=1)
    hand.start()
    [ask] = hand.asks(Submit)
    hand.sample(ask, (3, 4), stop=None, attempt=0)
    [again] = hand.send(WorkerLost(worker="w", asks=(ask,)))
    assert (again.start, again.attempt) == (4, 1)
    hand.sample(ask, (5, 6), stop=None, attempt=0)
    hand.sample(ask, (5,), stop=None, attempt=1)
    hand.sample(ask, (5, 6, 0), attempt=0)
    hand.sample(ask, (6, 0), attempt=1)
    hand.score(hand.asks(Score)[0], 1.0)
    group = hand.batch.groups[0]
    assert group.response(group.trajectories[0]).tokens == (3, 4, 5, 6, 0)
    assert hand.runner.ledger.reasons == {"failed:late": 5} and hand.runner.num_late == 2


def test_publishing_twice_is_late():
    """A second answer for one batch neither moves the version nor ends another step."""
    hand = Hand()
    hand.start()
    hand.finish_rollouts([1, 0])
    hand.publish()
    version, step = hand.runner.version, hand.runner.step_number
    assert hand.send(Published(step=0, version=9)) == []
    assert (hand.runner.version, hand.runner.step_number, hand.runner.num_late) == (version, step, 1)


class DropFirst:
    """A filter that drops the first task's group."""

    def __call__(self, group):
        return Verdict(group.task != "t/0", "test")


def test_every_closed_group_is_retired_once():
    """Caches and environment states go with each group: trained, filtered, failed or evaluated."""
    hand = Hand(plain_method(2, filters=(DropFirst(),)), num_steps=2)
    hand.start()
    hand.finish_rollouts([1, 0])
    hand.publish()
    assert sorted(hand.retired) == ["t/0#0", "t/4#0"]
    bad, good = hand.asks(Reset)
    hand.fail(bad, "data")
    hand.observe(good, (1, 2))
    hand.finish_rollouts([1, 0])
    hand.publish()
    assert len(set(hand.retired)) == len(hand.retired) == 4
    evaluation = Hand(num_steps=1, is_evaluation=True)
    evaluation.start()
    evaluation.finish_rollouts([1, 0])
    assert sorted(evaluation.retired) == ["t/0#0", "t/4#0"]


def test_an_engine_that_refuses_an_ask_fails_that_ask_only():
    """An EngineError at submit is a failed rollout: the run goes on with the others."""

    class Picky(FakeEngine):
        def submit(self, command, prefix):
            if command.ask.endswith("/1:0"):
                raise EngineError("no room for this one")
            super().submit(command, prefix)

    runner, batches, reports = run(ToyTask(), Picky())
    assert [len(group.trajectories) for group in batches[0].groups] == [3, 3]
    assert reports[0].notes == ("2 of 8 rollouts failed: no room for this one (engine)",)
    assert runner.end_reason == "all steps done"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"tokens": (3,) * 9, "logprobs": (-0.5,) * 9}, "9 tokens where 8 were asked for"),
        ({"tokens": (3,), "logprobs": (-0.5, -0.5)}, "1 tokens with 2 logprobs"),
        ({"tokens": (3,), "logprobs": (-0.5,), "policy": "other"}, "sampled by 'other'"),
        ({"tokens": (3,), "logprobs": (-0.5,), "entropies": (), "stop": StopReason.EOS}, "entropies"),
    ],
)
def test_an_answer_that_breaks_the_engines_contract_is_refused(fields, message):
    """Wrong records are a bug of the engine: loud, and nothing is trained on them."""
    hand = Hand()
    hand.start()
    with pytest.raises(LawBroken, match=message):
        hand.send(Sampled(ask=hand.asks(Submit)[0], **fields))


def test_many_kinds_of_failure_are_summed_up():
    """Messages that are all different must not fill the report: the eight most frequent, then a sum."""
    hand = Hand(plain_method(12), num_tasks=1, num_steps=1)
    hand.start()
    first, *others = hand.asks(Submit)
    for i, ask in enumerate(others):
        hand.fail(ask, "engine", f"lost {max(i, 2)}")
    hand.sample(first, (3, 0))
    hand.score(hand.asks(Score)[0], 1.0)
    hand.publish()
    notes = hand.reports[0].notes
    assert notes[0] == "3 of 12 rollouts failed: lost 2 (engine)"
    assert len(notes) == 9 and notes[-1] == "1 of 12 rollouts failed in 1 other ways"


def test_a_run_without_tasks_is_refused():
    """Nothing to choose from is a clear error, before anything is sampled."""
    with pytest.raises(ConfigError, match="no tasks"):
        Hand(tasks=())


class Nothing:
    def pick(self, history, num_tasks, rng):
        return []


def test_a_select_that_finds_nothing_ends_the_run():
    """Not a loop of empty steps: the reason says that nothing was granted."""
    hand = Hand(plain_method(select=Nothing()), num_steps=1000)
    hand.send(Started())
    assert hand.finished is not None and hand.finished.startswith("nothing to roll out")
