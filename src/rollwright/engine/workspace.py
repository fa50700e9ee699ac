"""Preallocated buffers of one forward pass, with every view of them made once.

A step of a small model is a few hundred calls of a few microseconds each, so views and allocations in
the loop cost as much as the arithmetic.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rollwright.engine.model import Block, Decoder

_MAX_INNER = 640  # with several threads MKL splits contractions from 768 on, by the number of rows


class LayerWeights:
    """Views of one layer's parameters in the form that the products take. Nothing is copied."""

    def __init__(self, layer: Block) -> None:
        self.input_norm, self.post_norm = layer.input_norm.detach(), layer.post_norm.detach()
        self.q_norm = None if layer.q_norm is None else layer.q_norm.detach()
        self.k_norm = None if layer.k_norm is None else layer.k_norm.detach()
        self.qkv, self.qkv_bias = _blocks(layer.qkv_proj.weight), _detach(layer.qkv_proj.bias)
        self.o, self.o_bias = _blocks(layer.o_proj.weight), _detach(layer.o_proj.bias)
        self.gate_up, self.down = _blocks(layer.gate_up_proj.weight), _blocks(layer.down_proj.weight)


class Weights:
    """Views of a decoder's parameters, made once: optimisers write into the same memory."""

    def __init__(self, model: Decoder) -> None:
        self.embed = model.embed.detach()
        self.layers = [LayerWeights(layer) for layer in model.layers]
        self.final_norm = model.final_norm.detach()
        self.head = _blocks(model.head)


def _detach(value: Tensor | None) -> Tensor | None:
    return None if value is None else value.detach()


def _blocks(weight: Tensor) -> list[Tensor]:
    """Return the transposed weight in blocks of the inner dimension, [inner, outer] each."""
    return list(weight.detach().t().split(_MAX_INNER))


def product(x_ND: Tensor, blocks: list[Tensor], bias: Tensor | None, out: Tensor) -> None:
    """out = x · weightᵀ + bias."""
    inner = blocks[0].shape[0]
    first = x_ND if len(blocks) == 1 else x_ND[:, :inner]
    if bias is None:
        torch.mm(first, blocks[0], out=out)
    else:
        torch.addmm(bias, first, blocks[0], out=out)
    for i, block in enumerate(blocks[1:], 1):
        out.addmm_(x_ND[:, i * inner : i * inner + block.shape[0]], block)


def add_product(out: Tensor, x_ND: Tensor, blocks: list[Tensor], bias: Tensor | None) -> None:
    """out += x · weightᵀ + bias."""
    inner = blocks[0].shape[0]
    for i, block in enumerate(blocks):
        part = x_ND if len(blocks) == 1 else x_ND[:, i * inner : i * inner + block.shape[0]]
        out.addmm_(part, block)
    if bias is not None:
        out.add_(bias)


class Workspace:
    """Buffers for ``num_rows`` tokens of which the first ``num`` are real.

    Args:
        model: the decoder.
        num: real tokens.
        num_rows: tokens after padding.
    """

    def __init__(self, model: Decoder, num: int, num_rows: int) -> None:
        cfg, like = model.cfg, model.embed
        num_q, num_k, num_v = cfg.qkv_sizes
        dim, num_kv = cfg.head_dim, cfg.num_kv_heads
        self.num, self.num_rows, self.cfg = num, num_rows, cfg

        def empty(*shape: int) -> Tensor:
            return torch.empty(shape, device=like.device, dtype=like.dtype)

        self.x, self.h = empty(num_rows, cfg.hidden_size), empty(num_rows, cfg.hidden_size)
        self.size = empty(num_rows, 1)
        self.eps = torch.full((num_rows, 1), cfg.rms_eps, device=like.device, dtype=like.dtype)
        self.qkv = empty(num_rows, num_q + num_k + num_v)
        self.q_in = self.qkv[:, :num_q].unflatten(-1, (-1, dim))
        self.k_in = self.qkv[:, num_q : num_q + num_k].unflatten(-1, (-1, dim))
        pairs = torch.view_as_complex(self.qkv.unflatten(-1, (-1, dim // 2, 2)))
        self.q_pairs = pairs[:, : cfg.num_heads]
        self.kv_pairs = pairs[:, cfg.num_heads :].unflatten(1, (2, num_kv))
        self.q, kv = empty(num_rows, cfg.num_heads, dim), empty(2, num_rows, num_kv, dim)
        self.q_out = torch.view_as_complex(self.q.unflatten(-1, (-1, 2)))
        self.kv_out = torch.view_as_complex(kv.unflatten(-1, (-1, 2))).transpose(0, 1)
        self.k_flat, self.v_rows = kv[0, :num].view(-1), kv[1, :num].view(-1, dim)
        self.attended = empty(num_rows, num_q).zero_()
        self.by_head = self.attended[:num].view(num, cfg.num_heads, dim)
        self.gate_up = empty(num_rows, 2 * cfg.intermediate_size)
        self.gate, self.up = self.gate_up.chunk(2, -1)
        self.act = empty(num_rows, cfg.intermediate_size)
        self.turn_kv = torch.ones(num_rows, 2, num_kv, dim // 2, dtype=torch.complex64, device=like.device)
        self.turn = torch.empty(num_rows, dim // 2, dtype=torch.complex64, device=like.device)
        self.turn_q = self.turn[:, None]
        self.positions = torch.zeros(num_rows, dtype=torch.int64, device=like.device)
        self.tokens = torch.zeros(num_rows, dtype=torch.int64, device=like.device)
        self.real_tokens, self.real_positions = self.tokens[:num], self.positions[:num]
        self.turn_k = self.turn_kv[:, 0]

    def start(self, weights: Weights, rope: Tensor, tokens_N: Tensor, positions_N: Tensor) -> None:
        """Embed the tokens and look up the rotations; values are rotated by one, which is exact."""
        self.real_tokens.copy_(tokens_N)
        self.real_positions.copy_(positions_N)
        torch.index_select(weights.embed, 0, self.tokens, out=self.x)
        torch.index_select(rope, 0, self.positions, out=self.turn)
        self.turn_k.copy_(self.turn_q)

    def norm(self, weight: Tensor) -> None:
        """h = x / √(mean(x²) + eps) · weight."""
        torch.linalg.vector_norm(self.x, 2, -1, True, out=self.size)
        scale = 1 / self.x.shape[1]
        torch.addcmul(self.eps, self.size, self.size, value=scale, out=self.size)
        torch.mul(self.x, self.size.rsqrt_(), out=self.h)
        self.h.mul_(weight)

    def project(self, layer: LayerWeights) -> None:
        """Compute rotated queries into ``q``, rotated keys into ``k_flat``, values into ``v_rows``."""
        product(self.h, layer.qkv, layer.qkv_bias, self.qkv)
        if layer.q_norm is not None and layer.k_norm is not None:
            shape, eps = (self.cfg.head_dim,), self.cfg.rms_eps
            self.q_in.copy_(torch.nn.functional.rms_norm(self.q_in, shape, layer.q_norm, eps))
            self.k_in.copy_(torch.nn.functional.rms_norm(self.k_in, shape, layer.k_norm, eps))
        torch.mul(self.q_pairs, self.turn_q, out=self.q_out)
        torch.mul(self.kv_pairs, self.turn_kv, out=self.kv_out)

    def attention_out(self, layer: LayerWeights) -> None:
        """x += o(attended)."""
        add_product(self.x, self.attended, layer.o, layer.o_bias)

    def feed_forward(self, layer: LayerWeights) -> None:
        """x += down(silu(gate) · up) of the normed states."""
        product(self.h, layer.gate_up, None, self.gate_up)
        torch._C._nn.silu(self.gate, out=self.act)
        self.act.mul_(self.up)
        add_product(self.x, self.act, layer.down, None)
