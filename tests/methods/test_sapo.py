"""SAPO: every batch holds I groups of this run and J that others shared, and nobody waits for anybody."""

from __future__ import annotations

import dataclasses
import pickle
from collections import Counter

import numpy as np
import pytest
from methods_help import run
from msgspec.structs import replace
from test_rlep import bandit_group

from rollwright.drive.inline import InlineDriver
from rollwright.drive.world import World
from rollwright.errors import ConfigError, LawBroken
from rollwright.events import EmitBatch, Published, Received
from rollwright.methods.grpo import grpo
from rollwright.methods.sapo import sapo
from rollwright.runner import Runner
from rollwright.stages.credit.group_norm import GroupNorm
from rollwright.stages.filter.zero_variance import ZeroVariance
from rollwright.stages.replay.swarm import Swarm
from rollwright.testing.fake import FakeEngine, ToyTask, ToyTokenizer
from rollwright.testing.scenarios import Outcome, Scenario

TASK = ToyTask(num_tasks=6, share=0.4)
PARENT = {"each": 4, "clip_high": 0.28, "reduce": "token_mean"}


def foreign(num: int, node: str = "anna", first: int = 0):
    """Return groups with spread that another run shared, as `Speech.heard` makes them."""
    made = []
    for i in range(first, first + num):
        group = bandit_group(f"toy/train/{i % 6}", [1, 2], [1.0, 0.0], visit=i)
        nodes = {
            name: one
            if one.logprobs is None
            else replace(one, policy=f"swarm/{node}", version=None, logprobs=None)
            for name, one in group.nodes.items()
        }
        marked = [replace(t, replayed=True, ratio_to_current=True) for t in group.trajectories]
        made.append(replace(group, id=f"{node}!{group.id}", nodes=nodes, trajectories=tuple(marked)))
    return made


def play(method, arrivals=(), num_steps=4, arrival=None):
    """Run a method; before each step's first chunk the next of ``arrivals`` comes in."""
    outcome = Outcome(Runner(method, Scenario("swarm", TASK).settings_of(num_steps=num_steps)))

    def train(batch: EmitBatch) -> Published:
        outcome.batches.append(batch)
        return Published(step=batch.step, version=batch.version + 1, learner_tokens=1)

    engine, world = FakeEngine(arrival=arrival), World(TASK, ToyTokenizer(), (0,))
    driver = InlineDriver(
        outcome.runner, engine, world, train, outcome, outcome.reports.append, clock=lambda: 0.0
    )
    waiting = list(arrivals)
    driver.arrivals, driver.arrivals_s = lambda: [waiting.pop(0)] if waiting else [], 0.0
    driver.run()
    return outcome


def shared(batch: EmitBatch):
    return [group for group in batch.groups if all(t.replayed for t in group.trajectories)]


# ---------------------------------------------------------------- the batch


def test_the_batch_is_i_own_and_j_foreign():
    """Oracle: closed form. With plenty of both every batch is exactly I + J, each foreign group once."""
    rng = np.random.default_rng(0)
    stage = Swarm(external=3, own=2)
    state, refused = stage.receive(stage.init(), foreign(20))
    assert refused == {}
    seen = []
    for step in range(6):
        fresh = [bandit_group(f"t{i}", [1, 2], [1.0, 0.0], visit=step) for i in range(5)]
        state, chosen = stage.exchange(state, fresh, step, rng, 5)
        own = [group for group in chosen if group in fresh]
        assert len(own) == 2 and len(chosen) == 5
        seen += [group.id for group in chosen if group not in fresh]
    assert len(seen) == len(set(seen)) == 18 and len(state) == 2


def test_both_draws_are_uniform():
    """Oracle: closed form. Over 4,000 draws of 1 from 4 each is drawn 1,000 times within 4.5 sigma."""
    stage, counts = Swarm(external=1, own=1), Counter()
    pool, fresh = tuple(foreign(4)), [bandit_group(f"t{i}", [1], [1.0]) for i in range(4)]
    for seed in range(4000):
        _, chosen = stage.exchange(pool, fresh, 0, np.random.default_rng(seed), 4)
        counts.update(group.id for group in chosen)
    assert len(counts) == 8
    assert all(abs(num - 1000) < 4.5 * np.sqrt(4000 * 0.25 * 0.75) for num in counts.values()), counts


def test_fewer_foreign_groups_make_a_smaller_batch():
    """Oracle: closed form. An empty pool leaves the own groups; nothing is repeated to fill it up."""
    fresh = [bandit_group("t", [1, 2], [1.0, 0.0])]
    state, chosen = Swarm(external=4).exchange((), fresh, 0, np.random.default_rng(0), 1)
    assert (state, chosen) == ((), tuple(fresh))
    state, chosen = Swarm(external=4).exchange(tuple(foreign(3)), fresh, 0, np.random.default_rng(0), 1)
    assert state == () and len(chosen) == 4


def test_groups_that_teach_nothing_are_not_kept_and_the_oldest_leave():
    """Oracle: enumeration. Equal rewards are refused with a reason; beyond max_pool the newest stay."""
    flat = bandit_group("t", [1, 2], [1.0, 1.0])
    state, refused = Swarm(max_pool=3).receive((), [flat, *foreign(2)])
    assert refused == {"zero_variance": 1} and len(state) == 2
    state, _ = Swarm(max_pool=3).receive(state, foreign(2, first=2))
    assert [group.id for group in state] == [group.id for group in foreign(4)[1:]]


def test_impossible_numbers_are_refused():
    """Oracle: hand."""
    for wrong in ({"external": -1}, {"own": 0}, {"max_pool": 0}):
        with pytest.raises(ConfigError, match="Swarm"):
            Swarm(**wrong)


# ---------------------------------------------------------------- in a run


def test_without_others_it_is_independent_training():
    """Oracle: other implementation. J = 0, whatever the swarm says, and J > 0 without a swarm: bit for bit
    GRPO on groups with spread."""
    alone = dataclasses.replace(grpo(**PARENT), filters=(ZeroVariance(),))
    want = run(alone, task=TASK).batches
    assert run(sapo(each=4), task=TASK).batches == want
    arrivals = [Received(source="anna/0", groups=tuple(foreign(8)))]
    assert play(sapo(each=4, external=0), arrivals).batches == play(alone).batches


def test_a_run_trains_the_share_that_was_asked_for():
    """Oracle: closed form. J of I + J groups in each step; origin, advantages and metrics say so."""
    outcome = play(sapo(each=4, external=2), [Received(source="anna/0", groups=tuple(foreign(8)))])
    for batch, report in zip(outcome.batches, outcome.reports, strict=True):
        others = shared(batch)
        assert len(others) == report.metrics["num_groups_foreign"] == 2
        assert len(batch.groups) - 2 == report.metrics["num_groups_kept"]
        nodes = [node for group in others for node in group.nodes.values() if node.policy]
        assert {node.policy for node in nodes} == {"swarm/anna"}
        for group in others:
            assert sorted(t.advantages[0] for t in group.trajectories) == pytest.approx(
                [-0.7071, 0.7071], 1e-4
            )
    assert outcome.reports[-1].metrics["swarm_received"] == 8


def test_the_ledger_knows_own_tokens_only():
    """Oracle: count by hand of the events: what others sampled is neither spent nor given a fate."""
    outcome = play(sapo(each=4, external=2, own=1), [Received(source="anna/0", groups=tuple(foreign(8)))])
    ledger = outcome.runner.ledger
    assert ledger.spent["sampled_tokens"] == outcome.spent_by_hand()["sampled_tokens"]
    assert ledger.fates["trained"] == outcome.trained_by_hand() > 0
    assert ledger.reasons["filtered:replay_dropped"] > 0, "own groups that were not drawn have a reason"
    assert sum(ledger.fates.values()) == ledger.spent["sampled_tokens"] and not ledger.fates["held"]


def test_given_the_same_arrivals_the_bits_are_the_same():
    """Oracle: metamorphic. Any order of the engine's chunks; and a pickled runner folds the events again."""
    arrivals = [Received(source="anna/0", groups=tuple(foreign(12)))]
    method = sapo(each=4, external=3)
    one = play(method, arrivals)
    for order in (3, 11):
        assert play(method, arrivals, arrival=order).batches == one.batches
    runner = Runner(method, one.runner.settings)
    for i, (event, commands) in enumerate(one.events):
        runner = pickle.loads(pickle.dumps(runner)) if i % 7 == 3 else runner
        assert runner.step(event) == commands


def test_a_method_that_takes_nothing_is_not_given_anything():
    """Oracle: hand. The error names the method and the source."""
    with pytest.raises(LawBroken, match=r"'grpo' was given rollouts of anna/0"):
        play(grpo(each=4), [Received(source="anna/0", groups=tuple(foreign(1)))])


def test_what_was_refused_is_counted_by_reason():
    """Oracle: hand. The reader's counts and the pool's add up in the report."""
    flat = bandit_group("toy/train/1", [1, 2], [0.0, 0.0])
    events = [
        Received(source="anna/0", groups=(*foreign(2), flat), refused={"too_long": 3}),
        Received(source="ben/0", refused={"unreadable": 1, "too_long": 1}),
    ]
    metrics = play(sapo(each=4), events).reports[-1].metrics
    said = {name: value for name, value in metrics.items() if name.startswith("swarm_")}
    assert said == {
        "swarm_received": 2,
        "swarm_refused:zero_variance": 1,
        "swarm_refused:too_long": 4,
        "swarm_refused:unreadable": 1,
    }


# ---------------------------------------------------------------- what it is for


class Node:
    """A tabular learner of eight 30-armed bandits; arm 0 is right."""

    def __init__(self, seed: int, is_skilled: bool) -> None:
        self.rng = np.random.default_rng(seed)
        self.theta = np.zeros((8, 30))
        self.theta[:, 0] = 3.0 if is_skilled else 0.0
        self.pool = ()

    def sample(self, num: int, visit: int):
        groups = []
        for i in self.rng.choice(8, num, replace=False):
            p = np.exp(self.theta[i] - np.logaddexp.reduce(self.theta[i]))
            arms = self.rng.choice(30, 6, p=p)
            groups.append(bandit_group(f"{i}", arms.tolist(), (arms == 0).astype(float).tolist(), visit))
        return groups

    def learn(self, groups) -> None:
        for group in groups:
            i = int(group.task)
            p = np.exp(self.theta[i] - np.logaddexp.reduce(self.theta[i]))
            for t in GroupNorm()(group).trajectories:
                arm = group.nodes[t.leaf].tokens[0]
                self.theta[i] += 0.25 * t.advantages[0] / 6 * (np.eye(30)[arm] - p)


def cumulative_reward(own: int, external: int, seed: int, stalled: int | None = None) -> list[float]:
    """Return the reward that each of four nodes, the first one skilled, collects in 80 rounds."""
    nodes = [Node(100 * seed + k, is_skilled=k == 0) for k in range(4)]
    stage, total = Swarm(external=external), [0.0] * 4
    for visit in range(80):
        said = [[] if k == stalled else node.sample(own, visit) for k, node in enumerate(nodes)]
        for k, node in enumerate(nodes):
            others = [group for j in range(4) if j != k for group in said[j]]
            node.pool, _ = stage.receive(node.pool, others)
            fresh = [group for group in said[k] if ZeroVariance()(group).keep]
            node.pool, chosen = stage.exchange(node.pool, fresh, visit, node.rng, own)
            rewards = [t.reward for group in said[k] for t in group.trajectories]
            total[k] += float(np.mean(rewards)) if rewards else 0.0
            node.learn(chosen)
    return total


def test_nodes_that_share_collect_more_reward_than_alone():
    """Oracle: metamorphic. Four nodes, one skilled: the three others gain from its rollouts in each of two
    seeds, though they sample half as much; and a node that stands still blocks nobody."""
    for seed in range(2):
        alone, together = cumulative_reward(8, 0, seed), cumulative_reward(4, 4, seed)
        print(f"seed {seed}: alone {np.round(alone, 1)}, sharing {np.round(together, 1)}")
        assert sum(together[1:]) > 1.2 * sum(alone[1:])
        assert all(reward > 0 for reward in cumulative_reward(4, 4, seed, stalled=0)[1:])
