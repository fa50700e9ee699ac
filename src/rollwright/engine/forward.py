"""The engine's forward pass: one new token per live sequence, or the tokens of a prefix.

Exactness. The bits of a token's result depend on its own prefix and on nothing else:
- a matrix product gives a row the same bits for any number of rows from 16 up (MKL takes other kernels
  below, so the rows are padded to 16);
- each query attends as its own batch item of one product with its own keys, in decoding as in
  prefilling, so both take the same kernel; keys are padded to fixed multiples and masked to exactly 0;
- everything else works on one row at a time.
`tests/engine/test_exact.py` holds these to bit equality.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rollwright.engine.kv import KVSlots
from rollwright.engine.model import Decoder
from rollwright.engine.workspace import Weights, Workspace, add_product, product
from rollwright.errors import ModelError

_MIN_ROWS = 16
_ROW_MULTIPLE = 8  # threads split elementwise work at whole rows
_QUERY_BLOCK = 128  # queries that share a padded key length in prefilling

Attend = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Job:
    """Tokens to prefill into a slot: they stand at positions ``start``, ``start + 1``, ..."""

    slot: int
    start: int
    tokens: Sequence[int]


@dataclass(slots=True)
class _Views:
    """What a decode step over ``num`` slots and ``length`` keys reads and writes, made once."""

    k: Tensor
    work: Workspace
    query: Tensor
    out: Tensor
    scores: Tensor
    by_row: Tensor
    keys: list[Tensor]
    values: list[Tensor]
    unseen: Tensor
    bias: Tensor


class Forward:
    """Runs a decoder over cached sequences.

    Args:
        model: the decoder; its parameters are read at every call, so new weights need no copying.
        kv: where keys and values live.
    """

    def __init__(self, model: Decoder, kv: KVSlots) -> None:
        if model.embed.dtype != torch.float32:
            raise ModelError(f"the engine runs float32 weights; given {model.embed.dtype}")
        self.model, self.kv, self.cfg = model, kv, model.cfg
        self.weights = Weights(model)
        self.device = model.embed.device
        self.scale = self.cfg.head_dim**-0.5
        self.num_groups = self.cfg.num_heads // self.cfg.num_kv_heads
        self._arange = torch.arange(0, device=self.device)
        self._key: tuple[int, int] | None = None
        self._views: _Views | None = None

    def decode(self, tokens_B: Tensor, positions_B: Tensor, longest: int) -> Tensor:
        """Feed one token to each of the slots 0..B-1 and return the logits, [B, V].

        Args:
            tokens_B, positions_B: the tokens and where they stand, int64.
            longest: the largest position + 1.
        """
        num = tokens_B.shape[0]
        tokens_B, positions_B = tokens_B.to(self.device), positions_B.to(self.device)
        views = self._views_of(num, self.kv.round_up(longest))
        torch.gt(
            self._range(views.unseen.shape[1])[: views.unseen.shape[1]],
            positions_B[:, None],
            out=views.unseen,
        )
        views.bias.zero_().masked_fill_(views.unseen[:, None], float("-inf"))
        places = self.kv.places(self._range(num)[:num], positions_B)

        def attend(layer: int) -> None:
            torch.bmm(views.query, views.keys[layer], out=views.scores)
            torch.add(views.bias, views.by_row, alpha=self.scale, out=views.by_row)
            torch.bmm(torch.softmax(views.scores, -1), views.values[layer], out=views.out)

        self._layers(views.work, tokens_B, positions_B, places, attend)
        views.work.norm(self.weights.final_norm)
        logits = torch.empty(views.work.num_rows, self.cfg.vocab_size, device=self.device)
        product(views.work.h, self.weights.head, None, logits)
        return logits[:num]

    def prefill(self, jobs: Sequence[Job]) -> None:
        """Compute the keys and values of the jobs' tokens; what stands before them is in the slots."""
        sizes = [len(job.tokens) for job in jobs]
        tokens_N = torch.cat([torch.as_tensor(job.tokens) for job in jobs]).to(self.device)
        positions_N = torch.cat(
            [torch.arange(j.start, j.start + n) for j, n in zip(jobs, sizes, strict=True)]
        )
        slots_N = torch.repeat_interleave(torch.tensor([j.slot for j in jobs]), torch.tensor(sizes))
        positions_N, slots_N = positions_N.to(self.device), slots_N.to(self.device)
        work = Workspace(self.model, sum(sizes), _padded(sum(sizes)))
        blocks = list(_query_blocks(jobs))
        biases = [self._bias(positions_N[b.rows], self.kv.round_up(b.end)) for b in blocks]

        def attend(layer: int) -> None:
            for block, bias in zip(blocks, biases, strict=True):
                self._attend_block(layer, work, block, bias)

        self._layers(work, tokens_N, positions_N, self.kv.places(slots_N, positions_N), attend)

    def _layers(
        self,
        work: Workspace,
        tokens_N: Tensor,
        positions_N: Tensor,
        places: tuple[Tensor, Tensor],
        attend: Attend,
    ) -> None:
        """Run every layer, storing keys and values; the states end in ``work.x``."""
        work.start(self.weights, self.model.rope(self.cfg.max_positions), tokens_N, positions_N)
        for number, layer in enumerate(self.weights.layers):
            work.norm(layer.input_norm)
            work.project(layer)
            self.kv.write(number, places, work.k_flat, work.v_rows)
            attend(number)
            add_product(work.x, work.attended, layer.o, layer.o_bias)
            work.norm(layer.post_norm)
            work.feed_forward(layer)

    def _attend_block(self, layer: int, work: Workspace, block: _QueryBlock, bias_TL: Tensor) -> None:
        """Let the queries of one sequence attend, each as its own batch item."""
        num, length = bias_TL.shape
        keys, values = self.kv.k[layer, block.slot, :, :, :length], self.kv.v[layer, block.slot, :, :length]
        for head in range(self.cfg.num_kv_heads):
            part = slice(head * self.num_groups, (head + 1) * self.num_groups)
            scores = torch.bmm(work.q[block.rows, part], keys[head].expand(num, -1, -1))
            torch.add(bias_TL[:, None], scores, alpha=self.scale, out=scores)
            work.by_head[block.rows, part] = torch.bmm(
                torch.softmax(scores, -1), values[head].expand(num, -1, -1)
            )

    def _bias(self, positions_N: Tensor, length: int) -> Tensor:
        """Return 0 where a query may look and -inf where not, [N, length]."""
        unseen = self._range(length)[:length] > positions_N[:, None]
        return torch.zeros(unseen.shape, device=self.device).masked_fill_(unseen, float("-inf"))

    def _views_of(self, num: int, length: int) -> _Views:
        if self._views is not None and self._key == (num, length) and self._views.k is self.kv.k:
            return self._views
        cfg, kv = self.cfg, self.kv
        work = self._views.work if self._views is not None else None
        if work is None or work.num != num:
            work = Workspace(self.model, num, _padded(num))
        num_items = num * cfg.num_kv_heads
        scores = torch.empty(num_items, self.num_groups, length, device=self.device)
        self._key = (num, length)
        self._views = _Views(
            k=kv.k,
            work=work,
            query=work.q[:num].view(num_items, self.num_groups, cfg.head_dim),
            out=work.attended[:num].view(num_items, self.num_groups, cfg.head_dim),
            scores=scores,
            by_row=scores.view(num, cfg.num_heads, length),
            keys=[kv.keys(i, num, length) for i in range(cfg.num_layers)],
            values=[kv.values(i, num, length) for i in range(cfg.num_layers)],
            unseen=torch.empty(num, length, dtype=torch.bool, device=self.device),
            bias=torch.empty(num, 1, length, device=self.device),
        )
        return self._views

    def _range(self, num: int) -> Tensor:
        if self._arange.shape[0] < num:
            self._arange = torch.arange(2 * num, device=self.device)
        return self._arange


@dataclass(frozen=True, slots=True)
class _QueryBlock:
    slot: int
    rows: slice
    end: int


def _query_blocks(jobs: Sequence[Job]) -> list[_QueryBlock]:
    blocks, row = [], 0
    for job in jobs:
        for first in range(0, len(job.tokens), _QUERY_BLOCK):
            num = min(_QUERY_BLOCK, len(job.tokens) - first)
            blocks.append(_QueryBlock(job.slot, slice(row, row + num), job.start + first + num))
            row += num
    return blocks


def _padded(num: int) -> int:
    return max(_MIN_ROWS, -(-num // _ROW_MULTIPLE) * _ROW_MULTIPLE)
