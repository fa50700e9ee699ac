"""GGUF files, read through the optional ``gguf`` package and dequantised to float32."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rollwright.engine.checkpoint import fill, pairs_to_halves
from rollwright.engine.model import FAMILIES, Decoder, DecoderConfig, RopeScaling
from rollwright.errors import ModelError

_NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
_LAYER_NAMES = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def load_gguf(path: str | Path) -> Decoder:
    """Load a GGUF file of the llama, qwen2 or qwen3 architecture as a float32 decoder.

    Raises:
        ModelError: the file is missing, the gguf package is not installed, the architecture is unknown,
            or a tensor is missing or has another shape.
    """
    path = Path(path)
    reader = open_gguf(path)
    cfg = _config(reader, path)
    name_to_tensor = {tensor.name: tensor for tensor in reader.tensors}
    model = Decoder(cfg)

    def get(name: str) -> Tensor | None:
        tensor = name_to_tensor.get(_gguf_name(name))
        if tensor is None:
            return None
        value = _dequantise(tensor)
        is_rotary = name.endswith(("q_proj.weight", "k_proj.weight", "q_proj.bias", "k_proj.bias"))
        if cfg.family == "llama" and is_rotary:
            return pairs_to_halves(value, cfg.head_dim)  # llama files hold the rotary pairs side by side
        return value

    fill(model, get, str(path))
    return model


def open_gguf(path: Path) -> Any:
    """Open a GGUF file; tensors are mapped, not read.

    Raises:
        ModelError: the file is missing or broken, or the gguf package is not installed.
    """
    try:
        import gguf  # noqa: F401
    except ImportError as error:
        raise ModelError(f"{path} needs the gguf package; install rollwright[gguf]") from error
    if not path.exists():
        raise ModelError(f"no file {path}")
    facts = path.stat()
    try:
        return _reader(str(path), facts.st_mtime_ns, facts.st_size)
    except (ValueError, OSError) as error:
        raise ModelError(f"{path} cannot be read as GGUF ({error}); copy the file again") from error


@lru_cache(maxsize=1)
def _reader(path: str, changed: int, size: int) -> Any:
    """Read a file's metadata, once for its weights, tokenizer and template: it takes seconds."""
    from gguf import GGUFReader

    return GGUFReader(path)


def field_reader(reader: Any) -> Callable[..., Any]:
    """Return what gives the value of a key of the file's metadata, or a default."""

    def read(key: str, default: Any = None) -> Any:
        field = reader.get_field(key)
        return default if field is None else field.contents()

    return read


def _dequantise(tensor: Any) -> Tensor:
    from gguf.quants import dequantize

    return torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).astype("float32", copy=True))


def _gguf_name(name: str) -> str:
    if name in _NAMES:
        return _NAMES[name]
    _, _, layer, rest = name.split(".", 3)
    module, kind = rest.rsplit(".", 1)
    return f"blk.{layer}.{_LAYER_NAMES[module]}.{kind}"


def _config(reader: Any, path: Path) -> DecoderConfig:
    read = field_reader(reader)
    family = read("general.architecture")
    if family not in FAMILIES:
        raise ModelError(f"{path} holds architecture {family!r}; rollwright runs {', '.join(FAMILIES)}")
    names = {tensor.name for tensor in reader.tensors}
    if "rope_freqs.weight" in names:
        raise ModelError(
            f"{path} stretches its rotary frequencies (rope_freqs); load the safetensors instead"
        )
    num_heads = read(f"{family}.attention.head_count")
    width = read(f"{family}.embedding_length")
    eos = read("tokenizer.ggml.eos_token_id")
    vocab = next(t for t in reader.tensors if t.name == "token_embd.weight").shape[1]
    scaling = read(f"{family}.rope.scaling.type", "none")
    if scaling not in ("none", "linear"):
        raise ModelError(f"{path}: rope scaling {scaling!r}; implemented for GGUF are none and linear")
    return DecoderConfig(
        family=family,
        vocab_size=int(vocab),
        hidden_size=width,
        intermediate_size=read(f"{family}.feed_forward_length"),
        num_layers=read(f"{family}.block_count"),
        num_heads=num_heads,
        num_kv_heads=read(f"{family}.attention.head_count_kv", num_heads),
        head_dim=read(f"{family}.attention.key_length", width // num_heads),
        max_positions=read(f"{family}.context_length", 2048),
        rope_theta=float(read(f"{family}.rope.freq_base", 10000.0)),
        rope_scaling=None
        if scaling == "none"
        else RopeScaling("linear", float(read(f"{family}.rope.scaling.factor"))),
        rms_eps=float(read(f"{family}.attention.layer_norm_rms_epsilon", 1e-6)),
        tie_embeddings="output.weight" not in names,
        qkv_bias="blk.0.attn_q.bias" in names,
        o_bias="blk.0.attn_output.bias" in names,
        qk_norm=family == "qwen3",
        bos_id=read("tokenizer.ggml.bos_token_id"),
        eos_ids=() if eos is None else (int(eos),),
    )
