"""What of a trajectory is trained: real cases of masks, and input that breaks a law."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest
from learn_help import Spec, make_group, tiny_model

from rollwright.errors import LearnerError
from rollwright.learn.config import LearnerConfig
from rollwright.learn.rows import rows_of
from rollwright.tree import Group, Node, Origin, Trajectory

CFG = LearnerConfig()


def one_row(pieces, version=0, cfg=CFG, prompt=(1,)):
    """Return the row of a single trajectory made of (kind, tokens, version)."""
    return rows_of([make_group(tiny_model(), prompt, [Spec(pieces, adv=1.0)])], version, cfg)[0]


def test_case_m02_only_sampled_ids_are_trained():
    """Case M02. Oracle: the case's mask. Mutant: train whole assistant messages."""
    row = one_row([("s", [10, 4], 0), ("o", [3, 1, 5, 3, 2, 4, 3, 1, 2, 3], 0), ("s", [7, 4], 0)])
    assert row.is_trained_R.astype(int).tolist() == [1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1]
    assert row.is_trained_R.sum() == 4


def test_case_e01_end_token_is_trained_by_length_not_by_id():
    """Case E01. Oracle: the case's masks. Mutant: compare ids with the pad or end id."""
    rows = [one_row([("s", tokens, 0)]) for tokens in ([5, 6, 2], [5, 2, 7, 8, 2])]
    assert [row.is_trained_R.tolist() for row in rows] == [[True] * 3, [True] * 5]


def test_case_e02_appended_end_token_is_context():
    """Case E02. Oracle: mask [1, 1, 0], and no logprob is made up. Mutant: logprob 0 is trained on."""
    row = one_row([("s", [5, 6], 0), ("h", [2], 0)])
    assert row.tokens_L.tolist() == [1, 5, 6, 2]
    assert row.is_trained_R.tolist() == [True, True, False]
    assert math.isnan(row.logp_old_R[2]) and row.adv_R[2] == 0


def test_case_e03_empty_completion():
    """Case E03. Oracle: masks by length, no crash."""
    group = make_group(tiny_model(), [1], [Spec([("s", [], 0)]), Spec([("s", [7, 8, 2], 0)])])
    assert [row.is_trained_R.tolist() for row in rows_of([group], 0, CFG)] == [[], [True] * 3]
    leaf_is_root = Group("g", "t", {"g": Node("g", None, 0, Origin.PROMPT, (1,))}, (Trajectory("g", 0),))
    scored = msgspec.structs.replace(leaf_is_root.trajectories[0], score=0.0, advantages=())
    rows = rows_of([msgspec.structs.replace(leaf_is_root, trajectories=(scored,))], 0, CFG)
    assert len(rows[0].is_trained_R) == 0


def test_case_s01_partial_rollout_resumed_under_new_weights():
    """Case S01. Oracle: the case's masks and versions. Mutant: the mask of the last node only."""
    pieces = [("s", [3, 4, 5], 1), ("s", [6, 7], 2)]
    row = one_row(pieces, version=2, cfg=LearnerConfig(max_token_age=0))
    assert row.is_trained_R.astype(int).tolist() == [0, 0, 0, 1, 1]
    assert len(row.is_trained_R) == len(row.logp_old_R) == len(row.adv_R) == 5
    assert row.is_current_R.astype(int).tolist() == [0, 0, 0, 1, 1]
    assert one_row(pieces, version=2).is_trained_R.all()
    assert one_row(pieces, version=3, cfg=LearnerConfig(max_token_age=1)).is_trained_R.sum() == 2


def test_unscored_rollouts_are_left_out():
    """Law 4. Oracle: case A04's rule: not scored is in no denominator. Mutant: score None as 0."""
    group = make_group(tiny_model(), [1], [Spec([("s", [2], 0)], score=None), Spec([("s", [3], 0)])])
    assert [row.tokens_L.tolist() for row in rows_of([group], 0, CFG)] == [[1, 3]]


def test_kept_mass_gives_the_full_vocabulary_logprob():
    """Oracle: log p = log p_kept + log mass, by hand."""
    group = make_group(tiny_model(), [1], [Spec([("s", [2, 3], 0)], kept_mass=0.5)])
    node = group.nodes["t/0#0/0.0"]
    row = rows_of([group], 0, CFG)[0]
    assert row.logp_old_R == pytest.approx(np.array(node.logprobs) + math.log(0.5))


def test_other_policies_are_not_held_to_ratio_one():
    """Oracle: `is_current_R` asks for the policy's name and the version."""
    group = make_group(tiny_model(), [1], [Spec([("s", [2], 4)])])
    assert rows_of([group], 4, CFG)[0].is_current_R.all()
    assert not rows_of([group], 5, CFG)[0].is_current_R.any()
    assert not rows_of([group], 4, LearnerConfig(policy="explorer"))[0].is_current_R.any()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"advantages": None}, "has no advantages"),
        ({"advantages": (1.0,)}, "1 advantages for 3 response steps"),
        ({"advantages": (1.0, 1.0, 1.0)}, "not sampled"),
        ({"advantages": (math.nan, 1.0, 0.0)}, "advantage of response step 0 is nan"),
        ({"score": None, "advantages": (1.0, 1.0, 0.0)}, "not scored but has an advantage"),
        ({"weight": math.inf}, "weight is inf"),
    ],
)
def test_input_that_breaks_a_law(changes, message):
    """Law 5 and bad input. Oracle: the error names trajectory and group; nothing is trained in silence."""
    group = make_group(tiny_model(), [1], [Spec([("s", [2, 3], 0), ("o", [4], 0)])])
    bad = msgspec.structs.replace(group.trajectories[0], **changes)
    with pytest.raises(LearnerError, match=message) as error:
        rows_of([msgspec.structs.replace(group, trajectories=(bad,))], 0, CFG)
    assert "trajectory 0 of group t/0#0" in str(error.value)


def test_greedy_rollouts_and_empty_prompts_cannot_be_trained():
    """Oracle: the message says what to do."""
    group = make_group(tiny_model(), [1], [Spec([("s", [2], 0)])])
    node = group.nodes["t/0#0/0.0"]
    greedy = {**group.nodes, node.id: msgspec.structs.replace(node, temperature=0.0)}
    with pytest.raises(LearnerError, match="greedily"):
        rows_of([msgspec.structs.replace(group, nodes=greedy)], 0, CFG)
    bare = {**group.nodes, "t/0#0": msgspec.structs.replace(group.root, tokens=())}
    with pytest.raises(LearnerError, match="empty prompt"):
        rows_of([msgspec.structs.replace(group, nodes=bare)], 0, CFG)
