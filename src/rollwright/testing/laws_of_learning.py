"""The laws of learning: what a credit, an objective and a reduction do to real weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import msgspec
import numpy as np
import torch

from rollwright.method import Method
from rollwright.testing.decoded import decoded, distance, gradient, slow_gradient
from rollwright.testing.enumerated import (
    TabularPolicy,
    bias,
    exact_policy_gradient,
    expected_estimator_gradient,
)
from rollwright.testing.scenarios import broken
from rollwright.tree import Group

TOLERANCE = 1e-9  # relative, in float64
BIASED = 1e-3  # relative distance from the exact direction above which an estimator is biased


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
