"""GGUF files, read through the optional ``gguf`` package and dequantised to float32."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from rollwright.engine.checkpoint import fill, pairs_to_halves
from rollwright.engine.gguf_file import GgufFile
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
    _check_package(path)
    file = GgufFile(path)
    cfg = _config(file, path)
    model = Decoder(cfg)

    def get(name: str) -> Tensor | None:
        theirs = _gguf_name(name)
        if theirs not in file.tensors:
            return None
        value = torch.from_numpy(file.tensor(theirs))
        is_rotary = name.endswith(("q_proj.weight", "k_proj.weight", "q_proj.bias", "k_proj.bias"))
        if cfg.family == "llama" and is_rotary:
            return pairs_to_halves(value, cfg.head_dim)  # llama files hold the rotary pairs side by side
        return value

    fill(model, get, str(path))
    return model


def _check_package(path: Path) -> None:
    """Raise unless the package that knows the quantised formats is there."""
    try:
        import gguf  # noqa: F401
    except ImportError as error:
        raise ModelError(f"{path} needs the gguf package; install rollwright[gguf]") from error


def _gguf_name(name: str) -> str:
    if name in _NAMES:
        return _NAMES[name]
    _, _, layer, rest = name.split(".", 3)
    module, kind = rest.rsplit(".", 1)
    return f"blk.{layer}.{_LAYER_NAMES[module]}.{kind}"


def _config(file: GgufFile, path: Path) -> DecoderConfig:
    read = file.fields.get
    family = read("general.architecture")
    if family not in FAMILIES:
        raise ModelError(f"{path} holds architecture {family!r}; rollwright runs {', '.join(FAMILIES)}")
    names = file.tensors
    if "rope_freqs.weight" in names:
        raise ModelError(
            f"{path} stretches its rotary frequencies (rope_freqs); load the safetensors instead"
        )
    num_heads = read(f"{family}.attention.head_count")
    width = read(f"{family}.embedding_length")
    eos = read("tokenizer.ggml.eos_token_id")
    if "token_embd.weight" not in names:
        raise ModelError(f"{path} holds no weights (no tensor 'token_embd.weight'); give a whole model")
    vocab = names["token_embd.weight"].shape[0]
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
