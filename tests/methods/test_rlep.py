"""RLEP: verified successes of an earlier run join each fresh group; advantages are over the union."""

from __future__ import annotations

import dataclasses
import pickle
import statistics
from pathlib import Path

import msgspec
import numpy as np
import pytest
from methods_help import run, sampled

from rollwright.errors import DataError
from rollwright.methods.grpo import grpo
from rollwright.methods.rlep import rlep
from rollwright.stages.credit.group_norm import GroupNorm
from rollwright.stages.replay.success_pool import ELSEWHERE, SuccessPool, pool_digest, read_pool, write_pool
from rollwright.testing.fake import FakeEngine, ToyTask
from rollwright.tree import Group, Node, Origin, Trajectory

HARD = ToyTask(num_tasks=4, share=0.5)  # few rollouts are right: many groups are all wrong
BASE = {"each": 3, "clip_high": 0.28, "reduce": "token_mean"}


def bandit_group(task: str, arms: list[int], rewards: list[float | None], visit: int = 0) -> Group:
    """Return a group of one-token rollouts."""
    name = f"{task}#{visit}"
    nodes = {f"{name}/root": Node(f"{name}/root", None, 0, Origin.PROMPT, (7,))}
    trajectories = []
    for i, (arm, reward) in enumerate(zip(arms, rewards, strict=True)):
        node = Node(
            f"{name}/{i}.0",
            f"{name}/root",
            1,
            Origin.SAMPLED,
            (arm,),
            f"{visit}/{i}",
            1,
            "policy",
            visit,
            logprobs=(-1.5,),
            temperature=1.0,
        )
        nodes[node.id] = node
        trajectories.append(Trajectory(node.id, i, reward=reward, score=reward, status="graded"))
    return Group(name, task, nodes, tuple(trajectories))


def exchange(
    stage: SuccessPool, pool: object, groups: list[Group], seed: int = 0
) -> tuple[object, list[Group]]:
    pool, chosen = stage.exchange(pool, groups, 0, np.random.default_rng(seed), len(groups))
    return pool, list(chosen)


# ---------------------------------------------------------------- the pool


def test_the_pool_holds_verified_successes_only() -> None:
    """Oracle: enumeration. Of right, wrong, partial, unscored and replayed rollouts the right ones enter."""
    group = bandit_group("t", [1, 2, 3, 4, 5], [1.0, 0.0, 0.5, None, 1.0])
    replayed = msgspec.structs.replace(group.trajectories[4], replayed=True)
    group = msgspec.structs.replace(group, trajectories=(*group.trajectories[:4], replayed))
    pool = SuccessPool().added({}, [group])
    assert [episode["nodes"][0]["tokens"] for episode in pool["t"]] == [[1]]
    assert SuccessPool(threshold=0.5).added({}, [group])["t"][-1]["nodes"][0]["tokens"] == [3]


def test_the_pool_is_bounded_and_keeps_the_newest() -> None:
    """Oracle: closed form. Two a task, three in all; the task that grew longest ago gives way."""
    stage = SuccessPool(per_task=2, max_episodes=3)
    pool = stage.added({}, [bandit_group("a", [1, 2, 3], [1.0] * 3)])
    assert [e["nodes"][0]["tokens"] for e in pool["a"]] == [[2], [3]]
    pool = stage.added(pool, [bandit_group("b", [4], [1.0])])
    assert list(stage.added(pool, [bandit_group("a", [6], [1.0])])) == ["b", "a"]
    pool = stage.added(pool, [bandit_group("c", [5, 5, 5], [1.0] * 3)])
    assert {task: [e["nodes"][0]["tokens"] for e in es] for task, es in pool.items()} == {
        "a": [[3]],
        "b": [[4]],
        "c": [[5]],
    }


def test_the_state_is_plain_and_never_changed_in_place() -> None:
    """Oracle: metamorphic. The state survives JSON unchanged; an exchange leaves the old one as it was."""
    first, _ = exchange(SuccessPool(), {}, [bandit_group("t", [1, 2], [1.0, 0.0])])
    copy = msgspec.json.decode(msgspec.json.encode(first))
    assert copy == first
    second, _ = exchange(SuccessPool(), first, [bandit_group("t", [3, 2], [1.0, 0.0], visit=1)])
    assert first == copy != second


def test_nothing_is_in_a_group_twice() -> None:
    """Oracle: closed form. The draw is without replacement and comes before this step's own successes."""
    stage = SuccessPool(replayed=3)
    pool, (alone,) = exchange(stage, {}, [bandit_group("t", [1, 2, 3, 4], [1.0, 1.0, 1.0, 0.0])])
    assert len(alone.trajectories) == 4
    for seed in range(10):
        _, (union,) = exchange(stage, pool, [bandit_group("t", [5, 6], [0.0, 0.0], visit=1)], seed)
        drawn = [union.nodes[t.leaf].tokens for t in union.trajectories if t.replayed]
        assert sorted(drawn) == [(1,), (2,), (3,)]


# ---------------------------------------------------------------- the union


def test_union_is_g_plus_m_and_failed_groups_gain_variance() -> None:
    """Oracle: closed form. 4 fresh wrong and 2 replayed right: advantages −0.645… and +1.291…

    mean 1/3, sample std √(0.2667): (0 − 1/3)/std and (1 − 1/3)/std.
    """
    pool, _ = exchange(SuccessPool(), {}, [bandit_group("t", [1, 2, 3], [1.0] * 3)])
    fresh = bandit_group("t", [4, 5, 6, 4], [0.0] * 4, visit=1)
    _, (union,) = exchange(SuccessPool(replayed=2), pool, [fresh])
    assert [t.replayed for t in union.trajectories] == [False] * 4 + [True] * 2
    assert [t.index for t in union.trajectories] == list(range(6))
    credited = GroupNorm(eps=0.0)(union)
    assert [t.advantages[0] for t in credited.trajectories] == pytest.approx([-0.645497] * 4 + [1.290994] * 2)
    assert all(t.advantages == (0.0,) for t in GroupNorm()(fresh).trajectories)


def test_replayed_paths_are_the_originals_under_the_groups_own_prompt() -> None:
    """Oracle: metamorphic. Tokens, logprobs, versions and observations come back as they were sampled."""
    task = ToyTask(num_tasks=3, max_turns=3)
    result = run(rlep(each=3, replay=2), task=task, num_tasks=3, num_steps=5)
    originals = {
        sampled(g, t): g.response(t).versions.tolist() for g, t in result.trained() if not t.replayed
    }
    replayed = [(g, t) for g, t in result.trained() if t.replayed]
    assert len(replayed) > 10
    assert any(t.num_turns > 1 for _, t in replayed)
    for group, t in replayed:
        path = group.path(t.leaf)
        assert path[0][0] is group.root
        assert all(node.num_steps == num for node, num in path)
        assert originals[sampled(group, t)] == group.response(t).versions.tolist()
        assert t.reward == 1.0


def test_advantages_are_over_the_union() -> None:
    """Oracle: slow reference. (r − mean) / (std + 1e-6) over fresh and replayed, by the statistics module."""
    result = run(rlep(each=3, replay=2), task=HARD, num_steps=6)
    num_rescued = 0
    for group in (g for batch in result.batches for g in batch.groups):
        rewards = [t.reward for t in group.trajectories]
        fresh = [t.reward for t in group.trajectories if not t.replayed]
        num_rescued += max(fresh) == 0 < max(rewards)
        spread = statistics.stdev(rewards)
        for t in group.trajectories:
            want = (t.reward - statistics.mean(rewards)) / (spread + 1e-6) if spread else 0.0
            assert t.advantages == pytest.approx([want] * len(t.advantages))
    assert num_rescued > 2, "no all-wrong group gained variance"


def test_replayed_tokens_are_settled_once() -> None:
    """Oracle: ledger law. Fates add up to what this run sampled, replays aside; the report counts them."""
    result = run(rlep(each=3, replay=2), task=HARD, num_steps=6)
    replayed = [t for _, t in result.trained() if t.replayed]
    assert sum(report.metrics["num_replayed"] for report in result.reports) == len(replayed) > 0
    assert result.ledger.fates["trained"] == result.ledger.spent["sampled_tokens"] == result.engine.num_tokens
    assert result.ledger.spent["rollouts"] == 6 * 4 * 3


# ---------------------------------------------------------------- method


def test_without_replays_it_is_the_baseline() -> None:
    """Oracle: other implementation. replay=0 gives the parent's batches, bit for bit, pool or not."""
    want = run(grpo(**BASE), task=HARD).batches
    assert run(rlep(each=3, replay=0), task=HARD).batches == want
    assert rlep(replay=0).declares == grpo().declares
    assert "off_policy" in rlep(replay=1).declares


def test_it_bites_and_the_order_of_arrival_changes_nothing() -> None:
    """Oracle: metamorphic. Other credits than the parent's, the same ones in any order of arrival."""
    want = run(rlep(each=3), task=HARD, num_steps=4).batches
    assert want != run(grpo(**BASE), task=HARD, num_steps=4).batches
    for arrival in range(4):
        engine = FakeEngine(arrival=arrival)
        assert run(rlep(each=3), task=HARD, num_steps=4, engine=engine, chunk=2 + arrival).batches == want


def test_phase_two_starts_from_the_file_of_phase_one(tmp_path: Path) -> None:
    """Oracle: metamorphic. Phase 2's first step already replays what phase 1 verified."""
    first = run(rlep(each=4, replay=0, per_task=3), task=HARD, num_steps=6)
    assert not any(t.replayed for _, t in first.trained())
    path = tmp_path / "pool.json"
    write_pool(path, first.runner.replay_state)
    wins = {sampled(g, t)[0] for g, t in first.trained() if t.reward == 1.0}
    second = run(rlep(each=3, replay=2, pool=str(path)), task=HARD, num_steps=2, seed=2)
    drawn = [(g, t) for g, t in second.trained() if t.replayed]
    assert {g.task for g, _ in drawn} == set(first.runner.replay_state)
    assert {sampled(g, t)[0] for g, t in drawn} <= wins
    assert {n.policy for g, t in drawn for n, _ in g.path(t.leaf)[1:]} == {ELSEWHERE}
    assert second.runner.replay_state == read_pool(path), "the pool of phase 1 must not grow by default"


def test_a_resumed_run_replays_the_same(tmp_path: Path) -> None:
    """Oracle: metamorphic. The runner and the method survive pickling and JSON with their pool."""
    first = run(rlep(each=4, replay=1), task=HARD, num_steps=4)
    again = pickle.loads(pickle.dumps(first.runner))
    assert again.replay_state == first.runner.replay_state != {}
    method = rlep(pool=str(_file(tmp_path)))
    assert type(method).from_json(method.to_json()) == method
    assert method.replay.init() == method.replay.init()


def _file(folder: Path) -> Path:
    path = folder / "pool.json"
    write_pool(path, SuccessPool().added({}, [bandit_group("t", [1], [1.0])]))
    return path


def test_a_wrong_pool_file_is_refused(tmp_path: Path) -> None:
    """Oracle: closed form. No file, another file than at the start, and files that are no pools."""
    with pytest.raises(DataError, match="make one with write_pool"):
        rlep(pool=str(tmp_path / "none.json"))
    path = _file(tmp_path)
    method = rlep(pool=str(path))
    write_pool(path, {})
    with pytest.raises(DataError, match="this run began with"):
        method.replay.init()
    for text in (
        "",
        "[]",
        '{"t": [{"nodes": []}]}',
        '{"t": [{"prompt": [1], "nodes": [3], "trajectory": {}}]}',
    ):
        path.write_text(text)
        with pytest.raises(DataError, match="is no pool file"):
            read_pool(path, pool_digest(path))


def test_a_pool_of_another_prompt_is_refused() -> None:
    """Oracle: closed form. The same task id with other prompt tokens is another tokeniser or task."""
    pool, _ = exchange(SuccessPool(), {}, [bandit_group("t", [1], [1.0])])
    pool["t"][0]["prompt"] = [8]
    with pytest.raises(DataError, match="another prompt"):
        exchange(SuccessPool(), pool, [bandit_group("t", [2], [0.0], visit=1)])


# ---------------------------------------------------------------- what it is for


def updates_to_target(stage: SuccessPool, pool: object, seed: int) -> tuple[int, object]:
    """Return updates until four 40-armed bandits succeed with probability 0.8, and the last pool.

    The clipped surrogate's exact gradient: a rollout with A > 0 whose ratio is above 1.28 gives none.
    """
    rng = np.random.default_rng(seed)
    theta = np.zeros((4, 40))
    for update in range(3000):
        p = np.exp(theta - np.logaddexp.reduce(theta, axis=1, keepdims=True))
        if p[:, 0].mean() >= 0.8:
            return update, pool
        groups = []
        for i in range(4):
            arms = rng.choice(40, 8, p=p[i])
            group = bandit_group(f"t{i}", arms.tolist(), (arms == 0).astype(float).tolist(), update)
            logps = np.log(p[i])
            nodes = {
                name: node
                if node.logprobs is None
                else msgspec.structs.replace(node, logprobs=(float(logps[node.tokens[0]]),))
                for name, node in group.nodes.items()
            }
            groups.append(msgspec.structs.replace(group, nodes=nodes))
        pool, chosen = stage.exchange(pool, groups, update, rng, 4)
        for i, group in enumerate(chosen):
            for t in GroupNorm()(group).trajectories:
                node = group.nodes[t.leaf]
                arm, adv = node.tokens[0], t.advantages[0]
                ratio = 1.0 if t.ratio_to_current else p[i, arm] / np.exp(node.logprobs[0])
                if not ((adv > 0 and ratio > 1.28) or (adv < 0 and ratio < 0.8)):
                    theta[i] += 0.3 * adv * ratio / len(group.trajectories) * (np.eye(40)[arm] - p[i])
    raise AssertionError("the target was never reached")


def test_a_bandit_reaches_its_target_in_fewer_updates() -> None:
    """Oracle: metamorphic. From the base policy, with the pool of phase 1, in each of six seeds."""
    for seed in range(6):
        baseline, pool = updates_to_target(SuccessPool(replayed=0, per_task=8), {}, seed)
        fixed = dataclasses.replace(SuccessPool(replayed=2), grow=False)
        with_pool, _ = updates_to_target(fixed, pool, seed + 100)
        recorded, _ = updates_to_target(dataclasses.replace(fixed, ratio="recorded"), pool, seed + 100)
        print(
            f"seed {seed}: updates {baseline} without, {with_pool} with replay, {recorded} with recorded ones"
        )
        assert with_pool < baseline, (seed, with_pool, baseline)
