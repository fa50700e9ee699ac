"""The learner's forward in the precision of the rollouts, with straight-through gradients (Jet-RL, QaRL)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rollwright.engine.model import Block, Decoder
from rollwright.engine.packed import Packing, packed_block
from rollwright.engine.precision.value import MATRICES, Place, Precision, num_channels
from rollwright.errors import ConfigError

Observe = Callable[[Place, Tensor], None]


class StraightThrough(torch.autograd.Function):
    """Values of the second argument, gradient of the first."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, rounded: Tensor) -> Tensor:
        return rounded.view_as(rounded)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return grads[0], None


class _Linear:
    """A linear layer whose weights and inputs go through formats."""

    def __init__(self, inner: nn.Linear, place: Place, precision: Precision, observe: Observe | None) -> None:
        self.inner, self.place, self.precision, self.observe = inner, place, precision, observe

    def __call__(self, x: Tensor) -> Tensor:
        if self.observe is not None:
            self.observe(self.place, x)
        with torch.no_grad():
            rounded_x = self.precision.activation(x, self.place)
            rounded_weight = self.precision.weight(self.inner.weight)
        weight = StraightThrough.apply(self.inner.weight, rounded_weight)
        return F.linear(StraightThrough.apply(x, rounded_x), weight, self.inner.bias)


class _Layer:
    """What `packed_block` reads of a layer, with the four matrices replaced."""

    def __init__(self, layer: Block, number: int, precision: Precision, observe: Observe | None) -> None:
        self.input_norm, self.post_norm = layer.input_norm, layer.post_norm
        self.q_norm, self.k_norm = layer.q_norm, layer.k_norm
        for name in MATRICES:
            setattr(self, name, _Linear(getattr(layer, name), (number, name), precision, observe))


def hidden_packed(
    model: Decoder,
    precision: Precision,
    tokens_N: Tensor,
    lengths: Sequence[int],
    rows: Tensor | None = None,
    observe: Observe | None = None,
) -> Tensor:
    """Return the last hidden states of packed sequences, [N, hidden_size], in a precision.

    The gradient is that of the same computation with each rounding taken as the identity.

    Args:
        model: float32 master weights.
        precision: of weights and activations; keys and values have no straight-through form here.
        tokens_N, lengths, rows: as `rollwright.learn.backbone.hidden_packed` takes them.
        observe: is shown the input of each matrix before it is rounded.

    Raises:
        ConfigError: the precision has a format for keys and values.
    """
    if precision.kv:
        raise ConfigError(
            f"kv {precision.kv!r} given for the learner's forward, which computes keys in float32; give "
            "weights and activations only, and correct for the rest"
        )
    if rows is not None:
        first = torch.empty_like(tokens_N).scatter_(0, rows, torch.arange(len(rows), device=rows.device))
        return hidden_packed(model, precision, tokens_N[rows], lengths, None, observe)[first]
    packing = Packing.of(model, tokens_N, lengths)
    x_ND = F.embedding(tokens_N, model.embed)
    for number, layer in enumerate(model.layers):
        assert isinstance(layer, Block)
        x_ND = packed_block(
            model.cfg,
            _Layer(layer, number, precision, observe),  # type: ignore[arg-type]
            x_ND,
            packing,
        )
    return F.rms_norm(x_ND, (model.cfg.hidden_size,), model.final_norm, model.cfg.rms_eps)


@torch.no_grad()
def calibrated(precision: Precision, model: Decoder, texts: Sequence[Sequence[int]]) -> Precision:
    """Choose the channels whose error is added back: the largest mean squared error over some texts.

    Args:
        precision: with ``residual`` a share of the channels; any other is returned as it is.
        texts: token ids, each at least one.
    """
    if not precision.needs_channels:
        return precision
    plain = replace(precision, residual="", kv="")
    errors: dict[Place, Tensor] = {}

    def observe(place: Place, x: Tensor) -> None:
        errors[place] = (x - plain.activation(x, place)).square().mean(0)

    tokens_N = torch.tensor([token for text in texts for token in text], device=model.embed.device)
    hidden_packed(model, plain, tokens_N, [len(text) for text in texts], observe=observe)
    channels = {
        place: error.topk(num_channels(precision.residual, error.numel())).indices.sort().values
        for place, error in errors.items()
    }
    return replace(precision, channels=channels)
