"""Engine and learner models of named accelerators and model shapes, by the roofline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rollwright.drive.virtual.engine_model import EngineModel
from rollwright.drive.virtual.model import LearnerModel
from rollwright.errors import ConfigError, UnknownName


@dataclass(frozen=True, slots=True)
class Accelerator:
    """Peak figures of one device: dense bf16 operations and bytes of memory a second, bytes of memory."""

    flops: float
    bandwidth: float
    memory: float


# From the vendors' data sheets (dense bf16, without sparsity; A800 and H800 differ in their links only).
ACCELERATORS: dict[str, Accelerator] = {
    "A100": Accelerator(312e12, 2.039e12, 80e9),  # SXM, 80 GB
    "A800": Accelerator(312e12, 2.039e12, 80e9),
    "H100": Accelerator(989.4e12, 3.35e12, 80e9),  # SXM
    "H800": Accelerator(989.4e12, 3.35e12, 80e9),
    "H20": Accelerator(148e12, 4.0e12, 96e9),
    "H200": Accelerator(989.4e12, 4.8e12, 141e9),
    "B200": Accelerator(2250e12, 8.0e12, 180e9),
    "MI300X": Accelerator(1307.4e12, 5.3e12, 192e9),
    "L40S": Accelerator(362e12, 0.864e12, 48e9),
    "RTX4090": Accelerator(165e12, 1.008e12, 24e9),
}


@dataclass(frozen=True, slots=True)
class Shape:
    """What of a model costs time and memory.

    Args:
        params: parameters that one token passes through.
        kv_bytes: bytes of keys and values of one token, all layers.
        stored: parameters in memory, if there are more (a mixture of experts); 0 is ``params``.
    """

    params: float
    kv_bytes: float
    stored: float = 0.0

    @property
    def weight_bytes(self) -> float:
        return 2 * (self.stored or self.params)


def _kv(layers: int, heads: int, dim: int) -> float:
    return 2 * 2 * layers * heads * dim


# From the models' public configurations; bf16 weights and caches.
SHAPES: dict[str, Shape] = {
    "Qwen2.5-1.5B": Shape(1.54e9, _kv(28, 2, 128)),
    "Qwen3-4B": Shape(4.02e9, _kv(36, 8, 128)),
    "Qwen2.5-7B": Shape(7.62e9, _kv(28, 4, 128)),
    "Llama-3.1-8B": Shape(8.03e9, _kv(32, 8, 128)),
    "Qwen3-8B": Shape(8.19e9, _kv(36, 8, 128)),
    "Moonlight-16B-A3B": Shape(2.9e9, 2 * 27 * (512 + 64), 16e9),  # a latent of 512 + 64 per layer
    "Qwen2.5-32B": Shape(32.8e9, _kv(64, 8, 128)),
    "Qwen2.5-72B": Shape(72.7e9, _kv(80, 8, 128)),
}

BANDWIDTH_SHARE = 0.8  # of the peak that decoding reaches; 3.3 of 4.0 TB/s were measured on an H20
FLOPS_SHARE = 0.5  # of the peak that prefill and the decode steps' products reach
TRAIN_SHARE = 0.4  # of the peak that training reaches
MEMORY_SHARE = 0.9  # of the memory that weights and caches may take
OVERHEAD_SECONDS = 0.004  # of a decode step, beside what the device computes


def roofline(
    accelerator: str, shape: str, num_workers: int = 8, num_devices: int = 1, **changes: Any
) -> EngineModel:
    """Return the engines of ``num_workers`` workers of ``num_devices`` devices each.

    A step reads the weights and every context from memory, and multiplies 2 · params for each sequence:
    step = overhead + (weights + K · kv) / bandwidth, floor = 2 · params / flops for each sequence.
    Devices of one worker share both, and lose a tenth for each doubling.

    Args:
        accelerator: a key of `ACCELERATORS`.
        shape: a key of `SHAPES`.
        changes: fields of `EngineModel` that shall be otherwise.

    Raises:
        UnknownName: no such accelerator or shape.
        ConfigError: the weights do not fit.

    Example:
        >>> engine = roofline("H800", "Qwen3-8B")
        >>> engine.kv_tokens
        377173
    """
    device, size = find("accelerator", accelerator, ACCELERATORS), find("shape of a model", shape, SHAPES)
    power = num_devices * 0.9 ** (num_devices.bit_length() - 1)
    memory = MEMORY_SHARE * device.memory * num_devices - size.weight_bytes
    if memory < size.kv_bytes:
        raise ConfigError(
            f"{shape} has {size.weight_bytes / 1e9:.0f} GB of weights, {num_devices} × {accelerator} hold"
            f" {device.memory * num_devices / 1e9:.0f} GB; give more devices to a worker"
        )
    bandwidth = BANDWIDTH_SHARE * device.bandwidth * power
    per_token = 2 * size.params / (FLOPS_SHARE * device.flops * power)
    fields: dict[str, Any] = {
        "num_workers": num_workers,
        "num_slots": 256,
        "step_seconds": OVERHEAD_SECONDS + size.weight_bytes / bandwidth,
        "sequence_seconds": 0.0,
        "kv_seconds": size.kv_bytes / bandwidth,
        "floor_seconds": per_token,
        "prefill_seconds": per_token,
        "kv_tokens": int(memory / size.kv_bytes),
    }
    return EngineModel(**{**fields, **changes})


def training(accelerator: str, shape: str, num_workers: int = 8, **changes: Any) -> LearnerModel:
    """Return a learner on ``num_workers`` devices: 8 · params operations for each token.

    Six for forward and backward, two for the logprobs that the loss compares with.

    Raises:
        UnknownName: no such accelerator or shape.
    """
    device, size = find("accelerator", accelerator, ACCELERATORS), find("shape of a model", shape, SHAPES)
    seconds = 8 * size.params / (TRAIN_SHARE * device.flops)
    fields: dict[str, Any] = {"step_seconds": 5.0, "token_seconds": seconds, "num_workers": num_workers}
    return LearnerModel(**{**fields, **changes})


def find(kind: str, name: str, known: dict[str, Any]) -> Any:
    """Return the entry of a table.

    Raises:
        UnknownName: with a suggestion.
    """
    if name not in known:
        raise UnknownName(kind, name, known)
    return known[name]
