"""The forward pass over packed sequences that the learner differentiates.

Linear layers run on the packed tokens, so padding costs them nothing. Attention runs per bucket of
sequences of similar length, padded to the longest of its bucket.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from rollwright.engine.model import Block, Decoder, DecoderConfig, rotate
from rollwright.errors import ModelError

_MIN_FILL = 0.75  # a bucket's share of real positions: below it padding costs more than a second call


@dataclass(frozen=True, slots=True)
class Bucket:
    """Sequences that attend in one padded call.

    Args:
        rows_BL: packed row of each padded place, [B, L]; places past the end repeat a real row.
    """

    rows_BL: Tensor


@dataclass(frozen=True, slots=True)
class Packing:
    """Where each token of a packed batch stands.

    Args:
        turn_N: rotary factors of the tokens' positions, [N, 1, head_dim / 2], complex.
        buckets: who attends with whom.
        back_N: place of each packed token in the buckets' padded places laid end to end, [N].
        equal: (B, L) where all lengths are equal, so that no row has to move.
    """

    turn_N: Tensor
    buckets: tuple[Bucket, ...]
    back_N: Tensor
    equal: tuple[int, int] | None

    @classmethod
    def of(cls, model: Decoder, tokens_N: Tensor, lengths: Sequence[int]) -> Packing:
        _check(model.cfg, tokens_N, lengths)
        device = tokens_N.device
        longest = max(lengths)
        sizes = torch.tensor(lengths)
        starts = torch.cumsum(sizes, 0) - sizes
        positions = torch.arange(tokens_N.shape[0]) - torch.repeat_interleave(starts, sizes)
        turn_N = model.rope(longest)[positions.to(device)][:, None]
        equal = (len(lengths), longest) if min(lengths) == longest else None
        buckets: list[Bucket] = []
        back_N = torch.empty(tokens_N.shape[0] if equal is None else 0, dtype=torch.int64)
        offset = 0
        for members in () if equal is not None else _bucket(lengths):
            length = max(lengths[i] for i in members)
            places = torch.arange(length)
            first = starts[members][:, None]
            rows_BL = first + torch.minimum(places, sizes[members][:, None] - 1)
            is_real = places < sizes[members][:, None]
            flat = offset + torch.arange(rows_BL.numel()).view(rows_BL.shape)
            back_N[rows_BL[is_real]] = flat[is_real]
            offset += rows_BL.numel()
            buckets.append(Bucket(rows_BL.to(device)))
        return cls(turn_N, tuple(buckets), back_N.to(device), equal)


def _check(cfg: DecoderConfig, tokens_N: Tensor, lengths: Sequence[int]) -> None:
    if not lengths or min(lengths) < 1 or sum(lengths) != tokens_N.shape[0]:
        raise ModelError(
            f"packed batch of {tokens_N.shape[0]} tokens with lengths that add up to {sum(lengths)} "
            f"(shortest {min(lengths, default=0)}); each must be at least 1 and the sum must match"
        )
    if max(lengths) > cfg.max_positions:
        raise ModelError(f"a sequence of {max(lengths)} tokens; the model's limit is {cfg.max_positions}")


def _bucket(lengths: Sequence[int]) -> list[list[int]]:
    """Group sequences, longest first, so that each group is mostly real positions."""
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    groups: list[list[int]] = []
    real = 0
    for i in order:
        longest = lengths[groups[-1][0]] if groups else 0
        if groups and real + lengths[i] >= _MIN_FILL * longest * (len(groups[-1]) + 1):
            groups[-1].append(i)
            real += lengths[i]
        else:
            groups.append([i])
            real = lengths[i]
    return groups


def packed_block(cfg: DecoderConfig, layer: Block, x_ND: Tensor, packing: Packing) -> Tensor:
    """Run one layer on packed tokens, [N, hidden_size] to [N, hidden_size]."""
    width = (cfg.hidden_size,)
    qkv = layer.qkv_proj(F.rms_norm(x_ND, width, layer.input_norm, cfg.rms_eps))
    qkv_NHd = qkv.view(x_ND.shape[0], -1, cfg.head_dim)
    num_rotated = cfg.num_heads + cfg.num_kv_heads
    qk_NHd, v_NHd = qkv_NHd.split([num_rotated, cfg.num_kv_heads], 1)
    if layer.q_norm is not None and layer.k_norm is not None:
        q, k = qk_NHd.split([cfg.num_heads, cfg.num_kv_heads], 1)
        q = F.rms_norm(q, (cfg.head_dim,), layer.q_norm, cfg.rms_eps)
        k = F.rms_norm(k, (cfg.head_dim,), layer.k_norm, cfg.rms_eps)
        qk_NHd = torch.cat([q, k], 1)
    qkv_NHd = torch.cat([rotate(qk_NHd, packing.turn_N), v_NHd], 1)
    x_ND = x_ND + layer.o_proj(_attend(cfg, qkv_NHd, packing))
    gate_up = layer.gate_up_proj(F.rms_norm(x_ND, width, layer.post_norm, cfg.rms_eps))
    gate, up = gate_up.chunk(2, -1)
    return x_ND + layer.down_proj(F.silu(gate) * up)


def _attend(cfg: DecoderConfig, qkv_NHd: Tensor, packing: Packing) -> Tensor:
    if packing.equal is not None:
        out = _sdpa(cfg, qkv_NHd.view(*packing.equal, *qkv_NHd.shape[1:]))
        return out.reshape(qkv_NHd.shape[0], -1)
    flat = qkv_NHd.flatten(1)
    outs = []
    for bucket in packing.buckets:
        padded = flat.index_select(0, bucket.rows_BL.flatten())
        out = _sdpa(cfg, padded.view(*bucket.rows_BL.shape, *qkv_NHd.shape[1:]))
        outs.append(out.flatten(0, 1).flatten(1))
    return torch.cat(outs).index_select(0, packing.back_N)


def _sdpa(cfg: DecoderConfig, qkv_BLHd: Tensor) -> Tensor:
    """Causal attention, [B, L, heads, head_dim]; right padding is never seen by a real position."""
    q, k, v = (
        x.transpose(1, 2) for x in qkv_BLHd.split([cfg.num_heads, cfg.num_kv_heads, cfg.num_kv_heads], 2)
    )
    groups = cfg.num_heads // cfg.num_kv_heads
    if groups > 1:
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
