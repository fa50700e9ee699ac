"""A precision: which parts of a forward pass go through which format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from rollwright.engine.model import Decoder
from rollwright.engine.precision.formats import format_of, in_blocks, min_max
from rollwright.errors import ConfigError, UnknownName

KV_KINDS = ("", "int8", "int4", "int4-protected")
MATRICES = ("qkv_proj", "o_proj", "gate_up_proj", "down_proj")
Place = tuple[int, str]  # (layer, one of MATRICES): the input of that matrix


@dataclass(frozen=True, slots=True)
class Precision:
    """Formats of the four matrices of each layer, of their inputs, and of keys and values.

    Embeddings, norms, biases, the output matrix and the attention's own arithmetic stay float32.

    Args:
        weights, activations: a name of `FORMATS`, or empty for float32.
        kv: ``"int8"``, ``"int4"``, or ``"int4-protected"``: int8 for the first ``num_sinks`` positions and
            the last ``window``, int4 for the rest, which were int8 before (KV4-RL).
        residual: what of an input's error x − Q(x) is added back, in the same format: ``"2:4"`` the two
            largest of each four neighbours (Rollout-ResQ); a number in (0, 1] that share of the channels,
            those with the largest mean squared error on some text (QUADS, `calibrated`); empty nothing.
        num_sinks, window: positions, ≥ 0.
        channels: by place, the compensated channels' numbers; made by `calibrated`.

    Raises:
        UnknownName, ConfigError: no such format, or a residual that is neither pattern nor share.
    """

    weights: str = ""
    activations: str = ""
    kv: str = ""
    residual: str = ""
    num_sinks: int = 4
    window: int = 16
    channels: Mapping[Place, Tensor] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        for name in (self.weights, self.activations):
            if name:
                format_of(name)
        if self.activations and format_of(self.activations).activation is None:
            raise ConfigError(
                f"activations given as {self.activations!r}, which is for weights only; expected another"
            )
        if self.kv not in KV_KINDS:
            raise UnknownName("format of keys and values", self.kv, [k for k in KV_KINDS if k])
        if self.residual and not self.activations:
            raise ConfigError(f"residual {self.residual!r} given without activations; name their format")
        if self.residual and not self.is_pattern:
            _share(self.residual)

    @property
    def is_plain(self) -> bool:
        """Nothing but weights is in another format, so that any kernel can run it."""
        return not self.activations and not self.kv

    @property
    def is_pattern(self) -> bool:
        return self.residual == "2:4"

    @property
    def needs_channels(self) -> bool:
        """Whether `calibrated` has to choose channels first."""
        return bool(self.residual) and not self.is_pattern and not self.channels

    def weight(self, value_OI: Tensor) -> Tensor:
        """Return a matrix [out, in] as the format gives it back."""
        return format_of(self.weights).weight(value_OI) if self.weights else value_OI

    def activation(self, x: Tensor, place: Place) -> Tensor:
        """Return an input [..., in] of a matrix as the products see it: Q(x) + Q(S(x − Q(x)))."""
        if not self.activations:
            return x
        quantise = format_of(self.activations).activation
        assert quantise is not None
        rounded = quantise(x)
        if not self.residual:
            return rounded
        error = x - rounded
        if self.is_pattern:
            return rounded + quantise(largest_two_of_four(error))
        if place not in self.channels:
            raise ConfigError(f"residual {self.residual!r} without channels for {place}; call calibrated()")
        channels = self.channels[place]
        correction = quantise(error.index_select(-1, channels))
        return rounded.index_add(-1, channels, correction)

    def keys(self, x: Tensor, is_protected: Tensor) -> Tensor:
        """Return keys or values [..., head_dim] as attention sees them.

        Args:
            is_protected: [...], broadcast: sinks and the window, for ``"int4-protected"``.
        """
        if not self.kv:
            return x
        if self.kv == "int4":
            return min_max(x, 4)
        fine = min_max(x, 8)
        if self.kv == "int8":
            return fine
        return torch.where(is_protected[..., None], fine, min_max(fine, 4))


def largest_two_of_four(x: Tensor) -> Tensor:
    """Keep the two largest magnitudes of each four neighbours, the earlier of equal ones; others are 0."""

    def block(x: Tensor) -> Tensor:
        order = torch.sort(x.abs(), dim=-1, descending=True, stable=True).indices[..., :2]
        keep = torch.zeros_like(x, dtype=torch.bool).scatter(-1, order, True)
        return torch.where(keep, x, 0.0)

    return in_blocks(x, 4, block)


def num_channels(residual: str, width: int) -> int:
    """Return how many of ``width`` channels a share stands for, at least one."""
    return max(1, round(_share(residual) * width))


def quantise_weights(source: Decoder, target: Decoder, precision: Precision) -> None:
    """Write the source's parameters into the target's, the layers' matrices after their round trip."""
    named = {f"layers.{i}.{name}.weight" for i in range(len(source.layers)) for name in MATRICES}
    with torch.no_grad():
        for (name, value), to in zip(source.named_parameters(), target.parameters(), strict=True):
            to.copy_(precision.weight(value) if name in named else value)


def _share(residual: str) -> float:
    try:
        share = float(residual)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise ConfigError(f"residual: given {residual!r}, expected '2:4' or a share of channels in (0, 1]")
    return share
