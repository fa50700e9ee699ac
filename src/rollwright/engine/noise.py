"""The noise of `rollwright.rng` for many sequences at once, in numpy and in torch, with equal bits.

Row b of a step belongs to one stream and one position t, so it is the same in any batch. On a CPU the
numpy form is used (its logical shifts, log1p and argmax are several times faster), elsewhere the torch
form. Both produce ``log1p(-u) = -E`` for E of `rollwright.rng.exponential`.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rollwright.rng import STEP

_GOLDEN = 0x9E3779B97F4A7C15
_MIX_1, _MIX_2 = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_WORD_GOLDEN, _WORD_1, _WORD_2 = 0x9E3779B9, 0x7FEB352D, 0x846CA68B

_ONE, _THIRTY, _TWENTY_SEVEN, _THIRTY_ONE, _HALF = (np.uint64(n) for n in (1, 30, 27, 31, 32))
_GOLDEN_64, _MIX_1_64, _MIX_2_64 = np.uint64(_GOLDEN), np.uint64(_MIX_1), np.uint64(_MIX_2)

_WORD_1_32, _WORD_2_32, _FIFTEEN, _SIXTEEN = (np.uint32(n) for n in (_WORD_1, _WORD_2, 15, 16))

_index_words: NDArray[np.uint32] = np.zeros(0, np.uint32)


def step_words(streams_B: NDArray[np.int64], t_B: NDArray[np.int64]) -> NDArray[np.uint32]:
    """Return the two words that seed each row, [2, B]: `rollwright.rng.step_words` for arrays."""
    z = streams_B.view(np.uint64) + (t_B.view(np.uint64) + _ONE) * _GOLDEN_64
    z ^= z >> _THIRTY
    z *= _MIX_1_64
    z ^= z >> _TWENTY_SEVEN
    z *= _MIX_2_64
    z ^= z >> _THIRTY_ONE
    words = np.empty((2, z.shape[0]), np.uint32)
    words[0], words[1] = z >> _HALF, z
    return words


def noise_bits(words: NDArray[np.uint32], num_words: int) -> NDArray[np.uint32]:
    """Return the random words of each row, [B, V]: `rollwright.rng.noise_bits` for arrays."""
    global _index_words
    if _index_words.shape[0] < num_words:
        _index_words = np.arange(num_words, dtype=np.uint32) * np.uint32(_WORD_GOLDEN)
    x = _index_words[:num_words] + words[0][:, None]
    y = x >> _SIXTEEN
    x ^= y
    x *= _WORD_1_32
    x ^= words[1][:, None]
    x ^= np.right_shift(x, _FIFTEEN, out=y)
    x *= _WORD_2_32
    x ^= np.right_shift(x, _SIXTEEN, out=y)
    return x


def negative_exponential(bits_BV: NDArray[np.uint32]) -> NDArray[np.float32]:
    """Return log1p(-u) = -E of each word, [B, V], as in `rollwright.rng.exponential`."""
    x = bits_BV.astype(np.float32)
    x += np.float32(0.5)
    x *= -STEP
    return np.log1p(x, out=x)


def step_words_torch(streams_B: Tensor, t_B: Tensor) -> Tensor:
    """Return the two words that seed each row as int32, [2, B]: the torch twin of `step_words`."""
    z = streams_B + (t_B + 1) * _signed(_GOLDEN, 64)
    z = (z ^ _shift(z, 30, 64)) * _signed(_MIX_1, 64)
    z = (z ^ _shift(z, 27, 64)) * _signed(_MIX_2, 64)
    z = z ^ _shift(z, 31, 64)
    return torch.stack([_shift(z, 32, 64), z & 0xFFFFFFFF]).to(torch.int32)


def noise_bits_torch(words: Tensor, num_words: int) -> Tensor:
    """Return the random words of each row as int32, [B, V]: the torch twin of `noise_bits`."""
    index = torch.arange(num_words, dtype=torch.int32, device=words.device) * _signed(_WORD_GOLDEN, 32)
    x = index + words[0][:, None]
    x ^= _shift(x, 16, 32)
    x *= _signed(_WORD_1, 32)
    x ^= words[1][:, None]
    x ^= _shift(x, 15, 32)
    x *= _signed(_WORD_2, 32)
    x ^= _shift(x, 16, 32)
    return x


def negative_exponential_torch(bits_BV: Tensor) -> Tensor:
    """Return log1p(-u) = -E of each word; u has the bits of numpy's, by one rounding of exact halves."""
    high, low = _shift(bits_BV, 16, 32), bits_BV & 0xFFFF
    u = high.to(torch.float32).mul_(65536.0).add_(low.to(torch.float32)).add_(0.5)
    return torch.log1p(u.mul_(-float(STEP)))


def race(words: NDArray[np.uint32], p_BV: Tensor) -> NDArray[np.int64]:
    """Return argmin(E / p) of each row, [B]: a sample of p, which need not be normalised.

    Args:
        words: of `step_words`, [2, B].
        p_BV: probabilities ≥ 0, float32; those outside the kept set are 0 and never win.
    """
    num_words = p_BV.shape[1]
    if p_BV.device.type == "cpu":
        noise = negative_exponential(noise_bits(words, num_words))
        with np.errstate(divide="ignore"):
            noise /= p_BV.numpy()
        return noise.argmax(1)
    on_device = torch.from_numpy(words.view(np.int32)).to(p_BV.device)
    score = negative_exponential_torch(noise_bits_torch(on_device, num_words)) / p_BV
    return np.asarray(score.argmax(1).cpu().numpy())


def _signed(value: int, num_bits: int) -> int:
    return value - (1 << num_bits) if value >> (num_bits - 1) else value


def _shift(x: Tensor, by: int, num_bits: int) -> Tensor:
    """Shift right without the sign."""
    return (x >> by) & ((1 << (num_bits - by)) - 1)
