"""Gradients added up part by part are those of the whole batch, and nothing of another version gets in."""

from __future__ import annotations

import copy
import dataclasses

import msgspec
import pytest
import torch
from learn_help import Spec, make_group, mixed_groups, tiny_model

from rollwright.errors import ConfigError, LearnerError
from rollwright.learn.config import LearnerConfig
from rollwright.learn.learner import Learner
from rollwright.learn.stream import Stream
from rollwright.stages.objective.ppo_clip import PPOClip
from rollwright.stages.objective.reinforce import Reinforce
from rollwright.stages.reduce.constant_length import ConstantLength
from rollwright.stages.reduce.sequence_mean import SequenceMean
from rollwright.stages.reduce.token_mean import TokenMean
from rollwright.tree import Group

CFG = LearnerConfig(lr=1e-2, max_grad_norm=None)
REDUCES = (TokenMean(), SequenceMean(), ConstantLength(7))


def learner_of(model, reduce, objective=None, **changes) -> Learner:
    cfg = dataclasses.replace(CFG, **changes)
    return Learner(copy.deepcopy(model), objective or PPOClip(0.2, 0.2), reduce, cfg)


def current_groups(model) -> list[Group]:
    """Return groups all of whose steps the version that learns has sampled."""
    groups = []
    for group in mixed_groups(model):
        nodes = {
            name: node if node.version is None else msgspec.structs.replace(node, version=0)
            for name, node in group.nodes.items()
        }
        groups.append(msgspec.structs.replace(group, nodes=nodes))
    third = [Spec([("s", [1, 9, 4], 0)], adv=0.3), Spec([("s", [2], 0)], adv=-0.8)]
    return [*groups, make_group(model, [7], third, "t/2#0")]


def weights(learner: Learner) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in learner.model.parameters()])


@pytest.mark.parametrize("reduce", REDUCES, ids=lambda reduce: type(reduce).__name__)
@pytest.mark.parametrize("parts", [(1, 1, 1), (2, 1), (3,), (1, 2)])
def test_parts_add_up_to_the_whole(reduce, parts):
    """Oracle: other implementation, `Learner.update` of the whole batch: the same weights to 1e-9 (the paper
    row's check asks for 1e-6), and the same figures; in any order of arrival."""
    model = tiny_model()
    groups = current_groups(model)
    assert len(groups) == 3
    whole = learner_of(model, reduce)
    want = whole.update(groups, 0)
    for order in (groups[:3], groups[2::-1]):
        learner = learner_of(model, reduce)
        stream, at = Stream(learner), 0
        for num in parts:
            stream.add(order[at : at + num])
            at += num
        found = stream.finish()
        assert torch.allclose(weights(learner), weights(whole), rtol=0, atol=1e-9)
        assert learner.version == whole.version == 1
        for name in ("loss", "grad_norm", "num_trained_tokens", "num_trained_trajectories", "entropy"):
            assert found[name] == pytest.approx(want[name], abs=1e-9), name


def test_unscaled_parts_would_be_wrong():
    """Oracle: metamorphic. The parts have different totals, so a sum without them is another gradient."""
    model = tiny_model()
    groups = current_groups(model)
    totals = []
    for group in groups[:3]:
        stream = Stream(learner_of(model, TokenMean()))
        stream.add([group])
        totals.append(stream._total)
    assert len(set(totals)) > 1


def test_another_version_is_refused():
    """Oracle: hand, the paper row's check: every consumed sample is of the current version."""
    model = tiny_model()
    groups = current_groups(model)
    learner = learner_of(model, TokenMean())
    stream = Stream(learner)
    stream.add(groups)
    stream.finish()
    before = weights(learner).clone()
    with pytest.raises(LearnerError, match="is of version 0; expected 1"):
        stream.add(groups)
    assert torch.equal(weights(learner), before)
    assert stream.finish()["num_updates"] == 0.0 and torch.equal(weights(learner), before)


def test_a_stream_without_anything_to_learn_moves_nothing():
    """Oracle: hand. No group, and groups of another policy: the version counts on, the weights stay."""
    model = tiny_model()
    learner = learner_of(model, SequenceMean(), Reinforce(), policy="critic", others=("policy",))
    before = weights(learner).clone()
    stream = Stream(learner)
    assert stream.add(current_groups(model)) == 0
    assert stream.finish()["num_updates"] == 0.0
    assert Stream(learner).finish()["num_trained_tokens"] == 0.0
    assert torch.equal(weights(learner), before) and learner.version == 2


def test_what_cannot_be_added_up_is_refused():
    """Oracle: enumeration. Several updates, several epochs, a reduce without a total."""
    model = tiny_model()
    for changes in ({"num_updates": 2}, {"num_epochs": 2}):
        with pytest.raises(ConfigError, match="one update"):
            Stream(learner_of(model, TokenMean(), **changes))
    with pytest.raises(ConfigError, match="does not say its total"):
        Stream(learner_of(model, lambda is_trained_T, segment_T: is_trained_T * 1.0))
