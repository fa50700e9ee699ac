"""Runs a decoder through the compiled kernel. The torch twin is `rollwright.engine.forward`."""

from __future__ import annotations

import ctypes
import weakref
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rollwright.engine.model import Decoder
from rollwright.engine.native.structs import Batch, Burst, Layer, Matrix, Model, load
from rollwright.engine.pages import PAGE, PagedKV
from rollwright.engine.passes import BurstPass, Drawn, Noise, Pass
from rollwright.errors import EngineError

Floats = NDArray[np.float32]


class NativeForward:
    """Computes passes over paged keys on the CPU's cores.

    Weights are copied into the kernel's packed form by `load_weights`: call it whenever they changed.

    Args:
        model: a float32 decoder on the CPU.
        kv: where keys and values live.
        threads: cores to use.

    Raises:
        EngineError: the kernel cannot be built, or does not take this shape.
    """

    name, can_burst = "native", True

    def __init__(self, model: Decoder, kv: PagedKV, threads: int) -> None:
        self.lib = load()
        self.model, self.kv, self.cfg = model, kv, model.cfg
        self.width = int(self.lib.rw_vector_width())
        cfg = self.cfg
        if cfg.head_dim % self.width or self.lib.rw_page() != PAGE:
            raise EngineError(f"the kernel needs a head_dim that {self.width} divides; given {cfg.head_dim}")
        if model.embed.dtype != torch.float32 or model.embed.device.type != "cpu":
            raise EngineError("the kernel runs float32 weights on a CPU")
        self.pool = self.lib.rw_pool_new(threads)
        weakref.finalize(self, self.lib.rw_pool_free, self.pool)
        self.num_threads = int(self.lib.rw_pool_size(self.pool))
        self.seconds = np.zeros(3)  # layers, head, sampling
        self._packed: list[Tensor] = []
        self._buffers: dict[str, NDArray[Any]] = {}
        self._shape = (0, 0, 0)
        self.batch = Batch()
        self.load_weights()

    # ------------------------------------------------------------ weights

    @property
    def weight_bytes(self) -> int:
        """Bytes of the packed copy."""
        return sum(t.nbytes for t in self._packed)

    def load_weights(self) -> None:
        """Copy the model's weights into the packed form; buffers are kept, so it is one pass over memory."""
        self._old, self._packed = self._packed, []
        cfg, model = self.cfg, self.model
        layers = (Layer * cfg.num_layers)()
        for to, layer in zip(layers, model.layers, strict=True):
            to.input_norm, to.post_norm = self._vector(layer.input_norm), self._vector(layer.post_norm)
            if layer.q_norm is not None and layer.k_norm is not None:
                to.q_norm, to.k_norm = self._vector(layer.q_norm), self._vector(layer.k_norm)
            to.qkv = self._matrix(layer.qkv_proj.weight, layer.qkv_proj.bias)
            to.o = self._matrix(layer.o_proj.weight, layer.o_proj.bias)
            to.gate_up = self._matrix(layer.gate_up_proj.weight, None, is_gated=True)
            to.down = self._matrix(layer.down_proj.weight, None)
        rope = torch.view_as_real(model.rope(cfg.max_positions)).contiguous()
        embed = model.embed.detach()
        self._layers, self._rope, self._embed = layers, rope, embed
        self.c_model = Model(
            num_layers=cfg.num_layers,
            hidden=cfg.hidden_size,
            intermediate=cfg.intermediate_size,
            num_heads=cfg.num_heads,
            num_kv_heads=cfg.num_kv_heads,
            head_dim=cfg.head_dim,
            rms_eps=cfg.rms_eps,
            scale=cfg.head_dim**-0.5,
            embed=embed.data_ptr(),
            embed_stride=embed.stride(0),
            final_norm=self._vector(model.final_norm),
            rope=rope.data_ptr(),
            head=self._matrix(model.head, None),
            layers=layers,
        )
        self._old = []

    def release(self) -> int:
        """Free the packed weights and the scratch buffers; return the bytes of the weights."""
        freed, self._packed, self._buffers, self._shape = self.weight_bytes, [], {}, (0, 0, 0)
        return freed

    def _keep(self, num: int) -> Tensor:
        """Return the next buffer, the one of the last load where it fits."""
        at = len(self._packed)
        fits = at < len(self._old) and self._old[at].numel() == num
        self._packed.append(self._old[at] if fits else torch.zeros(num))
        return self._packed[-1]

    def _vector(self, value: Tensor) -> int:
        kept = self._keep(_up(value.numel(), 2 * self.width))
        kept[: value.numel()] = value.detach()
        return int(kept.data_ptr())

    def _matrix(self, weight: Tensor, bias: Tensor | None, is_gated: bool = False) -> Matrix:
        num_out, num_in = weight.shape
        wide = 2 * self.width
        num = 2 * _up(num_out // 2, self.width) if is_gated else _up(num_out, wide)
        packed = self._keep(num * num_in)
        source = weight.detach().contiguous()
        self.lib.rw_pack(source.data_ptr(), num_out, num_in, int(is_gated), packed.data_ptr())
        at = None if bias is None else self._vector(bias)
        return Matrix(weight=packed.data_ptr(), bias=at, num_out=num, num_in=num_in)

    # ------------------------------------------------------------ a pass

    def run(self, work: Pass, noise: Noise | None) -> tuple[Tensor, Drawn | None]:
        """Compute a pass and return the logits of its last tokens, [S, V], and what was drawn from them.

        Args:
            work: the tokens and where their keys go.
            noise: how the rows of the logits are sampled; None samples nothing. Rows with ``skip`` are left.
        """
        num_rows, num_out = work.tokens.size, work.out_rows.size
        longest = int(work.positions.max()) + 1
        self._reserve(num_rows, num_out, longest)
        batch = self.batch
        batch.num_rows, batch.num_out = num_rows, num_out
        keep = []
        for name in ("tokens", "positions", "slots", "pages", "offsets", "out_rows"):
            array = np.ascontiguousarray(getattr(work, name), np.int32)
            keep.append(array)
            setattr(batch, name, array.ctypes.data)
        assert work.table.flags.c_contiguous and work.table.dtype == np.int32
        assert work.counts.flags.c_contiguous and work.counts.dtype == np.int32
        batch.table, batch.counts = work.table.ctypes.data, work.counts.ctypes.data
        batch.width = work.table.shape[1]
        pool = self.kv.pool
        batch.kv.pool = pool.data_ptr()
        drawn = self._draw(noise, num_out) if noise is not None else None
        batch.samples = int(noise is not None)
        if self.lib.rw_forward(self.c_model, batch, self.pool):
            raise EngineError("the kernel ran out of memory")
        del keep
        return torch.from_numpy(self._buffers["logits"][:num_out, : self.cfg.vocab_size]), drawn

    def burst(self, work: BurstPass) -> Drawn:
        """Do steps until one in which a row may have ended; return what was drawn, [steps, B] each."""
        num, steps = work.tokens.size, work.words.shape[0]
        self._reserve(num, num, int(work.num_keys.max()) + steps + 1)
        batch, rows = self.batch, np.arange(num, dtype=np.int32)
        feed = [work.tokens.astype(np.int32), *np.empty((3, num), np.int32), rows, rows]
        for name, array in zip(
            ("tokens", "positions", "pages", "offsets", "slots", "out_rows"), feed, strict=True
        ):
            setattr(batch, name, array.ctypes.data)
        batch.num_rows = batch.num_out = num
        batch.table, batch.counts, batch.width = _at(work.table), _at(work.counts), work.table.shape[1]
        batch.kv.pool, batch.samples = self.kv.pool.data_ptr(), 1
        forced, skip = np.full(num, -1), np.zeros(num, np.int32)
        draw = batch.draw
        draw.num_rows, draw.temperature = num, _at(work.temperature)
        draw.forced, draw.skip = _at(forced), _at(skip)
        drawn = Drawn(np.empty((steps, num), np.int64), *np.empty((2, steps, num), np.float32))
        burst = Burst(
            num_steps=steps,
            num_keys=_at(work.num_keys),
            room=_at(work.room),
            num_pages=_at(work.num_pages),
            counts=_at(work.counts),
            is_end=_at(work.is_end),
            stop_ids=_at(work.stop_ids),
            num_stop_ids=work.stop_ids.shape[1],
            may_stop=_at(work.may_stop),
            stop_set=_at(work.stop_set),
            words=_at(work.words),
            tokens=_at(drawn.tokens),
            logps=_at(drawn.logps),
            entropies=_at(drawn.entropies),
        )
        done = self.lib.rw_burst(self.c_model, batch, burst, self.pool)
        if done < 0:
            raise EngineError("the kernel ran out of memory")
        return Drawn(drawn.tokens[:done], drawn.logps[:done], drawn.entropies[:done])

    def _draw(self, noise: Noise, num: int) -> Drawn:
        draw = self.batch.draw
        drawn = Drawn(np.empty(num, np.int64), np.empty(num, np.float32), np.empty(num, np.float32))
        self._noise = (
            np.ascontiguousarray(noise.words, np.uint32),
            np.ascontiguousarray(noise.temperature, np.float32),
            np.ascontiguousarray(noise.forced, np.int64),
            np.ascontiguousarray(noise.skip, np.int32),
        )
        draw.words, draw.temperature, draw.forced, draw.skip = (a.ctypes.data for a in self._noise)
        draw.tokens, draw.logps = drawn.tokens.ctypes.data, drawn.logps.ctypes.data
        draw.entropies, draw.num_rows = drawn.entropies.ctypes.data, num
        return drawn

    def _reserve(self, num_rows: int, num_out: int, longest: int) -> None:
        """Make the scratch buffers large enough."""
        have = self._shape
        if num_rows <= have[0] and num_out <= have[1] and longest <= have[2]:
            return
        rows = _up(max(num_rows, have[0]), 16)
        outs = _up(max(num_out, have[1]), 16)
        length = _up(max(longest, have[2]), 256)
        self._shape = (rows, outs, length)
        cfg, batch, wide = self.cfg, self.batch, 2 * self.width
        ld_x = _up(cfg.hidden_size, wide)
        ld_qkv = _up(sum(cfg.qkv_sizes), wide)
        ld_act = _up(cfg.intermediate_size, wide)
        ld_scores = length + 2 * PAGE
        group = cfg.num_heads // cfg.num_kv_heads
        shapes = {
            "x": (rows, ld_x),
            "h": (rows, ld_x),
            "qkv": (rows, ld_qkv),
            "attended": (rows, ld_qkv),
            "act": (rows, ld_act),
            "scores": (self.num_threads * group, ld_scores),
            "out_h": (outs, ld_x),
            "logits": (outs, _up(cfg.vocab_size, wide)),
        }
        self._buffers = {name: _aligned(shape) for name, shape in shapes.items()}
        for name in ("x", "h", "qkv", "attended", "act", "scores", "out_h"):
            setattr(batch, name, self._buffers[name].ctypes.data)
        batch.ld_x, batch.ld_qkv, batch.ld_act, batch.ld_scores = ld_x, ld_qkv, ld_act, ld_scores
        batch.draw.logits, batch.draw.ld = self._buffers["logits"].ctypes.data, shapes["logits"][1]
        batch.draw.vocab = cfg.vocab_size
        head = cfg.head_dim * PAGE
        batch.kv.head_stride, batch.kv.layer_stride = head, 2 * cfg.num_kv_heads * head
        batch.kv.page_stride = cfg.num_layers * 2 * cfg.num_kv_heads * head
        batch.seconds = ctypes.cast(self.seconds.ctypes.data, ctypes.POINTER(ctypes.c_double))


def _at(array: NDArray[Any]) -> int:
    """Return the address of an array that lives on in the caller."""
    assert array.flags.c_contiguous
    return int(array.ctypes.data)


def _up(num: int, multiple: int) -> int:
    return -(-num // multiple) * multiple


def _aligned(shape: tuple[int, ...]) -> Floats:
    """Return zeros that begin at a cache line."""
    num = int(np.prod(shape))
    raw = np.zeros(num + 16, np.float32)
    first = (-raw.ctypes.data // 4) % 16
    return raw[first : first + num].reshape(shape)
