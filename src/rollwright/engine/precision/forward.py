"""The engine's forward passes in a precision: quantised weights under any kernel, the rest under torch."""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from rollwright.engine.forward import AttentionBlock, TorchForward, padded_rows
from rollwright.engine.kernels import choose
from rollwright.engine.model import Decoder
from rollwright.engine.pages import PagedKV
from rollwright.engine.passes import BurstPass, Drawn, ForwardPass, Noise, Pass
from rollwright.engine.precision.value import Precision, quantise_weights
from rollwright.engine.workspace import LayerWeights, Workspace, add_product, product
from rollwright.errors import EngineError


class QuantisedForward:
    """Runs a forward pass over a quantised copy of a model, made again whenever new weights are published.

    Args:
        model: whose weights are copied.
        shadow: the copy that ``inner`` runs.
    """

    def __init__(self, model: Decoder, shadow: Decoder, inner: ForwardPass, precision: Precision) -> None:
        self.model, self.shadow, self.inner, self.precision = model, shadow, inner, precision
        self.name = inner.name

    @property
    def weight_bytes(self) -> int:
        """Bytes of the copy, in float32 as it is emulated, and of what the kernel packs."""
        return sum(p.nbytes for p in self.shadow.parameters()) + self.inner.weight_bytes

    @property
    def can_burst(self) -> bool:
        return self.inner.can_burst

    def load_weights(self) -> None:
        """Quantise the model's weights as they are now."""
        quantise_weights(self.model, self.shadow, self.precision)
        self.inner.load_weights()

    def release(self) -> int:
        """Free what the kernel packed; the copy stays."""
        return self.inner.release()

    def burst(self, work: BurstPass) -> Drawn:
        """Do steps until a row may have ended; see `ForwardPass`."""
        return self.inner.burst(work)

    def run(self, work: Pass, noise: Noise | None) -> tuple[Tensor, Drawn | None]:
        """Compute a pass; see `ForwardPass`."""
        return self.inner.run(work, noise)


def shadow_of(model: Decoder, precision: Precision) -> Decoder:
    """Return a frozen copy of a model with quantised weights."""
    shadow = copy.deepcopy(model).requires_grad_(False)
    quantise_weights(model, shadow, precision)
    return shadow


def new_forward(
    model: Decoder, kv: PagedKV, precision: Precision, kernel: str = "auto", threads: int | None = None
) -> QuantisedForward:
    """Return the forward pass of an engine in a precision; put it in the place of `LocalEngine.forward`.

    Weights alone run under any kernel. Formats of activations, keys or values run in torch; the compiled
    kernel has none.

    Raises:
        EngineError: ``kernel`` is ``"native"`` and more than weights has a format.
    """
    shadow = shadow_of(model, precision)
    if precision.is_plain:
        return QuantisedForward(model, shadow, choose(kernel, shadow, kv, threads), precision)
    if kernel == "native":
        raise EngineError(
            f"kernel 'native' given with {precision}; it runs formats of weights only, give 'torch' or 'auto'"
        )
    return QuantisedForward(model, shadow, RoundedForward(shadow, kv, precision), precision)


class RoundedForward(TorchForward):
    """The torch forward with its matrices' inputs, keys and values put through formats.

    Keys and values lie in memory as they were computed and are rounded when they are read: a protected window
    moves with the query, while a place of a page that sequences share never changes. So the numbers are those
    of the format, the memory is not.
    """

    def __init__(self, model: Decoder, kv: PagedKV, precision: Precision) -> None:
        super().__init__(model, kv)
        self.precision = precision
        self.layer_number = {id(layer): i for i, layer in enumerate(self.weights.layers)}

    def _new_space(self, num: int) -> Workspace:
        return _RoundedWorkspace(self.model, num, self.precision, self.layer_number)

    def _gather(self, keys: Tensor, values: Tensor, block: AttentionBlock) -> tuple[Tensor, Tensor]:
        k, v = super()._gather(keys, values, block)
        if not self.precision.kv:
            return k, v
        protected = is_protected(block.bias[:, 0] == 0, self.precision)[:, None]  # [T, 1, L]
        k = self.precision.keys(k.transpose(2, 3), protected).transpose(2, 3).contiguous()
        return k, self.precision.keys(v, protected).contiguous()


def is_protected(is_seen_TL: Tensor, precision: Precision) -> Tensor:
    """Return which keys of each query are sinks or in its window, [T, L], from those that it sees."""
    position = torch.arange(is_seen_TL.shape[1], device=is_seen_TL.device)
    query_T1 = is_seen_TL.sum(1, keepdim=True) - 1
    return (position < precision.num_sinks) | (position > query_T1 - precision.window)


class _RoundedWorkspace(Workspace):
    def __init__(self, model: Decoder, num: int, precision: Precision, layer_number: dict[int, int]) -> None:
        super().__init__(model, num, padded_rows(num))
        self.precision, self.layer_number = precision, layer_number
        for buffer in (self.h, self.attended, self.gate_up, self.act):
            buffer.zero_()  # padding must be finite

    def project(self, layer: LayerWeights) -> None:
        self._round(self.h, layer, "qkv_proj")
        super().project(layer)

    def attention_out(self, layer: LayerWeights) -> None:
        self._round(self.attended, layer, "o_proj")
        super().attention_out(layer)

    def feed_forward(self, layer: LayerWeights) -> None:
        self._round(self.h, layer, "gate_up_proj")
        product(self.h, layer.gate_up, None, self.gate_up)
        torch._C._nn.silu(self.gate, out=self.act)
        self.act.mul_(self.up)
        self._round(self.act, layer, "down_proj")
        add_product(self.x, self.act, layer.down, None)

    def _round(self, x: Tensor, layer: LayerWeights, matrix: str) -> None:
        if self.precision.activations:
            x.copy_(self.precision.activation(x, (self.layer_number[id(layer)], matrix)))
