"""A crash at any event: what goes on is what would have been."""

import pickle

import msgspec
import pytest

from rollwright.discovery import load_method
from rollwright.drive.inline import InlineDriver
from rollwright.drive.world import World
from rollwright.events import Published, Report, Reset, Started, Submit
from rollwright.runner import Runner, Settings
from rollwright.stage import Close, Grant
from rollwright.testing.chaos import check_fold, decisions
from rollwright.testing.fake import FakeEngine, ToyTask, ToyTokenizer
from rollwright.testing.hand import Hand, plain_method
from rollwright.tree import StopReason


class Journal:
    """Keeps events with their decisions, and where each flush was."""

    def __init__(self):
        self.rows, self.flushed = [], []

    def append(self, event, commands):
        self.rows.append((event, list(commands)))

    def flush(self):
        self.flushed.append(len(self.rows))


def drive(method, settings, task, runner=None, is_resumed=False):
    runner = runner or Runner(method, settings)
    batches, journal = {}, Journal()

    def train(batch):
        batches[batch.step] = batch
        return Published(step=batch.step, version=batch.version + 1, learner_tokens=1)

    world = World(task, ToyTokenizer(), (0,))
    driver = InlineDriver(runner, FakeEngine(version=runner.version), world, train, journal)
    assert driver.run(is_resumed) == "all steps done"
    return batches, journal, runner


def setting(turns):
    task = ToyTask(num_tasks=7, max_turns=turns, max_tokens=9, context=40)
    return task, Settings(
        seed=5,
        tasks=tuple(task.ids("train")),
        num_steps=3,
        num_tasks=2,
        context=task.context,
        max_tokens=task.max_tokens,
        max_turns=turns,
        is_dialogue=turns > 1,
        chunk=4,
    )


def rows(batch):
    """Return a batch as its trajectories' tokens, logprobs, versions, rewards and advantages."""
    found = []
    for group in batch.groups:
        for t in group.trajectories:
            response = group.response(t)
            columns = (response.tokens, response.logp_old.tobytes(), response.versions.tobytes())
            found.append((group.id, t.index, columns, t.reward, t.status, t.stop, t.advantages))
    return found


def fold(method, settings, events):
    runner = Runner(method, settings)
    for event, _ in events:
        runner.step(event)
    return runner


METHODS = {
    "grpo": load_method("grpo", each=3),
    "dapo": load_method("dapo", each=3, max_rounds=2),
    "vigor": load_method("vigor", each=3, first=2),
    "rlep": load_method("rlep", each=3),
    "latr": load_method("latr", each=3, tau_abs=0.15, tau_rel=0.3, lookahead=3),
}


@pytest.mark.parametrize("turns", [1, 3])
@pytest.mark.parametrize("name", sorted(METHODS))
def test_a_crash_at_any_event_changes_no_batch(name, turns):
    """Metamorphic: fold the first k events, resume, and every later batch is the same, token for token."""
    task, settings = setting(turns)
    method = METHODS[name]
    whole, journal, finished = drive(method, settings, task)
    assert len(whole) >= 2
    stride = 1 if name == "grpo" else 5
    for k in range(0, len(journal.rows), stride):
        runner = fold(method, settings, journal.rows[:k])
        first = runner.step_number
        after, _, resumed = drive(method, settings, task, runner, is_resumed=True)
        for step in range(max(first + 1, 0), settings.num_steps):
            assert (step in after) == (step in whole), f"crash after event {k}: step {step}"
        for step, batch in after.items():
            assert rows(batch) == rows(whole[step]), f"crash after event {k}: step {step}"
        assert resumed.ledger.fates == finished.ledger.fates, f"crash after event {k}"


@pytest.mark.parametrize("turns", [1, 3])
def test_a_crash_of_a_carrying_method(turns):
    """At each flush of the journal: the same batches. Inside one: other races, but the same samples.

    Which groups finish first is part of the schedule; what each rollout samples is not.
    """
    task, settings = setting(turns)
    method = load_method("april", each=3)
    whole, journal, _ = drive(method, settings, task)
    samples = {row[:2]: row[2][0] for batch in whole.values() for row in rows(batch)}
    versions = {row[:2]: row[2][2] for batch in whole.values() for row in rows(batch)}
    num_same = 0
    for k in sorted({*journal.flushed, *range(0, len(journal.rows), 4)} - {len(journal.rows)}):
        runner = fold(method, settings, journal.rows[:k])
        after, _, resumed = drive(method, settings, task, runner, is_resumed=True)
        for batch in after.values():
            for row in rows(batch):
                if versions.get(row[:2]) == row[2][2]:  # the same weights sampled it
                    num_same += 1
                    assert samples[row[:2]] == row[2][0], f"crash after event {k}: {row[:2]}"
        if k in journal.flushed:
            assert {s: rows(b) for s, b in after.items()} == {s: rows(whole[s]) for s in after}, k
        resumed.ledger.check()
        assert resumed.ledger.fates["failed"] == 0, "nothing acknowledged was lost"
    assert num_same > 100


@pytest.mark.parametrize("name", [*sorted(METHODS), "april"])
def test_a_recorded_run_replays_to_the_same_bytes(name):
    """Oracle: the recorded decisions themselves."""
    task, settings = setting(3)
    method = METHODS.get(name) or load_method("april", each=3)
    _, journal, runner = drive(method, settings, task)
    folded = check_fold(method, settings, journal.rows)
    assert folded.ledger.fates == runner.ledger.fates


@pytest.mark.parametrize("name", [*sorted(METHODS), "april"])
def test_a_pickled_runner_goes_on_identically(name):
    """The state at any instant is whole: pickled and loaded, it decides the rest byte for byte."""
    task, settings = setting(3)
    method = METHODS.get(name) or load_method("april", each=3)
    _, journal, _ = drive(method, settings, task)
    runner = Runner(method, settings)
    for i, (event, commands) in enumerate(journal.rows):
        if i % 7 == 3:
            runner = pickle.loads(pickle.dumps(runner))
        assert decisions(runner.step(event)) == decisions(commands), f"event {i}"


def test_the_clock_decides_nothing():
    """``at`` feeds reports only: with other times every decision but the reports is the same."""
    task, settings = setting(1)
    method = METHODS["grpo"]
    _, journal, _ = drive(method, settings, task)
    runner = Runner(method, settings)
    for i, (event, commands) in enumerate(journal.rows):
        again = runner.step(msgspec.structs.replace(event, at=1000.0 + i))
        keep = [[c for c in some if not isinstance(c, Report)] for some in (again, commands)]
        assert keep[0] == keep[1]


# ---------------------------------------------------------------- C02


class InOrder:
    def pick(self, history, num_tasks, rng):
        return history.tasks[history.num_picked : history.num_picked + num_tasks]


class Six:
    """Six tasks first; later whatever is missing to four groups."""

    def grant(self, step, left):
        if step.round:
            return Grant()
        return Grant(6 if step.step == 0 else 4 - len(step.groups), 1)


class CloseAtFour:
    def __call__(self, event, view):
        return (Close("four"),) if view.num_complete >= 4 else ()


def test_c02_no_prompt_is_skipped_or_repeated():
    """Case C02, exact: pulled 6, trained 0, 1, 2, 4; after the resume 3 and 5 go on, then 6 to 9."""
    method = plain_method(1, select=InOrder(), allocate=Six(), control=(CloseAtFour(),))
    hand = Hand(method, num_tasks=4, num_steps=3)
    hand.send(Started())
    hand.reset()
    asks = hand.asks(Submit)
    for i in (0, 1, 2, 4):
        hand.sample(asks[i], (3, 0))
    for ask in [ask for ask in hand.owed if ask not in asks]:
        hand.score(ask, 1.0)
    for ask in list(hand.aborts):
        hand.sample(ask, (3,), stop=StopReason.INTERRUPTED)
    assert [group.task for group in hand.batch.groups] == ["t/0", "t/1", "t/2", "t/4"]
    hand.publish()

    resumed = Hand(method, num_tasks=4, num_steps=3)
    for event, _ in hand.journal:
        resumed.send(event)
    resumed.resume()
    going_on = [command.group for command in resumed.owed.values() if isinstance(command, Submit)]
    new = [command.task for command in resumed.owed.values() if isinstance(command, Reset)]
    assert going_on == ["t/3#0", "t/5#0"] and new == ["t/6", "t/7"]
    resumed.reset()
    resumed.finish_rollouts([1.0])
    assert [group.task for group in resumed.batch.groups] == ["t/3", "t/5", "t/6", "t/7"]
    resumed.publish()
    assert [command.task for command in resumed.owed.values()] == ["t/8", "t/9"]
