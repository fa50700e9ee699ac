"""Number formats as functions: the values that a tensor has after it went into the format and came back.

Everything is exact arithmetic on float32 (exponents by `torch.frexp`, powers of two by `torch.ldexp`), and a
block's result depends on that block alone, so that a row of activations has the same bits in any batch.
Blocks run along the last dimension; a last block that is not full is filled up with zeros.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from rollwright.errors import UnknownName

E2M1_MAX, E4M3_MAX, E6M2_MAX = 6.0, 448.0, 49152.0


def round_float(x: Tensor, mantissa: int, min_exponent: int, largest: float) -> Tensor:
    """Round to a small float: nearest, ties to the even code, saturating at ±``largest``.

    Args:
        x: any shape.
        mantissa: bits after the leading one.
        min_exponent: of the smallest normal number; below it the spacing stays.
    """
    exponent = torch.frexp(x).exponent - 1
    step = exponent.clamp_(min=min_exponent) - mantissa
    return torch.ldexp(torch.round(torch.ldexp(x, -step)), step).clamp(-largest, largest)


def round_e2m1(x: Tensor) -> Tensor:
    """Round to FP4: 0, ±0.5, ±1, ±1.5, ±2, ±3, ±4, ±6."""
    return round_float(x, 1, 0, E2M1_MAX)


def round_e4m3(x: Tensor) -> Tensor:
    """Round to FP8 E4M3 without infinities: spacing 2⁻⁹ up to 2⁻⁶, largest 448."""
    return round_float(x, 3, -6, E4M3_MAX)


def round_e6m2(x: Tensor) -> Tensor:
    """Round to HiF4's unsigned scale, from 2⁻⁴⁸ to 1.5·2¹⁵."""
    return round_float(x, 2, -48, E6M2_MAX).clamp(min=2.0**-48)


def int8_rows(x: Tensor) -> Tensor:
    """Integers -127..127 times the row's largest magnitude / 127."""
    return _scaled(x, x.abs().amax(-1, keepdim=True) / 127, torch.round)


def fp8_rows(x: Tensor) -> Tensor:
    """E4M3 with one scale a row, its largest magnitude / 448."""
    return _scaled(x, x.abs().amax(-1, keepdim=True) / E4M3_MAX, round_e4m3)


def fp8_tensor(x: Tensor) -> Tensor:
    """E4M3 with one scale for the tensor."""
    return _scaled(x, x.abs().amax() / E4M3_MAX, round_e4m3)


def fp8_blocks(x: Tensor) -> Tensor:
    """E4M3 with a scale for each 128 neighbours of a row."""
    return in_blocks(x, 128, fp8_rows)


def fp8_tiles(x_OI: Tensor) -> Tensor:
    """E4M3 with a scale for each 128 × 128 tile of a matrix."""
    tiles = _tiles(x_OI)
    scale = tiles.abs().amax((1, 3), keepdim=True) / E4M3_MAX
    rounded = _scaled(tiles, scale, round_e4m3)
    return rounded.flatten(2).flatten(0, 1)[: x_OI.shape[0], : x_OI.shape[1]]


def mxfp4(x: Tensor) -> Tensor:
    """E2M1 in blocks of 32 with a power of two as scale (OCP MX v1.0): 2^(⌊log₂ max|x|⌋ − 2), ≥ 2⁻¹²⁶."""

    def block(x: Tensor) -> Tensor:
        exponent = (torch.frexp(x.abs().amax(-1, keepdim=True)).exponent - 3).clamp(-126, 127)
        return torch.ldexp(round_e2m1(torch.ldexp(x, -exponent)), exponent)

    return in_blocks(x, 32, block)


def nvfp4(x: Tensor) -> Tensor:
    """E2M1 in blocks of 16 with E4M3 scales, under one FP32 scale for the tensor."""
    return _nvfp4(x, x.abs().amax())


def nvfp4_rows(x: Tensor) -> Tensor:
    """NVFP4 with the FP32 scale for each row, so that a row does not depend on its batch."""
    return _nvfp4(x, x.abs().amax(-1, keepdim=True)[..., None])


def _nvfp4(x: Tensor, amax: Tensor) -> Tensor:
    outer = amax / (E2M1_MAX * E4M3_MAX)

    def block(x: Tensor) -> Tensor:
        inner = round_e4m3(x.abs().amax(-1, keepdim=True) / E2M1_MAX / _not_zero(outer))
        return _scaled(x, inner * outer, round_e2m1)

    return in_blocks(x, 16, block)


def hif4(x: Tensor) -> Tensor:
    """HiF4: 64 elements ±0..1.75 in steps of 0.25 under three levels of scales, 4.5 bits a value.

    Level 1 is an E6M2 scale, max|x| / 7; level 2 doubles it for each 8 elements that reach 4 of it; level 3
    doubles that for each 4 elements that reach 2. Ties go away from zero. The makers' emulation takes the
    quotient and the reciprocal of the scale in BF16; here both are float32.
    """

    def block(x: Tensor) -> Tensor:
        parts = x.unflatten(-1, (8, 2, 4))
        max_3 = parts.abs().amax(-1, keepdim=True)
        max_2 = max_3.amax(-2, keepdim=True)
        scale = round_e6m2(max_2.amax(-3, keepdim=True) / 7)
        scale = torch.where(max_2 >= 4 * scale, 2 * scale, scale)
        scale = torch.where(max_3 >= 2 * scale, 2 * scale, scale)
        codes = torch.floor(parts.abs() / scale * 4 + 0.5).clamp_(max=7)
        return (torch.sign(parts) * codes * (scale / 4)).flatten(-3)

    return in_blocks(x, 64, block)


def min_max(x: Tensor, bits: int, group: int = 32) -> Tensor:
    """Integers 0..2^bits-1 from the smallest to the largest of each ``group`` neighbours (keys, values)."""

    def block(x: Tensor) -> Tensor:
        low = x.amin(-1, keepdim=True)
        scale = (x.amax(-1, keepdim=True) - low) / (2**bits - 1)
        return _scaled(x - low, scale, torch.round) + low

    return in_blocks(x, min(group, x.shape[-1]), block)


def in_blocks(x: Tensor, size: int, block: Callable[[Tensor], Tensor]) -> Tensor:
    """Apply ``block`` to the last dimension cut into blocks, [..., blocks, size]."""
    width = x.shape[-1]
    padded = F.pad(x, (0, -width % size)) if width % size else x
    return block(padded.unflatten(-1, (-1, size))).flatten(-2)[..., :width]


def _scaled(x: Tensor, scale: Tensor, rounded: Callable[[Tensor], Tensor]) -> Tensor:
    """Return rounded(x / scale) · scale; zero where the scale is."""
    return rounded(x / _not_zero(scale)) * scale


def _not_zero(scale: Tensor) -> Tensor:
    return torch.where(scale == 0, 1.0, scale)


def _tiles(x_OI: Tensor) -> Tensor:
    rows, columns = x_OI.shape
    padded = F.pad(x_OI, (0, -columns % 128, 0, -rows % 128))
    return padded.unflatten(1, (-1, 128)).unflatten(0, (-1, 128))


@dataclass(frozen=True, slots=True)
class Format:
    """How weights [out, in] and activations [..., in] take a format.

    Args:
        bits: for a weight, with its scales.
        weight, activation: return the values after the round trip; None leaves activations as they are.
    """

    bits: float
    weight: Callable[[Tensor], Tensor]
    activation: Callable[[Tensor], Tensor] | None


FORMATS: dict[str, Format] = {
    "int8": Format(8.0, int8_rows, None),
    "fp8": Format(8.0, fp8_tiles, fp8_blocks),
    "fp8-tensor": Format(8.0, fp8_tensor, fp8_rows),
    "nvfp4": Format(4.5, nvfp4, nvfp4_rows),
    "mxfp4": Format(4.25, mxfp4, mxfp4),
    "hif4": Format(4.5, hif4, hif4),
}


def format_of(name: str) -> Format:
    """Return the format of this name.

    Raises:
        UnknownName: there is none.
    """
    if name not in FORMATS:
        raise UnknownName("number format", name, FORMATS)
    return FORMATS[name]
