"""Real cases of advantage arithmetic: what other trainers got wrong, exact."""

import itertools

import msgspec
import pytest

from rollwright.events import Submit
from rollwright.stages.credit.group_norm import GroupNorm
from rollwright.testing.hand import Hand, plain_method
from rollwright.tree import Group, Node, Origin, StopReason, Trajectory


def group(rewards, name="t/0#0", parts=1):
    """Return a group of one rollout per reward; each of ``parts`` nodes of two tokens."""
    root = Node(f"{name}/root", None, 0, Origin.PROMPT, (1, 2))
    nodes, trajectories = {root.id: root}, []
    for i, reward in enumerate(rewards):
        parent = root.id
        for part in range(parts):
            node = Node(
                f"{name}/{i}.{part}",
                parent,
                2,
                Origin.SAMPLED,
                (3, 4),
                f"0/{i}",
                2 + 2 * part,
                "policy",
                part,
                (-0.5, -0.5),
                stop=StopReason.EOS if part == parts - 1 else StopReason.INTERRUPTED,
            )
            nodes[node.id] = node
            parent = node.id
        trajectories.append(Trajectory(parent, i, reward, score=reward))
    return Group(name, name.partition("#")[0], nodes, tuple(trajectories))


def advantages(rewards, **options):
    """Return the advantage of each rollout, one number, which all of its steps share."""
    credited = GroupNorm(**options)(group(rewards))
    for t in credited.trajectories:
        assert len(set(t.advantages)) == 1
    return [t.advantages[0] for t in credited.trajectories]


def test_a01_a_tiny_spread_is_not_clamped():
    """Case A01 (verl#6348), exact: eps is added to the std, the variance is not clamped."""
    found = advantages([1.0, 1.00001], eps=1e-6)
    assert found == pytest.approx([-0.619497, 0.619497], abs=1e-4)
    assert abs(found[0]) > 100 * 0.004995, "the wrong value is 124 times smaller"
    assert advantages([1.0, 1.00001], eps=1e-4) == pytest.approx([-0.046698, 0.046698], abs=1e-5)


def test_a01_eps_is_part_of_the_record():
    """Case A01: the eps that was used stands in the method's JSON."""
    assert '"eps": 0.0001' in plain_method(credit=(GroupNorm(eps=1e-4),)).to_json()


def test_a02_unequal_groups_keep_their_own_baseline():
    """Case A02 (slime#1414), exact: two rollouts of one prompt, one of another."""
    assert advantages([1.0, 3.0], scale=False) + advantages([5.0], scale=False) == [-1.0, 1.0, 0.0]
    with_std = advantages([1.0, 3.0]) + advantages([5.0])
    assert with_std == pytest.approx([-0.707106, 0.707106, 0.0], abs=1e-6)
    rewards = [[1, 0, 1, 0], [5, 5, 5], [0, 0, 0, 1]]
    assert advantages([float(r) for r in rewards[1]]) == [0.0, 0.0, 0.0]


def test_a02_in_a_run_with_unequal_groups():
    """Case A02 through the runner: groups of 4, 3 and 4, the middle one all 5, whatever the others earned."""
    hand = Hand(num_tasks=3, num_steps=1)
    hand.start()
    rewards = ((1, 0, 1, 0), (5, 5, 5), (0, 0, 0, 1))
    groups = {name: iter(some) for name, some in zip(hand.runner.groups, rewards, strict=True)}
    lost = [ask for ask in hand.asks(Submit) if ask.startswith("t/4#0/3")]
    hand.fail(lost[0])
    for ask in hand.asks(Submit):
        hand.sample(ask, (3, 0))
    for ask, command in list(hand.owed.items()):
        hand.score(ask, float(next(groups[command.group])))
    found = {g.id: [t.advantages[0] for t in g.trajectories] for g in hand.batch.groups}
    first, middle, last = found.values()
    assert [len(first), len(middle), len(last)] == [4, 3, 4]
    assert middle == [0.0, 0.0, 0.0]
    assert first == pytest.approx([0.866024, -0.866024, 0.866024, -0.866024], abs=1e-5)


def test_a03_a_rollout_in_several_pieces_counts_once():
    """Case A03 (slime#2302), exact: three nodes of one rollout are one member of the baseline.

    Rows of one rollout with different rewards cannot be written down: the reward belongs to the leaf.
    """
    whole = group([1.0, 0.0], parts=3)
    credited = GroupNorm(scale=False)(whole)
    assert [t.advantages for t in credited.trajectories] == [(0.5,) * 6, (-0.5,) * 6]
    scaled = GroupNorm()(whole)
    assert [t.advantages[0] for t in scaled.trajectories] == pytest.approx([0.707106, -0.707106], abs=1e-6)


def test_a04_not_scored_is_not_zero():
    """Case A04 (trl#5902), exact: the unscored row gets exactly 0 and moves nobody."""
    found = advantages([1.0, None, 0.0, 1.0], eps=1e-4)
    assert found == pytest.approx([0.57725, 0.0, -1.154501, 0.57725], abs=1e-5)
    assert found[1] == 0.0
    centred = advantages([1.0, None, 0.0, 1.0], scale=False)
    assert centred == pytest.approx([0.333333, 0.0, -0.666667, 0.333333], abs=1e-6)


def test_a09_groups_are_prompts_not_positions():
    """Case A09 (prime-rl#600), exact: answers arrive interleaved; each prompt's own have no spread."""
    for order in itertools.permutations(range(4)):
        hand = Hand(plain_method(2), num_tasks=2, num_steps=1)
        hand.start()
        asks = hand.asks(Submit)
        for i in order:
            hand.sample(asks[i], (3, 0))
        for ask, command in list(hand.owed.items()):
            hand.score(ask, 1.0 if command.group == "t/0#0" else 0.0)
        assert [t.advantages for g in hand.batch.groups for t in g.trajectories] == [(0.0, 0.0)] * 4


def test_equal_scores_give_exactly_zero_though_sums_round():
    """0.1 three times has a mean of 0.10000000000000002: the shortcut must be exact."""
    for value in (0.1, 1 / 3, 1e300, -7.3):
        assert advantages([value] * 3) == [0.0] * 3


def test_credit_reads_scores_not_rewards():
    """A filter's shaped score moves the baseline; the raw reward stays for the record."""
    raw = group([1.0, 0.0])
    first, second = raw.trajectories
    shaped = msgspec.structs.replace(raw, trajectories=(msgspec.structs.replace(first, score=0.5), second))
    credited = GroupNorm(scale=False)(shaped)
    assert [t.advantages[0] for t in credited.trajectories] == [0.25, -0.25]
    assert [t.reward for t in credited.trajectories] == [1.0, 0.0]
