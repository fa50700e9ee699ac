"""Causal attention over packed sequences, with a backward pass of its own, for CPUs.

Short sequences attend in blocks of queries that see no key to their right, as plain matrix products whose
probabilities are kept; the heads that share a key are rows of one product. Up to 512 positions it was
measured as fast as torch's fused kernel, which recomputes, to 1.4 times as fast. Long ones use that kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rollwright.engine.model import DecoderConfig

BLOCK = 64  # queries in a block: each skips the keys after it
MAX_DENSE = 512  # positions; above it the kept probabilities cost more than they save
MIN_FILL = 0.8  # share of real positions in a bucket

_flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_flash_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


@dataclass(frozen=True, slots=True, eq=False)
class Bucket:
    """Sequences of similar length that attend in one call, padded on the right to the longest.

    Args:
        shape: (sequences, positions of the longest).
        rows: packed row of each padded place, [B·L]; None where the bucket is the whole batch in order.
            Places past a sequence's end repeat its last row: no real position sees them.
        is_used: places whose output is a packed row's, [B·L]: neither padding nor a row that another place
            stands for already; None with ``rows``.
        turn: rotary factors of the places, [B·L, 1, head_dim / 2], complex.
    """

    shape: tuple[int, int]
    rows: Tensor | None
    is_used: Tensor | None
    turn: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """Who attends with whom in a packed batch.

    Args:
        buckets: together they hold every packed row, once unless sequences share some.
        back_N: place of each packed row in the buckets' places laid end to end, [N]; None: in order.
        is_shared: a packed row may be part of several sequences.
    """

    buckets: tuple[Bucket, ...]
    back_N: Tensor | None
    is_shared: bool = False


def layout_of(table: Tensor, lengths: Sequence[int], rows: Tensor | None = None) -> Layout:
    """Group sequences into buckets.

    Args:
        table: rotary factors by position, [P, head_dim / 2], complex, P ≥ the longest length.
        lengths: of the packed sequences, each ≥ 1.
        rows: packed row of every sequence's positions, laid end to end, [sum(lengths)]: sequences that begin
            alike may share rows. None: the sequences lie one after another.
    """
    if rows is None and min(lengths) == max(lengths):
        shape = len(lengths), lengths[0]
        return Layout((Bucket(shape, None, None, table[: shape[1]].repeat(shape[0], 1)[:, None]),), None)
    sizes = torch.tensor(lengths)
    starts = torch.cumsum(sizes, 0) - sizes
    all_rows = torch.arange(int(sizes.sum())) if rows is None else rows
    back_N = torch.full((int(all_rows.max()) + 1,), -1)
    buckets, offset = [], 0
    for members in _similar(lengths):
        longest = lengths[members[0]]
        places = torch.arange(longest)
        last = sizes[members][:, None] - 1
        own = all_rows[(starts[members][:, None] + torch.minimum(places, last)).flatten()]
        is_used = _claim(back_N, own, (places <= last).flatten(), offset)
        offset += len(own)
        turn = table[:longest].repeat(len(members), 1)[:, None]
        buckets.append(Bucket((len(members), longest), own, is_used, turn))
    return Layout(tuple(buckets), back_N, rows is not None)


def _claim(back_N: Tensor, own: Tensor, is_real: Tensor, offset: int) -> Tensor:
    """Give each row that has no place yet the first of a bucket's real places; return which were given."""
    numbers = torch.arange(len(own)) + offset
    first_N = torch.full_like(back_N, offset + len(own))
    first_N.scatter_reduce_(0, own[is_real], numbers[is_real], "amin")
    is_used = is_real & (first_N[own] == numbers) & (back_N[own] < 0)
    back_N[own[is_used]] = numbers[is_used]
    return is_used


def _similar(lengths: Sequence[int]) -> list[list[int]]:
    """Group sequences, longest first, so that each group is mostly real positions."""
    groups: list[list[int]] = []
    num_real = 0
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if groups and num_real + lengths[i] >= MIN_FILL * lengths[groups[-1][0]] * (len(groups[-1]) + 1):
            groups[-1].append(i)
            num_real += lengths[i]
        else:
            groups.append([i])
            num_real = lengths[i]
    return groups


class PackedAttention(torch.autograd.Function):
    """Rotate queries and keys, attend causally within each sequence: [N, (H+2K)·hd] to [N, H·hd].

    It takes its input over: without buckets to gather, queries and keys are rotated in place.
    """

    @staticmethod
    def forward(ctx: Any, qkv: Tensor, cfg: DecoderConfig, layout: Layout) -> Tensor:
        outs, kept = [], []
        for bucket in layout.buckets:
            own = qkv if bucket.rows is None else qkv.index_select(0, bucket.rows)
            turn_(own, cfg, bucket.turn)
            attend = _Dense if bucket.shape[1] <= MAX_DENSE else _Flash
            core = attend(cfg, own.view(*bucket.shape, -1, cfg.head_dim))
            outs.append(core.out)
            kept.append(core)
        ctx.cfg, ctx.layout, ctx.kept = cfg, layout, kept
        return outs[0] if layout.back_N is None else torch.cat(outs).index_select(0, layout.back_N)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        grad = grads[0]
        cfg, layout, kept = ctx.cfg, ctx.layout, ctx.kept
        ctx.kept = None
        parts = []
        for bucket, core in zip(layout.buckets, kept, strict=True):
            own = grad
            if bucket.rows is not None and bucket.is_used is not None:
                # What the other places attended to was thrown away, so it has no gradient.
                own = grad.index_select(0, bucket.rows).mul_(bucket.is_used[:, None])
            back = core.backward(own)
            turn_(back, cfg, bucket.turn.conj())
            parts.append(back)
        if layout.back_N is None:
            return parts[0], None, None
        if layout.is_shared:
            return _summed(layout, parts), None, None
        return torch.cat(parts).index_select(0, layout.back_N), None, None


def _summed(layout: Layout, parts: Sequence[Tensor]) -> Tensor:
    """Return the gradient of every packed row: the sum over the places that read it."""
    assert layout.back_N is not None
    total = parts[0].new_zeros(len(layout.back_N), parts[0].shape[1])
    for bucket, part in zip(layout.buckets, parts, strict=True):
        assert bucket.rows is not None
        total.index_add_(0, bucket.rows, part)  # padding's is zero: nothing real read it
    return total


def turn_(qkv: Tensor, cfg: DecoderConfig, turn: Tensor) -> None:
    """Rotate the queries and keys in place, [M, (H+2K)·hd]."""
    pairs = torch.view_as_complex(qkv.view(qkv.shape[0], -1, cfg.head_dim // 2, 2))
    pairs[:, : cfg.num_heads + cfg.num_kv_heads].mul_(turn)


class _Dense:
    """Attention of one bucket by blocks of queries; heads that share a key are rows of one product."""

    def __init__(self, cfg: DecoderConfig, x_BLHd: Tensor) -> None:
        num_seqs, length, _, width = x_BLHd.shape
        self.num_kv, self.share = cfg.num_kv_heads, cfg.num_heads // cfg.num_kv_heads
        self.num_seqs, self.length, self.width = num_seqs, length, width
        self.scale = width**-0.5
        q, k, v = x_BLHd.split([cfg.num_heads, self.num_kv, self.num_kv], 2)
        self.q = self._rows(q).mul_(self.scale)
        self.k, self.v = self._rows(k), self._rows(v)
        out = torch.empty_like(self.q)
        self.weights: list[Tensor] = []
        for first in range(0, length, BLOCK):
            end = min(first + BLOCK, length)
            block = slice(first * self.share, end * self.share)
            scores = torch.bmm(self.q[:, block], self.k[:, :end].transpose(1, 2))
            scores[:, :, first:] += _after(end - first, self.share, scores.dtype)
            self.weights.append(torch.softmax(scores, -1))
            torch.bmm(self.weights[-1], self.v[:, :end], out=out[:, block])
        self.out = self._flat(out)

    def backward(self, grad: Tensor) -> Tensor:
        """Return the gradient of the rotated queries, keys and values, [B·L, (H+2K)·hd]."""
        grad_out = self._rows(grad.view(self.num_seqs, self.length, -1, self.width))
        grad_q = torch.empty_like(self.q)
        grad_k, grad_v = torch.zeros_like(self.k), torch.zeros_like(self.v)
        for first in reversed(range(0, self.length, BLOCK)):
            end = min(first + BLOCK, self.length)
            block = slice(first * self.share, end * self.share)
            weights, grad_block = self.weights.pop(), grad_out[:, block]
            grad_v[:, :end].baddbmm_(weights.transpose(1, 2), grad_block)
            grad_scores = torch.bmm(grad_block, self.v[:, :end].transpose(1, 2))
            grad_scores = torch.ops.aten._softmax_backward_data(grad_scores, weights, -1, weights.dtype)
            torch.bmm(grad_scores, self.k[:, :end], out=grad_q[:, block])
            grad_k[:, :end].baddbmm_(grad_scores.transpose(1, 2), self.q[:, block])
        return torch.cat([self._flat(part) for part in (grad_q.mul_(self.scale), grad_k, grad_v)], 1)

    def _rows(self, x_BLHd: Tensor) -> Tensor:
        """[B, L, K·share, hd] to [B·K, L·share, hd]."""
        share = x_BLHd.shape[2] // self.num_kv
        split = x_BLHd.unflatten(2, (self.num_kv, share)).permute(0, 2, 1, 3, 4)
        return split.reshape(self.num_seqs * self.num_kv, self.length * share, self.width)

    def _flat(self, rows: Tensor) -> Tensor:
        """[B·K, L·share, hd] to [B·L, K·share·hd]."""
        split = rows.view(self.num_seqs, self.num_kv, self.length, -1, self.width).permute(0, 2, 1, 3, 4)
        return split.reshape(self.num_seqs * self.length, -1)


def _after(size: int, share: int, dtype: torch.dtype) -> Tensor:
    """Return −inf where a key comes after the query, [size·share, size]."""
    is_after = torch.ones(size, size, dtype=torch.bool).triu_(1)
    return torch.zeros(size, size, dtype=dtype).masked_fill_(is_after, -torch.inf).repeat_interleave(share, 0)


class _Flash:
    """Attention of one bucket by torch's fused CPU kernel, which keeps no probabilities."""

    def __init__(self, cfg: DecoderConfig, x_BLHd: Tensor) -> None:
        self.cfg, self.share = cfg, cfg.num_heads // cfg.num_kv_heads
        q, k, v = x_BLHd.transpose(1, 2).split([cfg.num_heads, cfg.num_kv_heads, cfg.num_kv_heads], 1)
        self.q = q
        self.k, self.v = (part.repeat_interleave(self.share, 1) for part in (k, v))
        self.attended, self.logsumexp = _flash(self.q, self.k, self.v, 0.0, True)
        self.out = self.attended.transpose(1, 2).reshape(-1, cfg.num_heads * cfg.head_dim)

    def backward(self, grad: Tensor) -> Tensor:
        """Return the gradient of the rotated queries, keys and values, [B·L, (H+2K)·hd]."""
        num_seqs, _, length, width = self.q.shape
        grad_out = grad.view(num_seqs, length, -1, width).transpose(1, 2)
        sides = (self.q, self.k, self.v, self.attended, self.logsumexp)
        grad_q, grad_k, grad_v = _flash_backward(grad_out, *sides, 0.0, True)
        parts = [grad_q, *(part.unflatten(1, (-1, self.share)).sum(2) for part in (grad_k, grad_v))]
        return torch.cat([part.transpose(1, 2) for part in parts], 2).flatten(0, 1).flatten(1)
