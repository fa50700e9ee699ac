"""The laws of learning: what a credit, an objective and a reduction do to real weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
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
from rollwright.testing.enumerated import (
    TabularPolicy,
    bias,
    exact_policy_gradient,
    expected_estimator_gradient,
)
from rollwright.testing.fake import EOS, ToyTask, ToyTokenizer
from rollwright.testing.scenarios import Scenario, broken
from rollwright.tree import Group, Node

TOLERANCE = 1e-9  # relative, in float64
BIASED = 1e-3  # relative distance from the exact direction above which an estimator is biased
DECODED = Scenario(
    "decoder", ToyTask(max_turns=2, max_tokens=8, context=40), {"num_steps": 2, "num_tasks": 3}
)


# ---------------------------------------------------------------- real groups of a tiny decoder


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


# ---------------------------------------------------------------- 5 and 6


def law_no_gradient(method: Method) -> None:
    """Loss and gradient are exactly zero where not sampled, whatever logprob and advantage stand there."""
    logp_T = torch.tensor([-0.5, -1.0, -2.0, -0.1], dtype=torch.float64, requires_grad=True)
    is_sampled_T = torch.tensor([True, False, True, False])
    nan = math.nan
    loss_T = method.objective(
        logp_T,
        torch.tensor([-0.5, nan, -1.5, nan], dtype=torch.float64),
        torch.tensor([1.0, 7.0, -1.0, nan], dtype=torch.float64),
        is_sampled_T,
        torch.tensor([-0.4, nan, -1.9, nan], dtype=torch.float64),
        torch.tensor([0, 0, 1, 1]),
    )
    (grad_T,) = torch.autograd.grad(loss_T.sum(), logp_T)
    for what, values in (("loss", loss_T.detach()), ("gradient", grad_T)):
        if values[~is_sampled_T].abs().sum() != 0 or not values.isfinite().all():
            seen = f"{what} {values.tolist()} for sampled {is_sampled_T.tolist()}"
            raise broken(5, "not sampled", method, seen, "exactly 0 where not sampled, finite elsewhere")


def law_invariance(method: Method) -> None:
    """Loss and gradient do not depend on packing, micro-batches or the order of groups and members.

    Oracle: every trajectory alone through the model, summed.
    """
    batches, model = decoded(method)
    for batch in batches:
        rng = np.random.default_rng(batch.step)
        want = slow_gradient(method, batch.groups, model, is_reinforce=False)
        backwards = [_reordered(g, range(len(g.trajectories))[::-1]) for g in batch.groups[::-1]]
        shuffled = [_reordered(g, rng.permutation(len(g.trajectories)).tolist()) for g in batch.groups]
        for what, groups, budget in (
            ("packed in one piece", batch.groups, 10_000),
            ("each row a micro-batch", batch.groups, 1),
            ("micro-batches of 40 tokens", batch.groups, 40),
            ("backwards", backwards, 40),
            ("shuffled", shuffled, 10_000),
        ):
            got = gradient(method, groups, model, batch.version, budget)
            if abs(got[0] - want[0]) > TOLERANCE * max(1.0, abs(want[0])):
                raise broken(6, "invariance", method, f"loss {got[0]} {what}", f"{want[0]}, row by row")
            if distance(got[1], want[1]) > TOLERANCE:
                seen = f"a gradient {distance(got[1], want[1]):.2g} away {what}"
                raise broken(6, "invariance", method, seen, f"at most {TOLERANCE}, against row by row")
        _credit_ignores_order(method, batch.groups)


def _reordered(group: Group, order: Sequence[int]) -> Group:
    return msgspec.structs.replace(group, trajectories=tuple(group.trajectories[i] for i in order))


def _credit_ignores_order(method: Method, groups: Sequence[Group]) -> None:
    for group in groups:
        group = with_scores(group, [t.score for t in group.trajectories])
        one = _credits(method, group)
        two = _credits(method, _reordered(group, range(len(group.trajectories))[::-1]))
        if one != two:
            raise broken(6, "invariance", method, f"{two} for the group backwards", f"{one}, as in order")


def _credits(method: Method, group: Group) -> dict[str, tuple[tuple[float, ...] | None, float]]:
    for stage in method.credit:
        group = stage(group)
    return {t.leaf: (t.advantages, t.weight) for t in group.trajectories}


# ---------------------------------------------------------------- 7


def law_reinforce(method: Method) -> None:
    """On-policy, the first gradient is REINFORCE's with that credit, unless ``off_policy`` is declared."""
    if "off_policy" in method.all_declared:
        return
    batches, model = decoded(method)
    for batch in batches:
        want = slow_gradient(method, batch.groups, model, is_reinforce=True)[1]
        got = gradient(method, batch.groups, model, batch.version)[1]
        if distance(got, want) > TOLERANCE:
            seen = f"a first gradient {distance(got, want):.2g} away from REINFORCE's"
            raise broken(7, "REINFORCE", method, seen, f"at most {TOLERANCE}; or declare 'off_policy'")


# ---------------------------------------------------------------- 8


def graded(sequence: tuple[int, ...]) -> float:
    """A reward with three values that depends on order and length."""
    return (0.0, 0.3, 1.0)[(sequence[0] + 2 * sequence[-1] + len(sequence)) % 3]


def law_bias(method: Method) -> None:
    """The expected gradient has the exact gradient's direction if and only if no bias is declared.

    Filters, credit, objective and reduction are held to a fully enumerated policy of 3 words and length 3,
    with and without an end token, in groups of 2 and 3. A bias that another stage declares (what it
    samples, or keeps) is not seen here, so it is not asked to show.
    """
    found = {}
    for eos in (None, 2):
        policy = TabularPolicy.random(3, eos=eos)
        exact = exact_policy_gradient(policy, graded)
        for size in (2, 3):
            got = expected_estimator_gradient(
                policy, graded, size, filtered_credit(method), method.objective, method.reduce
            )
            found[eos, size] = bias(exact, got).relative_up_to_scale if float(got.norm()) else math.inf
    worst = max(found.values())
    if "biased" not in method.all_declared and worst > TOLERANCE:
        seen = f"a direction {worst:.3g} away from the exact gradient's"
        raise broken(8, "bias", method, seen, "0, as nothing is declared; or declare 'biased'")
    elsewhere = any(
        "biased" in getattr(stage, "declares", ())
        for kind, stage in method.stages()
        if kind not in ("filter", "credit", "objective", "reduce")
    )
    if "biased" in method.all_declared and not elsewhere and worst < BIASED:
        raise broken(8, "bias", method, f"the exact direction within {worst:.2g}", "the bias it declares")


def filtered_credit(method: Method) -> Callable[[Group], Group]:
    """Return filters and credit as one credit; a group that is dropped moves nothing."""

    def credit(group: Group) -> Group:
        for stage in method.filters:
            verdict = stage(group)
            if not verdict.keep:
                return _silent(group)
            scores = verdict.scores or {}
            group = with_scores(group, [scores.get(t.leaf, t.score) for t in group.trajectories])
        for stage in method.credit:
            group = stage(group)
        return group

    return credit


def _silent(group: Group) -> Group:
    zeros = [(0.0,) * len(group.response(t).tokens) for t in group.trajectories]
    quiet = [
        msgspec.structs.replace(t, advantages=zero) for t, zero in zip(group.trajectories, zeros, strict=True)
    ]
    return msgspec.structs.replace(group, trajectories=tuple(quiet))


def with_scores(group: Group, scores: Sequence[float | None]) -> Group:
    """Return the group without credit and with these scores."""
    changed = [
        msgspec.structs.replace(t, score=score, advantages=None, weight=1.0)
        for t, score in zip(group.trajectories, scores, strict=True)
    ]
    return msgspec.structs.replace(group, trajectories=tuple(changed), baseline=None)


# ---------------------------------------------------------------- 3


def learns_differently(method: Method, parent: Method) -> bool:
    """Return whether objective or reduction give other losses on columns that are off-policy and ragged."""
    logp_new_T = torch.linspace(-3, -0.1, 12, dtype=torch.float64, requires_grad=True)
    logp_old_T = logp_new_T.detach().roll(5)
    adv_T = torch.tensor([1.0, -1.0] * 6, dtype=torch.float64)
    is_sampled_T = torch.ones(12, dtype=torch.bool)
    segment_T = torch.tensor([0] * 7 + [1] * 2 + [2] * 3)
    grads = []
    for one in (method, parent):
        weight_T = torch.from_numpy(one.reduce(is_sampled_T.numpy(), segment_T.numpy()))
        loss_T = one.objective(
            logp_new_T, logp_old_T, adv_T, is_sampled_T, (logp_new_T * 0.5).detach(), segment_T
        )
        grads.append(torch.autograd.grad((loss_T * weight_T).sum(), logp_new_T)[0])
    return not torch.equal(grads[0], grads[1])
