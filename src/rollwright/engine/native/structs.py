"""The kernel's structures, field by field as in decoder.c, and its functions with their types."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, c_double, c_float, c_int, c_long, c_void_p

from rollwright.engine.native.build import library
from rollwright.errors import EngineError


class Matrix(Structure):
    _fields_ = [("weight", c_void_p), ("bias", c_void_p), ("num_out", c_int), ("num_in", c_int)]


class Layer(Structure):
    _fields_ = [
        *((name, c_void_p) for name in ("input_norm", "post_norm", "q_norm", "k_norm")),
        *((name, Matrix) for name in ("qkv", "o", "gate_up", "down")),
    ]


class Model(Structure):
    _fields_ = [
        *((name, c_int) for name in ("num_layers", "hidden", "intermediate")),
        *((name, c_int) for name in ("num_heads", "num_kv_heads", "head_dim")),
        ("rms_eps", c_float),
        ("scale", c_float),
        ("embed", c_void_p),
        ("embed_stride", c_long),
        ("final_norm", c_void_p),
        ("rope", c_void_p),
        ("head", Matrix),
        ("layers", POINTER(Layer)),
    ]


class Keys(Structure):
    _fields_ = [
        ("pool", c_void_p),
        ("page_stride", c_long),
        ("layer_stride", c_long),
        ("head_stride", c_long),
    ]


class Draw(Structure):
    _fields_ = [
        ("logits", c_void_p),
        ("ld", c_long),
        ("vocab", c_int),
        *((name, c_void_p) for name in ("skip", "words", "temperature", "forced")),
        *((name, c_void_p) for name in ("tokens", "logps", "entropies")),
        ("num_rows", c_int),
    ]


class Batch(Structure):
    _fields_ = [
        ("num_rows", c_int),
        ("num_out", c_int),
        *(
            (name, c_void_p)
            for name in ("tokens", "positions", "slots", "pages", "offsets", "table", "counts")
        ),
        ("width", c_long),
        ("out_rows", c_void_p),
        ("kv", Keys),
        *((name, c_void_p) for name in ("x", "h", "qkv", "attended", "act")),
        ("ld_x", c_long),
        ("ld_qkv", c_long),
        ("ld_act", c_long),
        ("scores", c_void_p),
        ("ld_scores", c_long),
        ("out_h", c_void_p),
        ("draw", Draw),
        ("samples", c_int),
        ("seconds", POINTER(c_double)),
    ]


class Burst(Structure):
    _fields_ = [
        ("num_steps", c_int),
        *((name, c_void_p) for name in ("num_keys", "room", "num_pages", "counts", "is_end", "stop_ids")),
        ("num_stop_ids", c_long),
        *((name, c_void_p) for name in ("may_stop", "stop_set", "words", "tokens", "logps", "entropies")),
    ]


def load() -> ctypes.CDLL:
    """Return the kernel with its functions typed.

    Raises:
        EngineError: it cannot be built, or does not fit this file.
    """
    lib = library()
    lib.rw_forward.argtypes = [POINTER(Model), POINTER(Batch), c_void_p]
    lib.rw_burst.argtypes = [POINTER(Model), POINTER(Batch), POINTER(Burst), c_void_p]
    lib.rw_pack.argtypes = [c_void_p, c_int, c_int, c_int, c_void_p]
    lib.rw_pack.restype = None
    lib.rw_pool_new.argtypes, lib.rw_pool_new.restype = [c_int], c_void_p
    lib.rw_pool_size.argtypes = [c_void_p]
    lib.rw_pool_free.argtypes, lib.rw_pool_free.restype = [c_void_p], None
    sizes = {"model": Model, "batch": Batch, "layer": Layer, "burst": Burst}
    for name, struct in sizes.items():
        if getattr(lib, f"rw_sizeof_{name}")() != ctypes.sizeof(struct):
            raise EngineError(f"the kernel's {name} has another layout than rollwright expects")
    return lib
