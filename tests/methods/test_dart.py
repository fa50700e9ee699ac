"""DART-GUI's curation: where rollouts go, which tasks get a stored success, and which turns are trained."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest
from methods_help import run
from test_rlep import bandit_group

from rollwright.errors import ConfigError
from rollwright.methods.dart import dart
from rollwright.methods.grpo import grpo
from rollwright.stage import GroupView, Left, StepView
from rollwright.stages.allocate.by_success import BySuccess
from rollwright.stages.credit.group_norm import GroupNorm
from rollwright.stages.credit.top_entropy import TopEntropy
from rollwright.stages.replay.success_pool import SuccessPool
from rollwright.testing.fake import ToyTask
from rollwright.testing.scenarios import Scenario, play
from rollwright.tree import Group, Node, Origin, Trajectory

LEFT = Left(math.inf, math.inf)
DIALOGUE = Scenario("dialogue", ToyTask(max_turns=3))


def view(*rewards: list[float | None], step_round: int = 1) -> StepView:
    groups = tuple(
        GroupView(f"t{i}#0", f"t{i}", len(some), tuple(some), 0, True, True, False, 0)
        for i, some in enumerate(rewards)
    )
    return StepView(0, 0, step_round, max(1, len(rewards)), groups)


# ---------------------------------------------------------------- rollouts by success rate


def test_solved_tasks_get_no_more_rollouts():
    """Oracle: enumeration. Of 4 rollouts 0 to 4 right, nothing scored, and a full group: who goes on."""
    stage = BySuccess(first=4, more=2, most=8, enough=0.6)
    assert stage.grant(StepView(0, 0, 0, 5, ()), LEFT) == stage.grant(StepView(0, 0, 0, 5, ()), LEFT)
    opened = stage.grant(StepView(0, 0, 0, 5, ()), LEFT)
    assert (opened.new_tasks, opened.each) == (5, 4)
    shares = [[1.0] * k + [0.0] * (4 - k) for k in range(5)]
    extra = stage.grant(view(*shares, [None] * 4, [0.0] * 7, [0.0] * 8), LEFT).extra
    assert {name: num for name, num in extra.items() if num} == {"t0#0": 2, "t1#0": 2, "t2#0": 2, "t6#0": 1}


def test_the_budget_of_rollouts_is_kept():
    """Oracle: closed form. Five rollouts left: two tasks get two, the third one; none: no grant."""
    stage, hard = BySuccess(), view(*[[0.0] * 4] * 4)
    assert list(stage.grant(hard, Left(5, math.inf)).extra.values()) == [2, 2, 1, 0]
    assert stage.grant(hard, Left(0, math.inf)).is_empty
    assert stage.grant(StepView(0, 0, 0, 5, ()), Left(11, math.inf)).new_tasks == 2


def test_rounds_end():
    """Oracle: metamorphic. Whatever the rewards, a run ends, and no task has more than ``most``."""
    for share in (0.0, 0.3, 1.1):
        result = run(dart(each=8, first=3), task=ToyTask(share=share), num_steps=2)
        nums = [len(group.trajectories) for batch in result.batches for group in batch.groups]
        fresh = [sum(not t.replayed for t in g.trajectories) for b in result.batches for g in b.groups]
        assert max(fresh) <= 8 and min(fresh) >= 3 and max(nums) <= 9


def test_high_success_means_fewer_rollouts_in_a_run():
    """Oracle: recount. Groups mostly right after the first round have exactly the first rollouts."""
    result = run(dart(each=8, first=4), task=ToyTask(num_tasks=12, share=0.25), num_steps=4)
    num = {True: [], False: []}
    for group in (group for batch in result.batches for group in batch.groups):
        fresh = [t.reward for t in group.trajectories if not t.replayed]
        num[sum(fresh[:4]) > 0.6 * 4].append(len(fresh))
    assert set(num[True]) == {4} and min(num[False]) > 4 and num[True]


# ---------------------------------------------------------------- stored successes


def test_only_tasks_without_a_success_are_given_one():
    """Oracle: enumeration. A stored success joins the group that failed, not the one that has its own."""
    pool = SuccessPool().added({}, [bandit_group("t", [1], [1.0])])
    for rewards, num in (([0.0, 0.0], 1), ([1.0, 0.0], 0)):
        fresh = bandit_group("t", [2, 3], rewards, visit=1)
        for only_failed in (True, False):
            stage = SuccessPool(replayed=1, only_failed=only_failed)
            _, (union,) = stage.exchange(pool, [fresh], 0, np.random.default_rng(0), 1)
            assert sum(t.replayed for t in union.trajectories) == (num if only_failed else 1)


def test_every_failed_task_with_a_stored_success_gets_it():
    """Oracle: recount over a run, the paper row's check: all wrong and solved before means one replayed."""
    result = run(dart(each=4, first=2), task=ToyTask(num_tasks=4, share=0.55), num_steps=10)
    solved: set[str] = set()
    num = 0
    for batch in result.batches:
        for group in batch.groups:
            fresh = [t.reward for t in group.trajectories if not t.replayed]
            expected = group.task in solved and max(fresh) < 1.0
            assert sum(t.replayed for t in group.trajectories) == expected
            num += expected
        solved |= {g.task for g in batch.groups for t in g.trajectories if t.reward == 1.0 and not t.replayed}
    assert num > 3


# ---------------------------------------------------------------- the most entropic turns


def entropic(rows: list[list[tuple[float, ...]]], scores: list[float | None]) -> Group:
    """Return rollouts whose turns have these token entropies, an observation of two steps after each."""
    nodes = {"g/root": Node("g/root", None, 0, Origin.PROMPT, (1,))}
    trajectories = []
    for i, turns in enumerate(rows):
        parent, at, start = "g/root", 1, 1
        for k, values in enumerate(turns):
            name, num = f"g/{i}.{2 * k}", len(values)
            nodes[name] = Node(
                *(name, parent, at, Origin.SAMPLED, (3,) * num, f"0/{i}", start, "policy", 0),
                logprobs=(-1.0,) * num,
                entropies=values,
                temperature=1.0,
            )
            seen = f"g/{i}.{2 * k + 1}"
            nodes[seen] = Node(seen, name, num, Origin.OBSERVATION, (7, 7), f"0/{i}", start + num)
            parent, at, start = seen, 2, start + num + 2
        trajectories.append(Trajectory(parent, i, reward=scores[i], score=scores[i]))
    return Group("g", "t", nodes, tuple(trajectories))


def kept(group: Group) -> list[list[bool]]:
    """Return for each rollout which of its turns have any advantage."""
    found = []
    for t in group.trajectories:
        response = group.response(t)
        adv = np.array(t.advantages)
        assert not adv[~response.is_sampled].any()
        turns = [adv[(response.turns == k) & response.is_sampled] for k in range(response.turns.max() + 1)]
        assert all(len(set(turn.tolist())) == 1 for turn in turns), "all of a turn or nothing"
        found.append([bool(turn.any()) for turn in turns])
    return found


def trained(group: Group) -> set[tuple[int, int]]:
    """Return (rollout, turn) of every turn with an advantage."""
    return {(i, k) for i, some in enumerate(kept(group)) for k, one in enumerate(some) if one}


def test_exactly_the_top_fraction_of_turns_is_trained():
    """Oracle: enumeration, the paper row's check. Means 2, 1 | 3, 0.5 | 1.5: for each share the top."""
    rows = [[(1.0, 3.0), (1.0,)], [(3.0,), (0.0, 1.0)], [(1.5, 1.5, 1.5)]]
    group = GroupNorm()(entropic(rows, [1.0, 0.0, 0.0]))
    order = [(1, 0), (0, 0), (2, 0), (0, 1), (1, 1)]
    for share, num in ((0.01, 1), (0.2, 1), (0.4, 2), (0.6, 3), (0.8, 4), (1.0, 5)):
        assert trained(TopEntropy(share)(group)) == set(order[:num])
    assert TopEntropy(1.0)(group) == group


def test_an_unscored_rollout_ranks_nothing_and_an_unknown_entropy_is_kept():
    """Oracle: hand. The unscored one's high entropies push nobody out; a replayed turn is trained."""
    rows = [[(1.0,), (2.0,)], [(9.0,), (9.0,)], [(0.5,), (0.4,)]]
    group = GroupNorm()(entropic(rows, [1.0, None, 0.0]))
    assert kept(TopEntropy(0.5)(group)) == [[True, True], [False, False], [False, False]]
    blind = {name: msgspec.structs.replace(node, entropies=None) for name, node in group.nodes.items()}
    nodes = {**group.nodes, **{name: node for name, node in blind.items() if name.startswith("g/2")}}
    group = msgspec.structs.replace(group, nodes=nodes)
    assert kept(TopEntropy(0.5)(group)) == [[False, True], [False, False], [True, True]]


def test_a_turn_in_parts_is_one_turn():
    """Oracle: metamorphic. A turn cut by new weights is ranked by the mean of all of its tokens."""
    group = GroupNorm()(entropic([[(4.0, 0.0, 0.0)], [(2.0, 2.0, 2.0)]], [1.0, 0.0]))
    whole = group.nodes["g/0.0"]
    head = msgspec.structs.replace(whole, id="g/0.h", tokens=(3,), logprobs=(-1.0,), entropies=(4.0,))
    tail = msgspec.structs.replace(
        whole, parent="g/0.h", tokens=(3, 3), logprobs=(-1.0,) * 2, entropies=(0.0, 0.0), start=2, version=1
    )
    cut = {"g/root": group.root, "g/0.h": head, "g/0.0": tail}
    rest = {name: node for name, node in group.nodes.items() if name not in cut}
    rest["g/0.1"] = msgspec.structs.replace(rest["g/0.1"], at=2)
    parts = msgspec.structs.replace(group, nodes={**cut, **rest})
    assert kept(TopEntropy(0.5)(parts)) == kept(TopEntropy(0.5)(group)) == [[False], [True]]


def mean_entropies(group: Group) -> dict[tuple[int, int], float]:
    """Return the mean entropy of each turn, from flat columns."""
    means = {}
    for t in group.trajectories:
        path, response = group.path(t.leaf)[1:], group.response(t)
        flat = [x for node, num in path for x in (node.entropies or (math.nan,) * num)[:num]]
        for k in range(response.turns.max() + 1):
            own = np.array(flat)[(response.turns == k) & response.is_sampled]
            means[t.index, k] = float(own.mean())
    return means


def test_a_runs_dialogues_train_the_share_that_was_asked_for():
    """Oracle: recount. Turns with an advantage are those of highest mean entropy in each group of a run."""
    num_turns = num_groups = 0
    outcome = play(dart(each=4, first=4, share=0.5), DIALOGUE)
    for group in (group for batch in outcome.batches for group in batch.groups):
        if any(t.replayed for t in group.trajectories) or len({t.reward for t in group.trajectories}) == 1:
            continue
        means = mean_entropies(group)
        want = sorted(means, key=means.__getitem__, reverse=True)[: math.ceil(len(means) / 2)]
        assert trained(group) == set(want)
        num_turns, num_groups = num_turns + len(means), num_groups + 1
    assert num_groups > 2 and num_turns > 2 * num_groups


# ---------------------------------------------------------------- the method


def test_switched_off_it_is_its_parent():
    """Oracle: other implementation. All turns, nothing stored, all rollouts at once: GRPO's batches."""
    off = dart(each=4, first=4, share=1.0)
    want = run(grpo(each=4), task=ToyTask(share=0.0)).batches
    assert run(off, task=ToyTask(share=0.0)).batches == want


def test_impossible_numbers_are_refused():
    """Oracle: hand."""
    for wrong in ({"first": 0}, {"most": 2}, {"more": 0}, {"enough": 1.5}):
        with pytest.raises(ConfigError, match="BySuccess"):
            BySuccess(**wrong)
    for share in (0.0, 1.1):
        with pytest.raises(ConfigError, match="TopEntropy"):
            TopEntropy(share)
