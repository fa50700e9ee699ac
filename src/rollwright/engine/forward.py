"""The forward pass in torch: on a GPU, and where the compiled kernel cannot be had.

Exactness. The bits of a token's result depend on its own prefix and on nothing else:
- a matrix product gives a row the same bits for any number of rows from 16 up (MKL takes other kernels
  below, so the rows are padded to 16);
- each query attends as its own batch item of one product with its own keys, in decoding as in
  prefilling, so both take the same kernel; keys are padded to fixed multiples and masked to exactly 0;
- everything else works on one row at a time.
`tests/engine/test_exact.py` holds these to bit equality.

Keys are gathered from their pages into one block at every step: simple and right, but it moves them twice.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rollwright.engine.model import Decoder
from rollwright.engine.pages import PAGE, PagedKV
from rollwright.engine.passes import BurstPass, Drawn, Noise, Pass
from rollwright.engine.workspace import Weights, Workspace, product
from rollwright.errors import ModelError

_MIN_ROWS = 16
_ROW_MULTIPLE = 8  # threads split elementwise work at whole rows
_QUERY_BLOCK = 128  # queries of one sequence that share a padded key length in prefilling
_MIN_PRODUCT = 400  # below so many multiplications torch.bmm takes another kernel, with other bits


@dataclass(frozen=True, slots=True)
class AttentionBlock:
    """Queries that attend together: one of each of several sequences, or several of one.

    Args:
        rows: [T] which tokens of the pass.
        pages, offsets: [S, L] places of the sequences' keys, S being T or 1.
        bias: [T, 1, L] 0 where a query may look and -inf where not.
    """

    rows: Tensor
    pages: Tensor
    offsets: Tensor
    bias: Tensor


class TorchForward:
    """Runs a decoder over paged keys with torch's own products.

    Args:
        model: the decoder; its parameters are read at every call, so new weights need no copying.
        kv: where keys and values live.
    """

    name, can_burst = "torch", False
    weight_bytes = 0

    def __init__(self, model: Decoder, kv: PagedKV) -> None:
        if model.embed.dtype != torch.float32:
            raise ModelError(f"the engine runs float32 weights; given {model.embed.dtype}")
        self.model, self.kv, self.cfg = model, kv, model.cfg
        self.weights = Weights(model)
        self.device = model.embed.device
        self.scale = self.cfg.head_dim**-0.5
        self.num_groups = self.cfg.num_heads // self.cfg.num_kv_heads
        self.granule = PAGE * -(-_MIN_PRODUCT // (PAGE * self.cfg.head_dim))
        self._work: Workspace | None = None

    def burst(self, work: BurstPass) -> Drawn:
        """Not for this forward, which samples nothing itself."""
        raise NotImplementedError

    def load_weights(self) -> None:
        """Nothing to do: the parameters are views."""

    def release(self) -> int:
        """Nothing was copied: nothing is freed."""
        return 0

    @torch.inference_mode()
    def run(self, work: Pass, noise: Noise | None) -> tuple[Tensor, Drawn | None]:
        """Compute a pass and return the logits of its last tokens, [S, V]; drawing is left to the caller."""
        num = work.tokens.size
        space = self._space(num)
        pages, offsets = self._ids(work.pages), self._ids(work.offsets)
        blocks = self._blocks(work)
        positions = self._ids(work.positions)
        space.start(self.weights, self.model.rope(self.cfg.max_positions), self._ids(work.tokens), positions)
        shape = (num, self.cfg.num_kv_heads, self.cfg.head_dim)
        for number, layer in enumerate(self.weights.layers):
            space.norm(layer.input_norm)
            space.project(layer)
            keys, values = self.kv.keys(number), self.kv.values(number)
            keys[pages, :, :, offsets] = space.k_flat.view(shape)
            values[pages, :, offsets] = space.v_rows.view(shape)
            for block in blocks:
                self._attend(space, keys, values, block)
            space.attention_out(layer)
            space.norm(layer.post_norm)
            space.feed_forward(layer)
        space.norm(self.weights.final_norm)
        return self._logits(space, self._ids(work.out_rows)), None

    def _logits(self, space: Workspace, out_rows: Tensor) -> Tensor:
        num = out_rows.shape[0]
        hidden = torch.zeros(padded_rows(num), self.cfg.hidden_size, device=self.device)
        hidden[:num] = space.h[out_rows]
        logits = torch.empty(hidden.shape[0], self.cfg.vocab_size, device=self.device)
        product(hidden, self.weights.head, None, logits)
        return logits[:num]

    def _attend(self, space: Workspace, keys: Tensor, values: Tensor, block: AttentionBlock) -> None:
        """Let queries attend, each with each key head as a batch item of its own."""
        cfg, num, length = self.cfg, block.rows.shape[0], block.pages.shape[1]
        k, v = self._gather(keys, values, block)
        query = space.q[block.rows].view(num, cfg.num_kv_heads, self.num_groups, cfg.head_dim)
        if k.shape[0] == num:
            parts = [(query.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1), cfg.num_heads)]
        else:  # one sequence: its keys are shared, not copied, among its queries
            heads = range(cfg.num_kv_heads)
            parts = [
                (query[:, h], k[0, h].expand(num, -1, -1), v[0, h].expand(num, -1, -1), self.num_groups)
                for h in heads
            ]
        outs = []
        for q, keys_h, values_h, num_heads in parts:
            scores = torch.bmm(q, keys_h).view(num, num_heads, length)
            scores = torch.add(block.bias, scores, alpha=self.scale).view(-1, self.num_groups, length)
            out = torch.bmm(torch.softmax(scores, -1), values_h)
            outs.append(out.view(num, num_heads, cfg.head_dim))
        space.by_head[block.rows] = torch.cat(outs, 1)

    def _gather(self, keys: Tensor, values: Tensor, block: AttentionBlock) -> tuple[Tensor, Tensor]:
        """Return a block's keys, [S, kv_heads, head_dim, L], and values, [S, kv_heads, L, head_dim]."""
        # Contiguous: a product of transposed keys has other bits.
        k = keys[block.pages, :, :, block.offsets].permute(0, 2, 3, 1).contiguous()
        return k, values[block.pages, :, block.offsets].transpose(1, 2).contiguous()

    def _blocks(self, work: Pass) -> list[AttentionBlock]:
        """Sequences with one token attend together; those with more, a block of queries at a time."""
        slots, first, nums = np.unique(work.slots, return_index=True, return_counts=True)
        single = first[nums == 1]
        blocks = [self._block(work, single, work.slots[single])] if single.size else []
        for slot, row, num in zip(slots[nums > 1], first[nums > 1], nums[nums > 1], strict=True):
            for start in range(row, row + num, _QUERY_BLOCK):
                rows = np.arange(start, min(start + _QUERY_BLOCK, row + num))
                blocks.append(self._block(work, rows, np.array([slot])))
        return blocks

    def _block(self, work: Pass, rows: NDArray[np.intp], slots: NDArray[np.int32]) -> AttentionBlock:
        positions = work.positions[rows]
        length = -(-(int(positions.max()) + 1) // self.granule) * self.granule
        pages, offsets = places(work.table[slots], work.counts[slots], length)
        unseen = np.arange(length) > positions[:, None]
        bias = np.where(unseen, np.float32("-inf"), np.float32(0))[:, None]
        return AttentionBlock(
            torch.from_numpy(rows).to(self.device),
            self._ids(pages),
            self._ids(offsets),
            torch.from_numpy(bias).to(self.device),
        )

    def _ids(self, values: NDArray[np.int32]) -> Tensor:
        return torch.from_numpy(values.astype(np.int64)).to(self.device)

    def _space(self, num: int) -> Workspace:
        if self._work is None or self._work.num != num:
            self._work = self._new_space(num)
        return self._work

    def _new_space(self, num: int) -> Workspace:
        return Workspace(self.model, num, padded_rows(num))


def places(
    table: NDArray[np.int32], counts: NDArray[np.int32], length: int
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Spread pages with counts, [S, W], to one place a key: pages and offsets, [S, length], padded with 0."""
    num_slots = table.shape[0]
    runs = counts.reshape(-1).astype(np.int64)
    within = np.arange(runs.sum()) - np.repeat(np.cumsum(runs) - runs, runs)
    sizes = counts.sum(1).astype(np.int64)
    line = np.repeat(np.arange(num_slots), sizes)
    column = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    keep = column < length
    pages, offsets = np.zeros((2, num_slots, length), np.int32)
    pages[line[keep], column[keep]] = np.repeat(table.reshape(-1), runs)[keep]
    offsets[line[keep], column[keep]] = within[keep]
    return pages, offsets


def padded_rows(num: int) -> int:
    """Return how many rows ``num`` tokens take, with padding."""
    return max(_MIN_ROWS, -(-num // _ROW_MULTIPLE) * _ROW_MULTIPLE)
