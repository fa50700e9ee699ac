"""DAPO: refill until the batch is full of groups that can teach; shape scores, filter raw outcomes."""

from __future__ import annotations

import dataclasses
import math

import msgspec
import pytest
from methods_help import run, sampled

from rollwright.errors import ConfigError
from rollwright.methods.dapo import dapo
from rollwright.methods.grpo import grpo
from rollwright.stage import Grant, GroupView, Left, StepView
from rollwright.stages.allocate.refill import Refill
from rollwright.stages.filter.overlong import Overlong
from rollwright.stages.filter.zero_variance import ZeroVariance
from rollwright.testing.fake import FakeEngine, ToyTask
from rollwright.tree import Group, Node, Origin, Trajectory

INF = Left(math.inf, math.inf)


def view(kept: list[bool | None], num_tasks: int = 4, round: int = 0, num_held: int = 0) -> StepView:
    groups = tuple(
        GroupView(f"t#{i}", "t", 2, (), 0, word is not None, word, False, 0) for i, word in enumerate(kept)
    )
    return StepView(0, 0, round, num_tasks, groups, num_held)


def group_of(*outcomes: tuple[float | None, int]) -> Group:
    """Return a group with one rollout per (reward, number of tokens)."""
    nodes = {"g/root": Node("g/root", None, 0, Origin.PROMPT, (1,))}
    trajectories = []
    for i, (reward, num) in enumerate(outcomes):
        node = Node(f"g/{i}.0", "g/root", 1, Origin.SAMPLED, (1,) * num, logprobs=(-1.0,) * num, version=0)
        nodes[node.id] = node
        trajectories.append(Trajectory(node.id, i, reward=reward, score=reward))
    return Group("g", "t", nodes, tuple(trajectories))


# ---------------------------------------------------------------- refill


@pytest.mark.parametrize(
    ("oversample", "kept", "round", "held", "want"),
    [
        (1.0, [], 0, 0, 4),
        (3.0, [], 0, 0, 12),
        (1.1, [], 0, 0, 5),
        (1.0, [True, False, True, False], 1, 0, 2),
        (2.0, [True, False, True, False], 1, 0, 4),
        (2.0, [True, True, True, True], 1, 0, 0),
        (2.0, [False] * 4, 10, 0, 0),
        (2.0, [None, None, None], 0, 0, 5),
        (2.0, [None] * 9, 0, 0, 0),
        (2.0, [True], 0, 3, 0),
        (2.0, [], 0, 1, 6),
    ],
)
def test_refill_asks_for_what_is_missing(
    oversample: float, kept: list[bool | None], round: int, held: int, want: int
) -> None:
    """Oracle: closed form. ⌈oversample · (4 − kept − held)⌉ − open, and nothing after the last round."""
    grant = Refill(2, oversample, max_rounds=10).grant(view(kept, round=round, num_held=held), INF)
    assert (grant.new_tasks, grant.is_empty) == (want, want == 0)


def test_refill_keeps_to_the_budget() -> None:
    """Oracle: closed form. 7 rollouts left pay for 3 tasks of 2, 1 for none."""
    assert Refill(2).grant(view([]), Left(7, math.inf)) == Grant(3, 2)
    assert Refill(2).grant(view([]), Left(1, math.inf)).is_empty


def test_every_batch_is_full_of_groups_that_teach() -> None:
    """Oracle: closed form. Each batch has num_tasks groups, each with a right and a wrong rollout."""
    result = run(dapo(each=3), num_steps=4)
    assert [len(batch.groups) for batch in result.batches] == [4] * 4
    for batch in result.batches:
        for group in batch.groups:
            assert len({t.reward for t in group.trajectories}) == 2
    plain = [group for batch in run(grpo(each=3), num_steps=4).batches for group in batch.groups]
    share = sum(len({t.reward for t in group.trajectories}) == 2 for group in plain) / len(plain)
    rollouts = result.ledger.spent["rollouts"] / 48
    print(f"groups that teach: {share:.2f} in GRPO's batches; DAPO pays {rollouts:.2f} times the rollouts")
    reasons = result.ledger.reasons
    assert set(reasons) == {"filtered:zero_variance", "filtered:replay_dropped"}
    assert result.ledger.fates["held"] == 0


def test_a_task_that_cannot_teach_ends_the_step_without_an_update() -> None:
    """Oracle: closed form. All are wrong: 3 rounds of 2 tasks of 2, no batch, all tokens filtered."""
    task = ToyTask(share=2.0)
    result = run(dapo(each=2, oversample=1.0, max_rounds=3), task=task, num_tasks=2, num_steps=1)
    assert result.batches == []
    assert result.reports[0].metrics["skipped_update"] == 1
    assert result.ledger.spent["rollouts"] == 3 * 2 * 2
    tokens = result.ledger.spent["sampled_tokens"]
    assert result.ledger.reasons == {"filtered:zero_variance": tokens}


def test_surplus_is_dropped_or_held() -> None:
    """Oracle: metamorphic. Held surplus is trained one version late; dropped surplus is filtered, by name."""
    dropped, held = run(dapo(each=3, oversample=4.0)), run(dapo(each=3, oversample=4.0, hold=True))
    assert dropped.ledger.reasons["filtered:replay_dropped"] > 0
    assert "filtered:replay_dropped" not in held.ledger.reasons
    first_surplus = [g.id for g in held.batches[1].groups if any(n.version == 0 for n in g.nodes.values())]
    assert first_surplus, "no surplus was trained in the second step"
    assert held.ledger.spent["rollouts"] < dropped.ledger.spent["rollouts"]
    assert max(report.metrics["age_max"] for report in held.reports) >= 1
    assert max(report.metrics["age_max"] for report in dropped.reports) == 0
    assert "off_policy" in dapo(hold=True).declares - dapo().declares


def test_the_order_of_arrival_changes_nothing() -> None:
    """Oracle: metamorphic. Any order of arrival and any chunk gives the same batches."""
    want = run(dapo(each=3)).batches
    for arrival in range(4):
        assert run(dapo(each=3), engine=FakeEngine(arrival=arrival), chunk=3 + arrival).batches == want


def test_it_bites() -> None:
    """Oracle: metamorphic. Where a group has no variance GRPO trains it and DAPO refills it."""
    parent = run(grpo(each=3, clip_high=0.28, reduce="token_mean"))
    child = run(dapo(each=3))
    assert any(len({t.reward for t in g.trajectories}) == 1 for b in parent.batches for g in b.groups)
    assert [sampled(*x) for x in child.trained()] != [sampled(*x) for x in parent.trained()]
    assert dataclasses.replace(
        dapo(each=3), allocate=parent.runner.method.allocate, filters=(), replay=parent.runner.method.replay
    ) == dataclasses.replace(parent.runner.method, name="dapo")


# ---------------------------------------------------------------- the overlong penalty


@pytest.mark.parametrize(
    ("num_tokens", "want"),
    [(0, 0.0), (12, 0.0), (16, 0.0), (17, -0.25), (18, -0.5), (20, -1.0)],
)
def test_penalty_is_equation_13(num_tokens: int, want: float) -> None:
    """Oracle: closed form. L_max = 20, L_cache = 4: 0 up to 16, then −(n − 16)/4, −1 at the limit."""
    assert Overlong(20, 4).penalty(num_tokens) == want
    assert Overlong(20, 4, factor=0.5).penalty(num_tokens) == want / 2


def test_the_filter_sees_the_raw_outcome_and_the_credit_the_shaped_score() -> None:
    """Oracle: closed form. Wrong answers of unlike length differ in score but not in outcome.

    On shaped scores the group would be kept, and its short wrong answers would be rewarded.
    """
    wrong = group_of((0.0, 2), (0.0, 19), (0.0, 20))
    verdict = Overlong(20, 4)(wrong)
    assert list(verdict.scores.values()) == [0.0, -0.75, -1.0]
    scored = tuple(msgspec.structs.replace(t, score=verdict.scores[t.leaf]) for t in wrong.trajectories)
    shaped = Group("g", "t", wrong.nodes, scored)
    for group in (wrong, shaped):
        assert not ZeroVariance()(group).keep
        assert ZeroVariance()(group).reason == "zero_variance"
    assert ZeroVariance()(group_of((0.0, 2), (1.0, 20))).keep


@pytest.mark.parametrize("outcomes", [[(None, 3), (None, 4)], [(1.0, 3), (None, 4)], [(1.0, 3)], []])
def test_unscored_rollouts_are_in_neither_side(outcomes: list[tuple[float | None, int]]) -> None:
    """Oracle: closed form. None is not 0: a right and an unscored rollout do not differ."""
    assert not ZeroVariance()(group_of(*outcomes)).keep
    assert None not in Overlong(20, 4)(group_of(*outcomes)).scores.values()


def test_scores_are_shaped_in_the_run_and_rewards_stay_raw() -> None:
    """Oracle: slow reference. score − reward is the penalty of the rollout's own length."""
    task = ToyTask(max_tokens=12)
    result = run(dapo(each=4, max_tokens=12, overlong_buffer=8), task=task)
    seen = set()
    for group, t in result.trained():
        num = len(group.response(t).tokens)
        assert t.score - t.reward == pytest.approx(min(0.0, (12 - 8 - num) / 8))
        assert t.reward in (0.0, 1.0)
        seen.add(num > 4)
    assert seen == {False, True}


def test_checks_belong_to_what_is_switched_on() -> None:
    """Oracle: closed form. Without max_tokens there is no penalty and nothing of it is demanded."""
    assert dapo(max_tokens=None, overlong_buffer=512).filters == (ZeroVariance(),)
    assert dapo(max_tokens=100).filters[1] == Overlong(100, 20)
    with pytest.raises(ConfigError, match="expected 1 ≤ buffer ≤ max_tokens"):
        dapo(max_tokens=100, overlong_buffer=512)
    with pytest.raises(ConfigError, match="oversample"):
        dapo(oversample=0.5)
