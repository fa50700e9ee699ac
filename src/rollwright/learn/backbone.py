"""The decoder's layers as the learner runs them on a CPU, with backward passes written out.

It computes what `Decoder.hidden_packed` computes, which is its oracle, in fewer passes over memory: the
norms' weights are folded into the matrices behind them, rotations and gates run in place, and attention
skips what lies to the right. On an accelerator, where kernels fuse differently, `hidden_packed` runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from rollwright.engine.model import Block, Decoder, DecoderConfig
from rollwright.learn.attention import Layout, PackedAttention, layout_of


def is_written_out(like: Tensor) -> bool:
    """Say whether these layers run for a model of this device and precision."""
    return like.device.type == "cpu" and like.dtype in (torch.float32, torch.float64)


def hidden_packed(
    model: Decoder, tokens_N: Tensor, lengths: Sequence[int], rows: Tensor | None = None
) -> Tensor:
    """Return the last hidden states of packed sequences, [N, hidden_size]; see `Decoder.hidden_packed`.

    Args:
        model: the decoder.
        tokens_N, lengths: packed ids, and positions of each sequence.
        rows: where sequences share what they begin with, the packed row of every position, laid end to end,
            [sum(lengths)]; only where `is_written_out` says so.
    """
    if not is_written_out(model.embed):
        assert rows is None
        return model.hidden_packed(tokens_N, lengths)
    layout = layout_of(model.rope(max(lengths)), lengths, rows)
    x_ND = F.embedding(tokens_N, model.embed)
    for layer in model.layers:
        x_ND = _block(model.cfg, layer, x_ND, layout)  # type: ignore[arg-type]
    return Norm.apply(x_ND, model.final_norm, model.cfg.rms_eps)  # type: ignore[no-any-return]


def _block(cfg: DecoderConfig, layer: Block, x_ND: Tensor, layout: Layout) -> Tensor:
    qkv = NormLinear.apply(x_ND, layer.input_norm, layer.qkv_proj.weight, layer.qkv_proj.bias, cfg.rms_eps)
    if layer.q_norm is not None and layer.k_norm is not None:
        qkv = _normed_heads(cfg, layer, qkv)
    attended = PackedAttention.apply(qkv, cfg, layout)
    x_ND = torch.addmm(x_ND, attended, layer.o_proj.weight.t())
    if layer.o_proj.bias is not None:
        x_ND = x_ND + layer.o_proj.bias
    feed = (layer.post_norm, layer.gate_up_proj.weight, layer.down_proj.weight)
    return FeedForward.apply(x_ND, *feed, cfg.rms_eps)  # type: ignore[no-any-return]


def _normed_heads(cfg: DecoderConfig, layer: Block, qkv: Tensor) -> Tensor:
    """Return queries and keys normed over their heads' width, values as they are."""
    heads = qkv.unflatten(1, (-1, cfg.head_dim))
    q, k, v = heads.split([cfg.num_heads, cfg.num_kv_heads, cfg.num_kv_heads], 1)
    width = (cfg.head_dim,)
    q, k = F.rms_norm(q, width, layer.q_norm, cfg.rms_eps), F.rms_norm(k, width, layer.k_norm, cfg.rms_eps)
    return torch.cat([q, k, v], 1).flatten(1)


def unit_rows(x_ND: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Return x / rms(x) and 1 / rms(x), [N, D] and [N, 1]; rms(x)² = mean(x²) + eps."""
    inverse_N1 = torch.linalg.vecdot(x_ND, x_ND).div_(x_ND.shape[1]).add_(eps).rsqrt_()[:, None]
    return x_ND * inverse_N1, inverse_N1


def unit_rows_backward(grad_ND: Tensor, unit_ND: Tensor, inverse_N1: Tensor) -> Tensor:
    """Return the gradient of x from that of x / rms(x): (g − u·mean(g·u)) / rms. Takes ``grad_ND`` over."""
    mean_N1 = torch.linalg.vecdot(grad_ND, unit_ND).div_(unit_ND.shape[1])[:, None]
    return grad_ND.addcmul_(unit_ND, mean_N1, value=-1).mul_(inverse_N1)


class Norm(torch.autograd.Function):
    """rms_norm(x)·w."""

    @staticmethod
    def forward(ctx: Any, x_ND: Tensor, norm: Tensor, eps: float) -> Tensor:
        unit_ND, inverse_N1 = unit_rows(x_ND, eps)
        ctx.save_for_backward(unit_ND, inverse_N1, norm)
        return unit_ND * norm

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        unit_ND, inverse_N1, norm = ctx.saved_tensors
        grad_norm = torch.linalg.vecdot(grads[0], unit_ND, dim=0)
        return unit_rows_backward(grads[0] * norm, unit_ND, inverse_N1), grad_norm, None


class NormLinear(torch.autograd.Function):
    """rms_norm(x)·w, then a linear map: y = (x / rms(x)) · (W ∘ w)ᵀ + b."""

    @staticmethod
    def forward(
        ctx: Any, x_ND: Tensor, norm: Tensor, weight: Tensor, bias: Tensor | None, eps: float
    ) -> Tensor:
        unit_ND, inverse_N1 = unit_rows(x_ND, eps)
        ctx.save_for_backward(unit_ND, inverse_N1, norm, weight)
        ctx.has_bias = bias is not None
        return F.linear(unit_ND, weight * norm, bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        grad = grads[0]
        unit_ND, inverse_N1, norm, weight = ctx.saved_tensors
        grad_x = unit_rows_backward(grad @ (weight * norm), unit_ND, inverse_N1)
        grad_folded = grad.t() @ unit_ND
        grad_norm = torch.linalg.vecdot(grad_folded, weight, dim=0)
        grad_bias = grad.sum(0) if ctx.has_bias else None
        return grad_x, grad_norm, grad_folded.mul_(norm), grad_bias, None


class FeedForward(torch.autograd.Function):
    """x + down(silu(gate)·up) with gate, up = rms_norm(x)·w through one matrix."""

    @staticmethod
    def forward(ctx: Any, x_ND: Tensor, norm: Tensor, gate_up: Tensor, down: Tensor, eps: float) -> Tensor:
        unit_ND, inverse_N1 = unit_rows(x_ND, eps)
        both = F.linear(unit_ND, gate_up * norm)
        gate, up = both.chunk(2, 1)
        silu = F.silu(gate)
        inner = silu * up
        ctx.save_for_backward(unit_ND, inverse_N1, norm, gate_up, down, both, silu, inner)
        return torch.addmm(x_ND, inner, down.t())

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        grad = grads[0]
        unit_ND, inverse_N1, norm, gate_up, down, both, silu, inner = ctx.saved_tensors
        gate, up = both.chunk(2, 1)
        grad_down = grad.t() @ inner
        grad_inner = grad @ down
        grad_both = torch.empty_like(both)
        grad_gate, grad_up = grad_both.chunk(2, 1)
        torch.mul(grad_inner, silu, out=grad_up)
        torch.ops.aten.silu_backward.grad_input(grad_inner.mul_(up), gate, grad_input=grad_gate)
        grad_x = unit_rows_backward(grad_both @ (gate_up * norm), unit_ND, inverse_N1).add_(grad)
        grad_folded = grad_both.t() @ unit_ND
        grad_norm = torch.linalg.vecdot(grad_folded, gate_up, dim=0)
        return grad_x, grad_norm, grad_folded.mul_(norm), grad_down, None
