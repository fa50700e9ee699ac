"""Key and value slots: one row of cache per sequence, preallocated, grown in whole blocks.

Rows 0..B-1 are the sequences that decode now, so attention reads a view and copies nothing. A length
is rounded up to `KVSlots.granule` keys; what lies past a sequence's end is masked to exactly nothing,
so results do not depend on the length that a batch is padded to.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from rollwright.engine.model import DecoderConfig

_MIN_PRODUCT = 400  # below so many multiplications torch.bmm takes another kernel, with other bits


class KVSlots:
    """The cache, [layers, 2, slots, kv_heads, length, head_dim].

    Args:
        cfg: the decoder's shape.
        like: a parameter of it, for device and dtype.
    """

    def __init__(self, cfg: DecoderConfig, like: Tensor) -> None:
        self.cfg = cfg
        self.granule = 16 * -(-_MIN_PRODUCT // (16 * cfg.head_dim))
        self.device, self.dtype = like.device, like.dtype
        self._allocate(0, self.granule)

    @property
    def num_slots(self) -> int:
        return int(self.data.shape[2])

    @property
    def length(self) -> int:
        """Keys that fit into a slot."""
        return int(self.data.shape[4])

    @property
    def num_bytes(self) -> int:
        return self.data.numel() * self.data.element_size()

    @property
    def bytes_per_token(self) -> int:
        cfg = self.cfg
        return 2 * cfg.num_layers * cfg.num_kv_heads * cfg.head_dim * self.data.element_size()

    def round_up(self, length: int) -> int:
        """Return the padded length of ``length`` keys."""
        return -(-length // self.granule) * self.granule

    def reserved_length(self, length: int) -> int:
        """Return the slot length to allocate for ``length`` keys: an odd number of granules.

        Slots a power of two apart would share cache lines' places (measured: 1.3 times slower).
        """
        return (-(-length // self.granule) | 1) * self.granule

    @torch.inference_mode()
    def resize(self, num_slots: int, length: int) -> None:
        """Change the number of slots and their length, keeping what fits."""
        assert length % self.granule == 0
        old = self.data
        self._allocate(num_slots, length)
        num, length = min(num_slots, old.shape[2]), min(length, old.shape[4])
        self.data[:, :, :num, :, :length] = old[:, :, :num, :, :length]

    def release(self) -> int:
        """Free every slot and return the bytes that were freed."""
        freed = self.num_bytes
        self._allocate(0, self.granule)
        return freed

    @torch.inference_mode()
    def move(self, sources: Sequence[int], targets: Sequence[int], length: int) -> None:
        """Copy the first ``length`` keys of slots, all at once: a target may also be a source."""
        view = self.data[:, :, :, :, : self.round_up(length)]
        if len(sources) == 1:
            view[:, :, targets[0]] = view[:, :, sources[0]]
            return
        taken = view.index_select(2, torch.as_tensor(sources, device=self.device))
        view.index_copy_(2, torch.as_tensor(targets, device=self.device), taken)

    def keys(self, layer: int, num_rows: int, length: int) -> Tensor:
        """Return the keys of the first rows, a view [num_rows · kv_heads, length, head_dim]."""
        return self.data[layer, 0, :num_rows].flatten(0, 1)[:, :length]

    def values(self, layer: int, num_rows: int, length: int) -> Tensor:
        """Return the values of the first rows, a view [num_rows · kv_heads, length, head_dim]."""
        return self.data[layer, 1, :num_rows].flatten(0, 1)[:, :length]

    def places(self, slots_N: Tensor, positions_N: Tensor) -> Tensor:
        """Return where `write` puts each head's key, then value, of each token, [N · 2 · kv_heads]."""
        stride = self.cfg.num_kv_heads * self.length
        return (self._heads + (slots_N * stride + positions_N)[:, None]).flatten()

    def write(self, layer: int, places: Tensor, kv_rows: Tensor) -> None:
        """Store keys and values, [N · 2 · kv_heads, head_dim], keys of a token before its values."""
        self.data[layer].view(-1, self.cfg.head_dim).index_copy_(0, places, kv_rows)

    def _allocate(self, num_slots: int, length: int) -> None:
        """Zeros, so that what is masked is finite; on a CPU untouched pages take no memory."""
        cfg = self.cfg
        shape = (cfg.num_layers, 2, num_slots, cfg.num_kv_heads, length, cfg.head_dim)
        if self.device.type == "cpu" and self.dtype == torch.float32:
            self.data = torch.from_numpy(np.zeros(shape, np.float32))
        else:
            self.data = torch.zeros(shape, dtype=self.dtype, device=self.device)
        keys = torch.arange(cfg.num_kv_heads, device=self.device) * length
        self._heads = torch.cat([keys, keys + num_slots * cfg.num_kv_heads * length])
