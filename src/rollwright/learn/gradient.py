"""The loss and gradient of one micro-batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from rollwright.engine.model import Decoder
from rollwright.learn.backbone import hidden_packed
from rollwright.learn.logprobs import selected_logp
from rollwright.learn.packing import MicroBatch
from rollwright.stages.objective import Objective


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """What one micro-batch gave, without gradient.

    Args:
        micro: the micro-batch.
        loss: its share of the step's loss, float64 scalar.
        logp_new_T, entropy_T: logprob and entropy under the weights before the step, [T].
        diagnosis: the objective's own values, [T] each.
    """

    micro: MicroBatch
    loss: Tensor
    logp_new_T: Tensor
    entropy_T: Tensor
    diagnosis: dict[str, Tensor]


def logp_of(model: Decoder, micro: MicroBatch) -> tuple[Tensor, Tensor]:
    """Return logprob and entropy of the micro-batch's tokens under the model, nats, [T] each."""
    hidden_ND = hidden_packed(model, micro.tokens_N, micro.lengths, micro.rows_L)
    hidden_TD = hidden_ND.index_select(0, micro.at_T)
    return selected_logp(model, hidden_TD, micro.target_T, micro.temperature_T, model.cfg.vocab_size)


def loss_of(model: Decoder, objective: Objective, micro: MicroBatch) -> tuple[Tensor, Outcome]:
    """Return the micro-batch's share of the loss, Σ loss_T·weight_T, with its graph, and the outcome."""
    logp_new_T, entropy_T = logp_of(model, micro)
    is_sampled_T = torch.ones_like(micro.is_current_T)
    arrays = (logp_new_T, micro.logp_old_T, micro.adv_T, is_sampled_T, micro.logp_ref_T, micro.segment_T)
    more = {"logp_prox_T": micro.logp_prox_T} if "logp_prox" in objective.reads else {}
    loss_T = objective(*arrays, **more) * micro.weight_T
    with torch.no_grad():
        diagnosis = objective.diagnose(*arrays, **more)
        loss = loss_T.double().sum()
    return loss_T.sum(), Outcome(micro, loss, logp_new_T.detach(), entropy_T, diagnosis)


def accumulate(
    model: Decoder, objective: Objective, micro_batches: Sequence[MicroBatch], is_more: bool = False
) -> list[Outcome]:
    """Put the gradient of the summed loss into the parameters' ``grad``; return the outcomes.

    ``is_more`` adds it to what is there.
    """
    for parameter in model.parameters():
        parameter.grad = parameter.grad if is_more else None
    outcomes = []
    for micro in micro_batches:
        loss, outcome = loss_of(model, objective, micro)
        loss.backward()  # type: ignore[no-untyped-call]
        outcomes.append(outcome)
    return outcomes


@torch.no_grad()
def with_current(model: Decoder, micro_batches: Sequence[MicroBatch]) -> tuple[MicroBatch, ...]:
    """Return the micro-batches with logp_old taken from the model as it is, where a row asks for it.

    Only micro-batches with such a row go through the model.
    """
    filled = []
    for micro in micro_batches:
        asks = [part.row.ratio_to_current for part in micro.parts]
        if any(asks):
            asks_T = torch.tensor(asks, device=micro.segment_T.device)[micro.segment_T]
            logp_T = logp_of(model, micro)[0].to(micro.logp_old_T.dtype)
            micro = replace(micro, logp_old_T=logp_T.where(asks_T, micro.logp_old_T))
        filled.append(micro)
    return tuple(filled)


@torch.no_grad()
def with_proximal(model: Decoder, micro_batches: Sequence[MicroBatch]) -> tuple[MicroBatch, ...]:
    """Return the micro-batches with the logprobs of the model as it is filled in."""
    return tuple(replace(micro, logp_prox_T=logp_of(model, micro)[0]) for micro in micro_batches)


@torch.no_grad()
def with_reference(ref_model: Decoder, micro_batches: Sequence[MicroBatch]) -> tuple[MicroBatch, ...]:
    """Return the micro-batches with the reference's logprobs filled in."""
    return tuple(replace(micro, logp_ref_T=logp_of(ref_model, micro)[0]) for micro in micro_batches)
