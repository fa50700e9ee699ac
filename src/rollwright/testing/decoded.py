"""Real groups of a tiny decoder, sampled by the real engine, and two ways to their gradient."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import msgspec
import numpy as np
import torch
from torch import Tensor

from rollwright.drive.inline import InlineDriver
from rollwright.drive.world import World
from rollwright.engine.inprocess import LocalEngine
from rollwright.engine.model import Decoder, DecoderConfig, new_model
from rollwright.events import EmitBatch, Published
from rollwright.learn.config import LearnerConfig
from rollwright.learn.gradient import accumulate, with_reference
from rollwright.learn.packing import plan_step
from rollwright.learn.rows import rows_of
from rollwright.method import Method
from rollwright.runner import Runner
from rollwright.stages.objective.reinforce import Reinforce
from rollwright.testing.fake import EOS, ToyTask, ToyTokenizer
from rollwright.testing.scenarios import Scenario
from rollwright.tree import Group, Node

DECODED = Scenario(
    "decoder", ToyTask(max_turns=2, max_tokens=8, context=40), {"num_steps": 2, "num_tasks": 3}
)


def tiny_decoder(seed: int = 0) -> Decoder:
    """Return a decoder over the toy's ten words, with distributions that are not flat."""
    cfg = DecoderConfig(
        family="qwen2",
        vocab_size=10,
        hidden_size=16,
        intermediate_size=24,
        num_layers=2,
        num_heads=4,
        num_kv_heads=2,
        head_dim=4,
        qkv_bias=True,
        eos_ids=(EOS,),
    )
    model = new_model(cfg, seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.mul_(8.0)
    return model


@lru_cache(maxsize=32)
def decoded(method: Method) -> tuple[tuple[EmitBatch, ...], Decoder]:
    """Run the method on the real engine over a tiny decoder; return its batches and the decoder in float64.

    The weights stay as they are; the behaviour logprobs are the float64 decoder's, so that everything is
    on-policy to the last bit that counts.
    """
    model = tiny_decoder()
    batches: list[EmitBatch] = []
    runner = Runner(method, DECODED.settings_of())

    def train(batch: EmitBatch) -> Published:
        batches.append(batch)
        return Published(step=batch.step, version=batch.version + 1, learner_tokens=1)

    world = World(DECODED.task, ToyTokenizer(), (EOS,))
    InlineDriver(runner, LocalEngine(model), world, train, clock=lambda: 0.0).run()
    exact = model.to(torch.float64)
    on_policy = []
    for batch in batches:
        groups = tuple(with_exact_logprobs(group, exact) for group in batch.groups)
        on_policy.append(msgspec.structs.replace(batch, groups=groups))
    return tuple(on_policy), exact


@torch.no_grad()
def with_exact_logprobs(group: Group, model: Decoder) -> Group:
    """Return the group with the logprobs that the model gives its sampled steps now."""
    nodes = dict(group.nodes)
    for trajectory in group.trajectories:
        path = group.path(trajectory.leaf)
        tokens = [token for node, num in path for token in node.tokens[:num]]
        logp_LV = plain_logp(model, tokens)
        start = 0
        for node, num in path:
            if node.logprobs is not None:
                fresh = [float(logp_LV[start + t - 1, node.tokens[t]]) for t in range(num)]
                nodes[node.id] = _with_logprobs(nodes[node.id], fresh)
            start += num
    return msgspec.structs.replace(group, nodes=nodes)


def _with_logprobs(node: Node, fresh: Sequence[float]) -> Node:
    assert node.logprobs is not None
    logprobs = (*fresh, *node.logprobs[len(fresh) :])
    return msgspec.structs.replace(node, logprobs=logprobs, kept_masses=None)


def plain_logp(model: Decoder, tokens: Sequence[int]) -> Tensor:
    """Return log softmax at every position of one sequence on its own, [L, V]."""
    hidden = model.hidden_packed(torch.tensor(tokens), [len(tokens)])
    return torch.log_softmax(model.logits(hidden), -1)


def gradient(
    method: Method, groups: Sequence[Group], model: Decoder, version: int, budget: int = 10_000
) -> tuple[float, Tensor]:
    """Return the learner's loss and flat gradient for one optimizer step on these groups."""
    rows = rows_of(groups, version, LearnerConfig())
    plan = plan_step(rows, method.objective, method.reduce, budget, model.embed)
    if "logp_ref" in method.objective.reads:
        plan = replace(plan, micro_batches=with_reference(model, plan.micro_batches))
    outcomes = accumulate(model, method.objective, plan.micro_batches)
    return sum(float(outcome.loss) for outcome in outcomes), flat_gradient(model)


def flat_gradient(model: Decoder) -> Tensor:
    """Return all gradients as one vector; zero where there is none."""
    parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in model.parameters()]
    return torch.cat([part.flatten() for part in parts])


def slow_gradient(
    method: Method, groups: Sequence[Group], model: Decoder, is_reinforce: bool
) -> tuple[float, Tensor]:
    """Return loss and gradient with every trajectory alone: no packing, no micro-batches, no skipping.

    Args:
        is_reinforce: take −A·logp in the place of the method's objective.
    """
    objective = Reinforce() if is_reinforce else method.objective
    members = [(g, t) for g in groups for t in g.trajectories if t.score is not None]
    responses = [group.response(t) for group, t in members]
    is_trained_T = np.concatenate([r.is_sampled for r in responses])
    sizes = [len(r.tokens) for r in responses]
    weight_T = torch.from_numpy(method.reduce(is_trained_T, np.repeat(np.arange(len(sizes)), sizes)))
    total = torch.zeros((), dtype=torch.float64)
    for (_, t), r, weight_R in zip(members, responses, weight_T.split(sizes), strict=True):
        if not r.tokens:
            continue
        logp_LV = plain_logp(model, [*r.prompt, *r.tokens])
        at = torch.arange(len(r.tokens)) + len(r.prompt)
        logp_R = logp_LV[at - 1, torch.tensor(r.tokens)]
        loss_R = objective(
            logp_R,
            torch.from_numpy(r.logp_old),
            torch.tensor(t.advantages, dtype=torch.float64),
            torch.from_numpy(r.is_sampled),
            logp_R.detach(),
            torch.zeros(len(r.tokens), dtype=torch.int64),
        )
        total = total + (loss_R * weight_R * t.weight).sum()
    for parameter in model.parameters():
        parameter.grad = None
    if total.requires_grad:
        total.backward()  # type: ignore[no-untyped-call]
    return float(total.detach()), flat_gradient(model)


def distance(a: Tensor, b: Tensor) -> float:
    """Return ‖a − b‖ relative to the larger of the two."""
    size = max(float(a.norm()), float(b.norm()), 1e-300)
    return float((a - b).norm()) / size
