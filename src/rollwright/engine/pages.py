"""The memory of keys and values: one tensor of pages, grown by doubling up to the budget."""

from __future__ import annotations

import contextlib
import mmap

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rollwright.engine.model import DecoderConfig

PAGE = 16  # places of a page


class PagedKV:
    """``pool`` [pages, layers, 2, kv_heads, head_dim · PAGE]: keys, then values.

    Keys lie [head_dim, PAGE], values [PAGE, head_dim]. With the position last in a page, scores of one
    query are sums over whole vectors of keys.

    Args:
        cfg: the decoder's shape.
        like: a parameter of it, for device and dtype.
    """

    def __init__(self, cfg: DecoderConfig, like: Tensor) -> None:
        self.cfg, self.device, self.dtype = cfg, like.device, like.dtype
        self.pool = self._zeros(0)

    @property
    def num_pages(self) -> int:
        return int(self.pool.shape[0])

    @property
    def num_bytes(self) -> int:
        return int(self.pool.nbytes)

    @property
    def bytes_per_token(self) -> int:
        cfg = self.cfg
        return 2 * cfg.num_layers * cfg.num_kv_heads * cfg.head_dim * self.pool.element_size()

    @property
    def bytes_per_page(self) -> int:
        return PAGE * self.bytes_per_token

    def grow(self, num_pages: int) -> None:
        """Make room for ``num_pages`` in all; what is there stays."""
        new = self._zeros(num_pages)
        new[: self.num_pages] = self.pool
        self.pool = new

    def release(self) -> int:
        """Free every page and return the bytes that were freed."""
        freed = self.num_bytes
        self.pool = self._zeros(0)
        return freed

    def keys(self, layer: int) -> Tensor:
        """Return a view of a layer's keys, [pages, kv_heads, head_dim, PAGE]."""
        return self.pool[:, layer, 0].unflatten(-1, (self.cfg.head_dim, PAGE))

    def values(self, layer: int) -> Tensor:
        """Return a view of a layer's values, [pages, kv_heads, PAGE, head_dim]."""
        return self.pool[:, layer, 1].unflatten(-1, (PAGE, self.cfg.head_dim))

    def _zeros(self, num_pages: int) -> Tensor:
        """Zeros: what a kernel reads past a sequence's end is masked, and must be finite for that."""
        cfg = self.cfg
        shape = (num_pages, cfg.num_layers, 2, cfg.num_kv_heads, cfg.head_dim * PAGE)
        if self.device.type == "cpu" and self.dtype == torch.float32:
            return torch.from_numpy(_mapped(shape))
        return torch.zeros(shape, dtype=self.dtype, device=self.device)


def _mapped(shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Return zeros that begin at a page of memory, in huge pages where the system has them.

    A page's keys then fill whole cache lines, and a walk over many sequences misses the table of pages less
    often. Untouched memory takes none.
    """
    num = int(np.prod(shape))
    if num == 0:
        return np.zeros(shape, np.float32)
    memory = mmap.mmap(-1, num * 4, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a system without them
            memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, np.float32).reshape(shape)
