"""Real cases of seeds and order, through the runner: D01, D02, D03, D05."""

import itertools

import pytest

from rollwright.config import load_config
from rollwright.drive.inline import InlineDriver
from rollwright.drive.world import World
from rollwright.errors import UnknownName
from rollwright.events import Published, Score, Submit
from rollwright.runner import Runner
from rollwright.testing.fake import FakeEngine, ToyTask, ToyTokenizer
from rollwright.testing.hand import Hand, plain_method, plain_settings


class Workers:
    """Several engines; each ask goes to one of them, and they answer in an order of their own."""

    def __init__(self, num, order):
        self.engines = [FakeEngine() for _ in range(num)]
        self.order, self.version, self.place, self.num_submitted = order, 0, {}, 0

    @property
    def num_live(self):
        return sum(engine.num_live for engine in self.engines)

    def submit(self, command, prefix):
        self.place[command.ask] = self.engines[self.num_submitted % len(self.engines)]
        self.num_submitted += 1
        self.place[command.ask].submit(command, prefix)

    def step(self):
        for i in self.order:
            if i < len(self.engines) and self.engines[i].num_live:
                return self.engines[i].step()
        return []

    def abort(self, ask):
        return self.place[ask].abort(ask)

    def retire(self, group):
        pass

    def publish(self, version):
        for engine in self.engines:
            engine.publish(version)


def run(seed=1, engine=None, each=4, num_steps=2):
    task = ToyTask()
    settings = plain_settings(
        seed=seed,
        tasks=tuple(task.ids("train")),
        num_steps=num_steps,
        context=task.context,
        max_tokens=task.max_tokens,
        num_tasks=8,
        chunk=3,
    )
    batches = []

    def train(batch):
        batches.append(batch)
        return Published(step=batch.step, version=batch.version + 1)

    world = World(task, ToyTokenizer(), (0,))
    InlineDriver(Runner(plain_method(each), settings), engine or FakeEngine(), world, train).run()
    return batches


def tokens(batches):
    return {(g.id, t.index): g.response(t).tokens for b in batches for g in b.groups for t in g.trajectories}


def test_d01_the_seed_reaches_every_sample():
    """Case D01 (trl#7040): seeds 1, 2, 1: the first and the third run are equal, the second differs."""
    first, second, third = (run(seed) for seed in (1, 2, 1))
    assert first == third
    a, b = tokens(first), tokens(second)
    shared = set(a) & set(b)
    assert shared and sum(a[key] == b[key] for key in shared) < len(shared) / 2


def test_d02_samples_of_one_prompt_have_seeds_of_their_own():
    """Case D02 (UniRL#208): 8 samples, 8 streams, not all equal; the second run is the first."""
    hand = Hand(plain_method(8), num_tasks=1)
    hand.start()
    assert len({hand.owed[ask].stream for ask in hand.asks(Submit)}) == 8
    first, second = run(each=8), run(each=8)
    assert first == second
    for group in first[0].groups:
        assert len({group.response(t).tokens for t in group.trajectories}) > 1


def test_d02_a_shared_seed_cannot_be_asked_for(tmp_path):
    """Case D02: a seed for the sampler would be shared by a group; the key is refused by its name."""
    path = tmp_path / "config.toml"
    path.write_text('task = "countdown"\n[sampling]\nseed = 42\n')
    with pytest.raises(UnknownName, match="seed"):
        load_config(path)


def test_d03_numbers_are_given_before_the_work_is_split():
    """Case D03 (verl#6857), exact: four samples of one prompt are 0, 1, 2, 3 with four seeds."""
    hand = Hand(plain_method(4), num_tasks=1)
    hand.start()
    streams = [hand.owed[ask].stream for ask in hand.asks(Submit)]
    hand.finish_rollouts([0.0, 1.0])
    assert [t.index for t in hand.batch.groups[0].trajectories] == [0, 1, 2, 3]
    assert len(set(streams)) == 4


@pytest.mark.parametrize(("num", "order"), [(1, (0,)), (2, (1, 0)), (4, (2, 0, 3, 1))])
def test_d03_the_number_of_workers_changes_nothing(num, order):
    """Case D03: 1, 2 or 4 workers, in any order: the same batches."""
    assert run(engine=Workers(num, order)) == run()


def test_d05_rows_follow_the_start_not_the_finish():
    """Case D05 (AReaL#1607), exact: finish order 2, 0, 3, 1; and every other order."""
    for order in itertools.permutations(range(4)):
        hand = Hand(plain_method(4), num_tasks=1, num_steps=1)
        hand.start()
        asks = hand.asks(Submit)
        for i in order:
            hand.sample(asks[i], (3 + i, 0))
        for ask in sorted(hand.asks(Score), key=lambda ask: order[int(ask.split("/")[-1][0])]):
            number = int(ask.split("/")[-1].split(":")[0])
            hand.score(ask, number / 10)
        [group] = hand.batch.groups
        assert [t.index for t in group.trajectories] == [0, 1, 2, 3]
        assert [group.response(t).tokens[0] for t in group.trajectories] == [3, 4, 5, 6]
        assert [t.reward for t in group.trajectories] == [0.0, 0.1, 0.2, 0.3]
