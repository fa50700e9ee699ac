"""Which forward pass an engine runs: the compiled kernel where it can be had, else torch."""

from __future__ import annotations

import logging
import os

import torch

from rollwright.engine.forward import TorchForward
from rollwright.engine.model import Decoder
from rollwright.engine.pages import PagedKV
from rollwright.engine.passes import ForwardPass
from rollwright.errors import EngineError

KERNELS = ("auto", "native", "torch")

_log = logging.getLogger("rollwright.engine")
_told: set[str] = set()


def choose(kernel: str, model: Decoder, kv: PagedKV, threads: int | None) -> ForwardPass:
    """Return the forward pass for a model.

    Args:
        kernel: ``native``, ``torch``, or ``auto``: native where it can be built and fits, else torch with
            one warning. The environment variable ROLLWRIGHT_KERNEL stands in for ``auto``.
        threads: cores for the native kernel; None takes torch's number.

    Raises:
        EngineError: the name is unknown, or ``native`` cannot be had.
    """
    if kernel == "auto":
        kernel = os.environ.get("ROLLWRIGHT_KERNEL", "auto")
    if kernel not in KERNELS:
        raise EngineError(f"unknown kernel {kernel!r}; give one of {', '.join(KERNELS)}")
    if kernel == "torch" or (kernel == "auto" and model.embed.device.type != "cpu"):
        return TorchForward(model, kv)
    from rollwright.engine.native.forward import NativeForward

    try:
        return NativeForward(model, kv, torch.get_num_threads() if threads is None else threads)
    except EngineError as error:
        if kernel == "native":
            raise
        if str(error) not in _told:
            _told.add(str(error))
            _log.warning("the engine runs on torch, several times slower: %s", error)
        return TorchForward(model, kv)
