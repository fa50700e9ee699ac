"""Replayed rollouts whose ratio is taken to the policy before the update."""

from __future__ import annotations

import msgspec
import pytest
import torch
from learn_help import Spec, make_group, tiny_model

from rollwright.learn.config import LearnerConfig
from rollwright.learn.learner import Learner
from rollwright.stages.objective.ppo_clip import PPOClip
from rollwright.stages.reduce.token_mean import TokenMean
from rollwright.tree import Group

SPECS = [
    Spec([("s", [1, 2, 3], 3)], adv=1.0),
    Spec([("s", [4, 5], 1), ("o", [6], 0), ("s", [9], 1)], adv=0.5),
    Spec([("s", [7, 7], 1)], adv=-1.0),
]


def groups(changes: dict[int, dict[str, bool]], shift: float) -> list[Group]:
    """Return two groups whose older tokens were recorded ``shift`` nats from the model's own logprob."""
    made = []
    for name in ("t/0#0", "t/1#0"):
        group = make_group(tiny_model(), [1, 2], SPECS, name)
        nodes = {
            key: node
            if node.version != 1
            else msgspec.structs.replace(node, logprobs=tuple(x + shift for x in node.logprobs or ()))
            for key, node in group.nodes.items()
        }
        trajectories = tuple(
            msgspec.structs.replace(t, **changes.get(t.index, {})) for t in group.trajectories
        )
        made.append(msgspec.structs.replace(group, nodes=nodes, trajectories=trajectories))
    return made


def weights_after(batch: list[Group], **cfg: int) -> list[torch.Tensor]:
    model = tiny_model()
    learner = Learner(model, PPOClip(), TokenMean(), LearnerConfig(lr=0.01, **cfg))
    figures = learner.update(batch, 3)
    assert figures["ratio_max_dev"] < 1e-9
    return [p.detach().clone() for p in model.parameters()]


ASK = {1: {"ratio_to_current": True}, 2: {"ratio_to_current": True}}


@pytest.mark.parametrize("shift", [-3.0, 2.0])
@pytest.mark.parametrize("cfg", [{}, {"num_updates": 2}, {"num_epochs": 2}, {"micro_batch_tokens": 1}])
def test_it_trains_as_if_the_current_policy_had_sampled_it(shift: float, cfg: dict[str, int]) -> None:
    """Oracle: metamorphic. What was recorded plays no part: the same weights as with the model's own
    logprobs, in one update and in several; without the flag the recorded ones move them elsewhere."""
    want = weights_after(groups({}, 0.0), **cfg)
    got = weights_after(groups(ASK, shift), **cfg)
    recorded = weights_after(groups({}, shift), **cfg)
    assert all(torch.allclose(a, b, rtol=0, atol=1e-12) for a, b in zip(got, want, strict=True))
    assert not all(torch.allclose(a, b, rtol=0, atol=1e-6) for a, b in zip(recorded, want, strict=True))


def test_only_who_asks_is_recomputed() -> None:
    """Oracle: metamorphic. A recorded neighbour in the same micro-batch keeps its own ratio."""
    one = weights_after(groups({1: ASK[1]}, 2.0))
    both, none = weights_after(groups(ASK, 2.0)), weights_after(groups({}, 2.0))
    for other in (both, none):
        assert not all(torch.allclose(a, b, rtol=0, atol=1e-6) for a, b in zip(one, other, strict=True))
