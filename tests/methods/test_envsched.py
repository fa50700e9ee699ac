"""EnvSched: batches by predicted variance and coverage, within a quota for each environment."""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import pytest
from methods_help import run

from rollwright.errors import ConfigError
from rollwright.methods.envsched import envsched
from rollwright.methods.grpo import grpo
from rollwright.stage import TaskHistory
from rollwright.stages.allocate.refill import Refill
from rollwright.stages.filter.zero_variance import ZeroVariance
from rollwright.stages.select._task_graph import Graph
from rollwright.stages.select.env_quotas import EnvQuotas, seen
from rollwright.testing.fake import ToyTask


@dataclass
class Known:
    """A history that a test writes (`rollwright.stage.History`)."""

    tasks: list[str]
    step: int = 0
    seed: int = 0
    num_picked: int = 0
    about: dict[str, TaskHistory] = field(default_factory=dict)

    def of(self, task: str) -> TaskHistory:
        return self.about.setdefault(task, TaskHistory())

    def add(self, task: str, rewards: list[float]) -> None:
        of = self.of(task)
        of.visits += 1
        of.num_scored += len(rewards)
        of.reward_sum += sum(rewards)
        of.square_sum += sum(reward * reward for reward in rewards)


def pick(stage: EnvQuotas, history: Known, num: int, seed: int = 0) -> list[str]:
    picked = list(stage.pick(history, num, np.random.default_rng(seed)))
    for task in picked:
        history.of(task).last_step = history.step
    return picked


def world(num_envs: int = 6, num_tasks: int = 30, seed: int = 0):
    """Return tasks, their tags, and their true variances: the mean of what each of two tools gives.

    A tool that is the same in several environments has a tag that begins with ~.
    """
    rng = np.random.default_rng(seed)
    names = [f"~tool{k}" for k in range(5)] + [f"tool{k}" for k in range(3)]
    given = dict(zip(names, rng.permutation(np.linspace(0.01, 0.24, 8)), strict=True))
    tasks, tags, variance = [], [], []
    for env, i in itertools.product(range(num_envs), range(num_tasks)):
        mine = rng.choice(names, 2, replace=False).tolist()
        tasks.append(f"env{env}/train/{i}")
        tags.append((tasks[-1], tuple(mine)))
        variance.append(
            float(np.clip(np.mean([given[tool] for tool in mine]) + rng.normal(0, 0.01), 0, 0.25))
        )
    return tasks, tuple(tags), np.array(variance)


def graph_of(tasks, stage: EnvQuotas) -> Graph:
    return Graph.of(tasks, stage.tags, stage.depth, stage.across)


def visited(tasks, variance, num: int, seed: int) -> Known:
    """Return a history in which ``num`` of the tasks were rolled out 8 times each."""
    rng, history = np.random.default_rng(seed), Known(list(tasks))
    for i in rng.choice(len(tasks), num, replace=False):
        p = (1 + np.sqrt(max(0.0, 1 - 4 * variance[i]))) / 2
        history.add(tasks[i], (rng.random(8) < p).astype(float).tolist())
    return history


def rank_correlation(x, y) -> float:
    """Return Spearman's coefficient; ties share their mean rank."""

    def ranks(values):
        return np.array([(np.sum(values < v) + np.sum(values <= v) + 1) / 2 for v in values])

    return float(np.corrcoef(ranks(x), ranks(y))[0, 1])


def test_propagated_variance_ranks_tasks_that_nobody_has_seen():
    """Oracle: metamorphic, the paper row's check. Rank correlation with the true variance over tasks never
    visited, which the mean of all cannot rank; the tags carry it, and across environments only with ~."""
    found = []
    for seed in range(6):
        tasks, tags, variance = world(seed=seed)
        history = visited(tasks, variance, 60, seed)
        num_N, variance_N = seen(history)
        for stage in (EnvQuotas(tags=tags), EnvQuotas()):
            predicted = graph_of(tasks, stage).predict(num_N, variance_N, stage.strength)
            new = num_N == 0
            found.append(rank_correlation(predicted[new], variance[new]))
    with_tags, without = np.array(found[::2]), np.array(found[1::2])
    print(f"rank correlation {with_tags.round(2)} with tags, {without.round(2)} with environments only")
    assert with_tags.min() > 0.4 and with_tags.mean() > without.mean() + 0.4


def test_prediction_by_hand():
    """Oracle: closed form. Three tasks of one environment, a tag that two share, one task of another."""
    tasks = ["a/0", "a/1", "a/2", "b/0"]
    history = Known(tasks)
    history.add("a/0", [0.0, 1.0, 0.0, 1.0])  # variance 1/4 of 4
    history.add("a/1", [1.0, 1.0])  # variance 0 of 2
    stage = EnvQuotas(strength=2.0, tags=(("a/0", ("x", "~y")), ("a/2", ("x",)), ("b/0", ("~y",))))
    predicted = graph_of(tasks, stage).predict(*seen(history), stage.strength)
    near = [0.0, 1 / 4, ((1 / 4 * 4 + 0 * 2) / 3 + 1 / 4 * 4 / 2) / ((4 + 2) / 3 + 4 / 2), 1 / 4]
    own = [(4, 1 / 4), (2, 0.0), (0, 0.0), (0, 0.0)]
    want = [(n * v + 2 * p) / (n + 2) for (n, v), p in zip(own, near, strict=True)]
    assert predicted.tolist() == pytest.approx(want)


def test_nothing_known_is_a_coin_and_nothing_near_is_the_mean():
    """Oracle: closed form. Also rewards that are all equal: variance 0, never negative."""
    tasks = ["a/0", "b/0"]
    assert graph_of(tasks, EnvQuotas()).predict(*seen(Known(tasks)), 8.0).tolist() == [0.25, 0.25]
    history = Known(tasks)
    history.add("a/0", [0.1] * 3)
    assert seen(history)[1].min() >= 0.0
    history.add("a/0", [0.1, 1.1])
    variance = np.var([0.1] * 4 + [1.1])
    assert graph_of(tasks, EnvQuotas()).predict(*seen(history), 8.0)[1] == pytest.approx(variance)


@pytest.mark.parametrize("quota", [0.2, 0.34, 0.5, 1.0])
def test_quotas_are_never_exceeded(quota: float):
    """Oracle: enumeration. Many histories; also over the rounds of one step; no task twice."""
    for seed in range(20):
        tasks, tags, variance = world(num_envs=4, num_tasks=6, seed=seed)
        history = visited(tasks, variance, seed, seed)
        stage = EnvQuotas(quota=quota, tags=tags)
        picked, asked = [], 0
        for num in (7, 3, 1, 1):
            picked += pick(stage, history, num, seed)
            most = max(Counter(task.split("/")[0] for task in picked).values())
            asked += num
            assert most <= np.ceil(round(quota * asked, 9))
            assert len(set(picked)) == len(picked)
        history.step += 1
        assert len(pick(stage, history, 12, seed)) == 12


def test_a_batch_is_less_alike_than_the_best_by_score():
    """Oracle: metamorphic, the paper row's check. Mean Jaccard index of pairs, with and without penalty."""
    tasks, tags, variance = world(num_envs=3, num_tasks=60, seed=1)
    by_task = {task: set(some) for task, some in tags}

    def alike(picked: list[str]) -> float:
        pairs = list(itertools.combinations([by_task[task] for task in picked], 2))
        return float(np.mean([len(a & b) / len(a | b) for a, b in pairs]))

    for seed in range(5):
        history = visited(tasks, variance, 60, seed)
        top = alike(pick(EnvQuotas(1.0, 0.0, 0.0, tags=tags), history, 16, seed))
        history = visited(tasks, variance, 60, seed)
        assert alike(pick(EnvQuotas(1.0, 0.0, 0.3, tags=tags), history, 16, seed)) < top


def test_coverage_goes_where_little_was_seen():
    """Oracle: metamorphic. Equal variances: a large weight visits every task once before any twice."""
    tasks = [f"e{k % 3}/{k}" for k in range(12)]
    history = Known(tasks)
    for step in range(3):
        history.step = step
        for task in pick(EnvQuotas(quota=0.5, coverage=9.0), history, 4):
            history.add(task, [0.0, 1.0])
    assert [history.of(task).visits for task in tasks] == [1] * 12
    with_one = Known(["a/0", "a/1", "b/0"])
    with_one.add("a/0", [0.0, 1.0])
    assert pick(EnvQuotas(coverage=9.0), with_one, 1) == ["b/0"], "an unseen task of an unseen environment"


def test_the_order_of_ties_depends_on_the_seed_alone():
    """Oracle: metamorphic. Nothing known: two seeds shuffle differently, one seed does not."""
    tasks = [f"e/{k}" for k in range(40)]
    one, again, other = (pick(EnvQuotas(), Known(tasks), 8, seed) for seed in (0, 0, 1))
    assert one == again != other


def test_it_spends_no_rollout_on_finding_out_and_prefers_what_varies():
    """Oracle: other implementation. GRPO's rollouts to the number; tasks of which every rollout is right are
    picked less often than with shuffling, for the weights here never move."""
    task = ToyTask(num_tasks=10, share=0.3)
    ours = run(envsched(each=4, coverage=0.02), task=task, num_steps=20, publish=0)
    theirs = run(grpo(each=4), task=task, num_steps=20, publish=0)
    assert ours.ledger.spent["rollouts"] == theirs.ledger.spent["rollouts"] == 20 * 4 * 4

    def flat(result) -> float:
        groups = [group for batch in result.batches for group in batch.groups]
        return float(np.mean([len({t.reward for t in group.trajectories}) == 1 for group in groups]))

    print(f"groups without spread: {flat(ours):.0%}, {flat(theirs):.0%} shuffled")
    assert flat(ours) < flat(theirs) - 0.1
    history = ours.runner.history
    for name in history.tasks:
        rewards = [t.reward for g, t in ours.trained() if g.task == name]
        assert history.of(name).square_sum == pytest.approx(sum(r * r for r in rewards))


def test_refill_does_not_pick_a_task_again():
    """Oracle: enumeration. Rounds of one step never open the same task twice while others are left."""
    method = dataclasses.replace(envsched(), allocate=Refill(4), filters=(ZeroVariance(),))
    result = run(method, task=ToyTask(num_tasks=30, share=0.5), num_steps=3)
    opened: Counter[tuple[int, str]] = Counter()
    for batch in result.batches:
        opened.update((batch.step, group.task) for group in batch.groups)
    assert opened and max(opened.values()) == 1


def test_ten_thousand_tasks_take_no_time():
    """Oracle: the clock, generously: a batch of 64 out of 10,000 tasks with tags."""
    tasks = [f"e{k % 50}/{k}" for k in range(10_000)]
    tags = tuple((task, (f"t{k % 97}", f"~u{k % 31}")) for k, task in enumerate(tasks))
    history, stage = Known(tasks), EnvQuotas(tags=tags)
    start = time.process_time()
    assert len(pick(stage, history, 64)) == 64
    assert time.process_time() - start < 5.0


def test_impossible_numbers_are_refused():
    """Oracle: hand."""
    for wrong in ({"quota": 0.0}, {"quota": 1.1}, {"coverage": -1.0}, {"strength": 0.0}, {"depth": 0}):
        with pytest.raises(ConfigError, match="EnvQuotas"):
            EnvQuotas(**wrong)
