"""One decoder for the Llama, Qwen2 and Qwen3 families, with fused projections.

The learner calls `Decoder.hidden_packed` and `Decoder.logits`; the decode engine reads the same
parameters. There is one set of weights in memory.

Rows of the query and key projections are stored with each rotary pair side by side, so that a rotation
is one complex product; `checkpoint` converts from and to the halves that Hugging Face files hold.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rollwright.errors import ModelError

FAMILIES = ("llama", "qwen2", "qwen3")


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """How the rotary frequencies are stretched: ``linear``, or ``llama3`` with its four numbers."""

    kind: str
    factor: float
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_positions: int = 8192


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """The shape of a decoder.

    Args:
        family: llama, qwen2 or qwen3.
        vocab_size, hidden_size, intermediate_size, num_layers, num_heads, num_kv_heads, head_dim: sizes.
        max_positions: the longest sequence.
        rope_theta: base of the rotary frequencies.
        rms_eps: epsilon of the norms.
        tie_embeddings: the output matrix is the embedding.
        qkv_bias, o_bias: biases of the attention's projections.
        qk_norm: a norm over the head dimension of queries and keys.
        eos_ids: tokens that end a text.
    """

    family: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_positions: int = 2048
    rope_theta: float = 10000.0
    rope_scaling: RopeScaling | None = None
    rms_eps: float = 1e-6
    tie_embeddings: bool = True
    qkv_bias: bool = False
    o_bias: bool = False
    qk_norm: bool = False
    bos_id: int | None = None
    eos_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.family not in FAMILIES:
            raise ModelError(f"unknown model family {self.family!r}; rollwright runs {', '.join(FAMILIES)}")
        if self.num_heads % self.num_kv_heads:
            raise ModelError(
                f"num_heads={self.num_heads} must be a multiple of num_kv_heads={self.num_kv_heads}"
            )
        if self.head_dim % 2:
            raise ModelError(f"head_dim={self.head_dim} must be even for rotary positions")

    @property
    def qkv_sizes(self) -> tuple[int, int, int]:
        """Rows of the query, key and value parts of the fused projection."""
        kv = self.num_kv_heads * self.head_dim
        return self.num_heads * self.head_dim, kv, kv

    @classmethod
    def from_hf(cls, data: dict[str, Any]) -> DecoderConfig:
        """Read the dictionary of a Hugging Face ``config.json``."""
        from rollwright.engine.hf_config import from_hf

        return from_hf(data)

    def to_hf(self) -> dict[str, Any]:
        """Return the dictionary of a Hugging Face ``config.json``."""
        from rollwright.engine.hf_config import to_hf

        return to_hf(self)


def rope_frequencies(cfg: DecoderConfig) -> Tensor:
    """Return the inverse frequencies, [head_dim / 2], float32.

    θᵢ = rope_theta^(−2i/head_dim); ``linear`` divides all by the factor; ``llama3`` divides those with a
    long wavelength and blends in between (Llama 3.1's rule).
    """
    steps = torch.arange(0, cfg.head_dim, 2, dtype=torch.int64).float() / cfg.head_dim
    inv = 1.0 / (cfg.rope_theta**steps)
    scaling = cfg.rope_scaling
    if scaling is None:
        return inv
    if scaling.kind == "linear":
        return inv / scaling.factor
    wavelength = 2 * math.pi / inv
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    smooth = (scaling.original_max_positions / wavelength - low) / (high - low)
    blended = (1 - smooth) * inv / scaling.factor + smooth * inv
    is_long = wavelength > scaling.original_max_positions / low
    is_short = wavelength < scaling.original_max_positions / high
    return torch.where(is_long, inv / scaling.factor, torch.where(is_short, inv, blended))


def rope_table(cfg: DecoderConfig, num_positions: int) -> Tensor:
    """Return exp(i·t·θ) for positions t = 0..num_positions-1, [P, head_dim / 2], complex64."""
    angles = torch.arange(num_positions).float()[:, None] * rope_frequencies(cfg)[None, :]
    return torch.complex(angles.cos(), angles.sin())


def rotate(x: Tensor, turn: Tensor) -> Tensor:
    """Apply the rotary positions to [..., head_dim], whose neighbouring pairs are rotated together.

    Args:
        x: queries or keys, in the model's order of rows (pairs side by side).
        turn: the positions' rows of `rope_table`, broadcast over heads.
    """
    wide = x if x.dtype in (torch.float32, torch.float64) else x.float()
    pairs = torch.view_as_complex(wide.unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * turn).flatten(-2).to(x.dtype)


class Block(nn.Module):
    """One layer: attention and a gated feed-forward part, each behind a norm."""

    def __init__(self, cfg: DecoderConfig) -> None:
        super().__init__()
        num_q, num_k, num_v = cfg.qkv_sizes
        self.input_norm = nn.Parameter(torch.empty(cfg.hidden_size))
        self.qkv_proj = nn.Linear(cfg.hidden_size, num_q + num_k + num_v, bias=cfg.qkv_bias)
        self.o_proj = nn.Linear(num_q, cfg.hidden_size, bias=cfg.o_bias)
        self.post_norm = nn.Parameter(torch.empty(cfg.hidden_size))
        self.gate_up_proj = nn.Linear(cfg.hidden_size, 2 * cfg.intermediate_size, bias=False)
        self.down_proj = nn.Linear(cfg.intermediate_size, cfg.hidden_size, bias=False)
        self.q_norm = nn.Parameter(torch.empty(cfg.head_dim)) if cfg.qk_norm else None
        self.k_norm = nn.Parameter(torch.empty(cfg.head_dim)) if cfg.qk_norm else None


class Decoder(nn.Module):
    """A causal decoder. Parameters are left uninitialised: use `new_model` or `load_model`."""

    def __init__(self, cfg: DecoderConfig) -> None:
        super().__init__()
        self.cfg = cfg
        self.embed = nn.Parameter(torch.empty(cfg.vocab_size, cfg.hidden_size))
        self.layers = nn.ModuleList(Block(cfg) for _ in range(cfg.num_layers))
        self.final_norm = nn.Parameter(torch.empty(cfg.hidden_size))
        self.lm_head = (
            None if cfg.tie_embeddings else nn.Parameter(torch.empty(cfg.vocab_size, cfg.hidden_size))
        )
        self._rope: Tensor | None = None

    @property
    def head(self) -> Tensor:
        """The output matrix, [V, hidden_size]."""
        return self.embed if self.lm_head is None else self.lm_head

    @property
    def num_parameters(self) -> int:
        return sum(p.numel() for p in self.parameters())

    def rope(self, num_positions: int) -> Tensor:
        """Return the rotary table for at least ``num_positions``, on the model's device."""
        table = self._rope
        if table is None or table.device != self.embed.device or table.shape[0] < num_positions:
            size = max(256, 1 << (num_positions - 1).bit_length())
            with torch.inference_mode(False):
                table = rope_table(self.cfg, size).to(self.embed.device)
            self._rope = table
        return table

    def hidden_packed(self, tokens_N: Tensor, lengths: Sequence[int]) -> Tensor:
        """Return the last hidden states of sequences packed one after another without padding.

        Args:
            tokens_N: token ids, [N] with N = sum(lengths), int64.
            lengths: the sequences' lengths, in order, each ≥ 1; positions restart at 0 in each.

        Returns:
            [N, hidden_size] after the final norm; feed it (or some of its rows) to `logits`.

        Raises:
            ModelError: the lengths do not add up, or one is longer than ``max_positions``.
        """
        from rollwright.engine.packed import Packing, packed_block

        packing = Packing.of(self, tokens_N, lengths)
        x_ND = F.embedding(tokens_N, self.embed)
        for layer in self.layers:
            x_ND = packed_block(self.cfg, layer, x_ND, packing)
        return F.rms_norm(x_ND, (self.cfg.hidden_size,), self.final_norm, self.cfg.rms_eps)

    def logits(self, hidden: Tensor) -> Tensor:
        """Return the logits, [..., V], of hidden states [..., hidden_size]."""
        return F.linear(hidden, self.head)


def new_model(cfg: DecoderConfig, seed: int) -> Decoder:
    """Return a decoder with random weights, for a warm start.

    Matrices are normal with deviation 0.02; those that write into the residual stream are divided by
    √(2·num_layers); norms are one and biases zero. The same seed gives the same weights.
    """
    model = Decoder(cfg)
    rng = torch.Generator().manual_seed(seed)
    small = 0.02 / math.sqrt(2 * cfg.num_layers)
    with torch.no_grad():
        for name, value in model.named_parameters():
            if value.ndim == 1:
                value.fill_(0.0 if name.endswith("bias") else 1.0)
            else:
                std = small if "o_proj" in name or "down_proj" in name else 0.02
                value.copy_(torch.randn(value.shape, generator=rng) * std)
    return model
