"""Key and value slots: one row of cache per sequence, preallocated, grown in whole blocks.

Rows 0..B-1 are the sequences that decode now, so attention reads a view and copies nothing. A length
is rounded up to `KVSlots.granule` keys; what lies past a sequence's end is masked to exactly nothing,
so results do not depend on the length that a batch is padded to. Keys are stored with the position last:
scores of few queries against such keys take half the time (measured for head_dim 32).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from rollwright.engine.model import DecoderConfig

_MIN_PRODUCT = 400  # below so many multiplications torch.bmm takes another kernel, with other bits


class KVSlots:
    """``k`` [layers, slots, kv_heads, head_dim, length]; ``v`` [layers, slots, kv_heads, length, head_dim].

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
        return int(self.v.shape[1])

    @property
    def length(self) -> int:
        """Keys that fit into a slot."""
        return int(self.v.shape[3])

    @property
    def num_bytes(self) -> int:
        return int(self.k.nbytes + self.v.nbytes)

    @property
    def bytes_per_token(self) -> int:
        cfg = self.cfg
        return 2 * cfg.num_layers * cfg.num_kv_heads * cfg.head_dim * self.v.element_size()

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
        old_k, old_v = self.k, self.v
        num, kept = min(num_slots, self.num_slots), min(length, self.length)
        self._allocate(num_slots, length)
        self.k[:, :num, ..., :kept] = old_k[:, :num, ..., :kept]
        self.v[:, :num, :, :kept] = old_v[:, :num, :, :kept]

    def release(self) -> int:
        """Free every slot and return the bytes that were freed."""
        freed = self.num_bytes
        self._allocate(0, self.granule)
        return freed

    @torch.inference_mode()
    def move(self, sources: Sequence[int], targets: Sequence[int], length: int) -> None:
        """Copy the first ``length`` keys of slots, all at once: a target may also be a source."""
        length = self.round_up(length)
        for view in (self.k[..., :length], self.v[:, :, :, :length]):
            if len(sources) == 1:
                view[:, targets[0]] = view[:, sources[0]]
            else:
                taken = view.index_select(1, torch.as_tensor(sources, device=self.device))
                view.index_copy_(1, torch.as_tensor(targets, device=self.device), taken)

    def keys(self, layer: int, num_rows: int, length: int) -> Tensor:
        """Return the keys of the first rows, a view [num_rows · kv_heads, head_dim, length]."""
        return self.k[layer, :num_rows].flatten(0, 1)[:, :, :length]

    def values(self, layer: int, num_rows: int, length: int) -> Tensor:
        """Return the values of the first rows, a view [num_rows · kv_heads, length, head_dim]."""
        return self.v[layer, :num_rows].flatten(0, 1)[:, :length]

    def wipe(self) -> None:
        """Set every key and value to zero."""
        self.k.zero_()
        self.v.zero_()

    def places(self, slots_N: Tensor, positions_N: Tensor) -> tuple[Tensor, Tensor]:
        """Return where `write` puts each number of each key and each head's value, flat."""
        first = slots_N * (self.cfg.num_kv_heads * self.length)
        k_places = self._k_rows + (first * self.cfg.head_dim + positions_N)[:, None]
        v_places = self._v_rows + (first + positions_N)[:, None]
        return k_places.flatten(), v_places.flatten()

    def write(self, layer: int, places: tuple[Tensor, Tensor], k_flat: Tensor, v_rows: Tensor) -> None:
        """Store keys, [N · kv_heads · head_dim], and values, [N · kv_heads, head_dim]."""
        self.k[layer].view(-1).index_copy_(0, places[0], k_flat)
        self.v[layer].view(-1, self.cfg.head_dim).index_copy_(0, places[1], v_rows)

    def _allocate(self, num_slots: int, length: int) -> None:
        cfg = self.cfg
        self.k = self._zeros(cfg.num_layers, num_slots, cfg.num_kv_heads, cfg.head_dim, length)
        self.v = self._zeros(cfg.num_layers, num_slots, cfg.num_kv_heads, length, cfg.head_dim)
        self._k_rows = torch.arange(cfg.num_kv_heads * cfg.head_dim, device=self.device) * length
        self._v_rows = torch.arange(cfg.num_kv_heads, device=self.device) * length

    def _zeros(self, *shape: int) -> Tensor:
        """Zeros, so that what is masked is finite; on a CPU untouched pages take no memory."""
        if self.device.type == "cpu" and self.dtype == torch.float32:
            return torch.from_numpy(np.zeros(shape, np.float32))
        return torch.zeros(shape, dtype=self.dtype, device=self.device)
