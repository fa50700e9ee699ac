"""What must hold before weights are touched, and the figures of a step."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from rollwright.errors import LearnerError
from rollwright.learn.gradient import Outcome
from rollwright.learn.packing import StepPlan

_CAUSES = (
    "the weights changed after these tokens were sampled without a new version; the sampler's temperature"
    " or cut is not the recorded one; the context was tokenised again; the engine computes in another"
    " precision than the learner (then set ratio_tolerance to what you accept, or None)"
)


def check_finite(outcomes: Sequence[Outcome], grad_norm: float) -> None:
    """Refuse a loss or gradient that is not a finite number.

    Raises:
        LearnerError: naming the first token whose logprob is not finite, if there is one.
    """
    loss = sum(float(outcome.loss) for outcome in outcomes)
    if math.isfinite(loss) and math.isfinite(grad_norm):
        return
    where = "every token's logprob is finite, so the backward pass overflowed"
    for outcome in outcomes:
        bad_T = ~torch.isfinite(outcome.logp_new_T)
        if bad_T.any():
            t = int(bad_T.nonzero()[0])
            where = f"the first bad token is {outcome.micro.name_of(t)}: logp_new={outcome.logp_new_T[t]:g}"
            break
    raise LearnerError(
        f"the loss is {loss:g} and the gradient's norm {grad_norm:g}; the weights were left as they were"
        f" ({where}). Lower the learning rate, or go back to the last checkpoint if the weights hold NaN"
    )


def check_ratio(
    outcomes: Sequence[Outcome], tolerance: float | None, mean_tolerance: float | None
) -> float | None:
    """Return max |exp(logp_new − logp_old) − 1| over tokens of the current version; None if there are none.

    Raises:
        LearnerError: it is above ``tolerance``, or the mean above ``mean_tolerance``; the message names
            the worst token and likely causes.
    """
    worst, message, total, num = None, "", 0.0, 0
    for outcome in outcomes:
        micro = outcome.micro
        if not micro.is_current_T.any():
            continue
        off_T = (outcome.logp_new_T - micro.logp_old_T).expm1().abs().where(micro.is_current_T, -1.0)
        total += float(off_T[micro.is_current_T].double().sum())
        num += int(micro.is_current_T.sum())
        t = int(off_T.argmax())
        if worst is None or float(off_T[t]) > worst:
            worst = float(off_T[t])
            new, old = float(outcome.logp_new_T[t]), float(micro.logp_old_T[t])
            message = f"{micro.name_of(t)}: logp_old={old:.6f} from the sampler, logp_new={new:.6f} here"
    if worst is None:
        return None
    mean = total / num
    limits = (
        ("worst", worst, "ratio_tolerance", tolerance),
        ("mean", mean, "ratio_mean_tolerance", mean_tolerance),
    )
    for word, off, name, limit in limits:
        if limit is not None and not off <= limit:
            raise LearnerError(
                f"before the first update the ratio of new to old probability is off 1 by {off:.3g} ({word}"
                f" of {num} tokens), more than {name}={limit:g}; worst at {message}. The weights were left as"
                f" they were. Likely causes: {_CAUSES}"
            )
    return worst


def step_metrics(plan: StepPlan, outcomes: Sequence[Outcome]) -> dict[str, float]:
    """Return the figures of one optimizer step.

    Means of ``entropy`` and of the ratio are over the tokens that went through the model; the objective's
    diagnoses, which are 0 for the others, over all trained tokens (``kl_ref``: no token is left out).
    """
    found = {"loss": sum(float(outcome.loss) for outcome in outcomes)}
    if not outcomes:
        return found
    logp_new_T = torch.cat([outcome.logp_new_T for outcome in outcomes])
    logp_old_T = torch.cat([outcome.micro.logp_old_T for outcome in outcomes])
    log_ratio_T = (logp_new_T - logp_old_T).double().clamp(-20, 20)
    ratio_T = log_ratio_T.exp()
    found["entropy"] = _mean([outcome.entropy_T for outcome in outcomes])
    found["ratio_mean"], found["ratio_min"] = float(ratio_T.mean()), float(ratio_T.min())
    found["ratio_max"] = float(ratio_T.max())
    found["kl_old"] = float((log_ratio_T.neg().expm1() + log_ratio_T).mean())
    for name in outcomes[0].diagnosis:
        total = sum(float(outcome.diagnosis[name].double().sum()) for outcome in outcomes)
        found[name] = total / plan.num_tokens
    return found


def _mean(values: Sequence[Tensor]) -> float:
    return float(torch.cat(list(values)).double().mean())
