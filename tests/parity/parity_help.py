"""Random padded batches, as other trainers hold them, and our stages on the same numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rollwright.stages.objective import Objective
from rollwright.stages.reduce import Reduce


@dataclass(frozen=True)
class Padded:
    """What trainers with padding hold: [B, T] each; ``mask`` 1 where a token is trained."""

    new: Tensor
    old: Tensor
    ref: Tensor
    adv: Tensor
    mask: Tensor

    @property
    def leaf(self) -> Tensor:
        """A fresh copy of ``new`` to differentiate by."""
        return self.new.clone().requires_grad_(True)


def random_batch(seed: int, with_empty_row: bool = False, spread: float = 0.5) -> Padded:
    """Return ragged rows with holes (observations), ratios that clip, and one advantage per row."""
    rng = torch.Generator().manual_seed(seed)
    num_rows, length = 6, 9

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=rng, dtype=torch.float64)

    old = -normal(num_rows, length).abs() - 0.1
    sizes = torch.randint(2, length + 1, (num_rows,), generator=rng)
    mask = (torch.arange(length) < sizes[:, None]).double()
    mask[1, 1] = 0
    if with_empty_row:
        mask[3] = 0
    adv = normal(num_rows)[:, None].expand(num_rows, length).clone()
    return Padded(
        old + spread * normal(num_rows, length), old, old + 0.3 * normal(num_rows, length), adv, mask
    )


def ours(batch: Padded, objective: Objective, reduce: Reduce) -> tuple[float, Tensor]:
    """Return loss and gradient by logp_new, [B, T], of our stages on the flat, unpadded tokens."""
    keep = batch.mask.bool()
    segment = torch.arange(keep.shape[0])[:, None].expand_as(keep)
    weight = torch.from_numpy(reduce(keep.flatten().numpy(), segment.flatten().numpy().astype(np.int64)))
    leaf = batch.leaf
    arrays = [leaf, batch.old, batch.adv, keep, batch.ref, segment]
    loss_T = objective(*(array.flatten()[keep.flatten()] for array in arrays))
    loss = (loss_T * weight[keep.flatten()]).sum()
    return loss.item(), torch.autograd.grad(loss, leaf)[0]


def same(one: tuple[float, Tensor], two: tuple[float, Tensor], tolerance: float = 1e-6) -> bool:
    """Whether loss and gradient agree."""
    close = abs(one[0] - two[0]) <= tolerance * max(1.0, abs(one[0]))
    return close and bool(torch.allclose(one[1], two[1].to(one[1].dtype), rtol=tolerance, atol=tolerance))
