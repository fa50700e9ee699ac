"""The floor of a decode step: its matrix products and nothing else.

For each layer the products with the query-key-value, output, gate-up and down matrices, and once the one
with the output matrix, for a batch of M tokens, into preallocated buffers. No norm, no attention, no
activation, no sampling, no cache. Each layer has weights of its own, as in the model, so that what does not
fit into a processor's cache is read from memory here too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from _competitors import now
from torch import Tensor

from rollwright.engine.model import DecoderConfig

Product = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Shape:
    """A product of [M, inner] with [inner, outer]."""

    inner: int
    outer: int


def step_shapes(cfg: DecoderConfig) -> list[Shape]:
    """Return the products of one step, in order."""
    layer = [
        Shape(cfg.hidden_size, sum(cfg.qkv_sizes)),
        Shape(cfg.qkv_sizes[0], cfg.hidden_size),
        Shape(cfg.hidden_size, 2 * cfg.intermediate_size),
        Shape(cfg.intermediate_size, cfg.hidden_size),
    ]
    return layer * cfg.num_layers + [Shape(cfg.hidden_size, cfg.vocab_size)]


def num_flops(cfg: DecoderConfig, batch: int) -> int:
    """Return the floating-point operations of one step's products, two for a multiplication and addition."""
    return sum(2 * batch * shape.inner * shape.outer for shape in step_shapes(cfg))


class Floor:
    """Times the products of a step in every layout that this torch has; the fastest layout counts.

    Args:
        cfg: the decoder's shape.
        batch: M, tokens in a step.
    """

    def __init__(self, cfg: DecoderConfig, batch: int) -> None:
        shapes = step_shapes(cfg)
        inputs = {shape.inner: torch.randn(batch, shape.inner) for shape in shapes}
        outputs = {shape.outer: torch.empty(batch, shape.outer) for shape in shapes}
        weights = [torch.randn(shape.outer, shape.inner) for shape in shapes]
        self.layout_to_products: dict[str, list[Product]] = {}
        for name, make in LAYOUTS.items():
            if name in PACKED and not PACKED[name]():
                continue
            with torch.inference_mode():
                self.layout_to_products[name] = [
                    make(inputs[s.inner], w, outputs[s.outer]) for s, w in zip(shapes, weights, strict=True)
                ]
        self.layout_to_s: dict[str, list[float]] = {name: [] for name in self.layout_to_products}

    @torch.inference_mode()
    def measure(self, seconds: float = 0.05) -> None:
        """Time every layout once more, for about so long each; call it between the repeats of the others."""
        for name, products in self.layout_to_products.items():
            _step(products)
            num, started = 0, now()
            while (spent := now() - started) < seconds or num < 3:
                _step(products)
                num += 1
            self.layout_to_s[name].append(spent / num)

    def best(self) -> tuple[str, float]:
        """Return the fastest layout and the median of its seconds a step."""
        medians = {name: float(torch.tensor(s).median()) for name, s in self.layout_to_s.items()}
        name = min(medians, key=lambda key: medians[key])
        return name, medians[name]


def _step(products: list[Product]) -> None:
    for product in products:
        product()


def _plain(x: Tensor, weight: Tensor, out: Tensor) -> Product:
    flipped = weight.t().contiguous()
    return lambda: torch.mm(x, flipped, out=out)


def _transposed(x: Tensor, weight: Tensor, out: Tensor) -> Product:
    flipped = weight.t()
    return lambda: torch.mm(x, flipped, out=out)


def _onednn(x: Tensor, weight: Tensor, out: Tensor) -> Product:
    """oneDNN's product with weights packed for this batch; it makes its own output."""
    packed = torch.ops.mkldnn._reorder_linear_weight(weight, x.shape[0])
    return lambda: torch.ops.mkldnn._linear_pointwise(x, packed, None, "none", [], "")


def _mkl(x: Tensor, weight: Tensor, out: Tensor) -> Product:
    """MKL's product with weights packed for this batch; it makes its own output."""
    num = x.shape[0]
    packed = torch.ops.mkl._mkl_reorder_linear_weight(weight, num)
    return lambda: torch.ops.mkl._mkl_linear(x, packed, weight, None, num)


LAYOUTS: dict[str, Callable[[Tensor, Tensor, Tensor], Product]] = {
    "plain": _plain,
    "transposed": _transposed,
    "onednn": _onednn,
    "mkl": _mkl,
}
PACKED = {"onednn": torch.backends.mkldnn.is_available, "mkl": torch.backends.mkl.is_available}
