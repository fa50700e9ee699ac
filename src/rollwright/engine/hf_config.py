"""Hugging Face's config.json, read into a `DecoderConfig` and written from one."""

from __future__ import annotations

from typing import Any

from rollwright.engine.model import FAMILIES, DecoderConfig, RopeScaling
from rollwright.errors import ModelError

_CLASS_NAMES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
_NEEDED = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")


def from_hf(data: dict[str, Any]) -> DecoderConfig:
    """Read the dictionary of a config.json.

    Raises:
        ModelError: an unknown family, a missing key, or a feature that the decoder does not have.
    """
    family = data.get("model_type")
    if family not in FAMILIES:
        raise ModelError(f"unknown model family {family!r}; rollwright runs {', '.join(FAMILIES)}")
    missing = [key for key in _NEEDED if key not in data]
    if missing:
        raise ModelError(f"config.json of a {family} model lacks {', '.join(missing)}")
    _refuse(data)
    num_heads = data["num_attention_heads"]
    theta, scaling = _rope(data)
    bias = family == "qwen2" or bool(data.get("attention_bias", False))
    eos = data.get("eos_token_id")
    return DecoderConfig(
        family=family,
        vocab_size=data["vocab_size"],
        hidden_size=data["hidden_size"],
        intermediate_size=data["intermediate_size"],
        num_layers=data["num_hidden_layers"],
        num_heads=num_heads,
        num_kv_heads=data.get("num_key_value_heads") or num_heads,
        head_dim=data.get("head_dim") or data["hidden_size"] // num_heads,
        max_positions=data.get("max_position_embeddings", 2048),
        rope_theta=theta,
        rope_scaling=scaling,
        rms_eps=data.get("rms_norm_eps", 1e-6),
        tie_embeddings=bool(data.get("tie_word_embeddings", False)),
        qkv_bias=bias,
        o_bias=bias and family != "qwen2",
        qk_norm=family == "qwen3",
        bos_id=data.get("bos_token_id"),
        eos_ids=() if eos is None else tuple(eos) if isinstance(eos, list) else (eos,),
    )


def _refuse(data: dict[str, Any]) -> None:
    if data.get("hidden_act", "silu") != "silu":
        raise ModelError(f"hidden_act {data['hidden_act']!r}; only 'silu' is implemented")
    for key in ("mlp_bias", "use_sliding_window"):
        if data.get(key):
            raise ModelError(f"config.json sets {key}={data[key]!r}; only false is implemented")


def _rope(data: dict[str, Any]) -> tuple[float, RopeScaling | None]:
    """Read rotary settings, in the form of transformers 5 (rope_parameters) or the older one."""
    params = data.get("rope_parameters") or {}
    scaling = data.get("rope_scaling") or params
    theta = float(params.get("rope_theta") or data.get("rope_theta") or 10000.0)
    kind = scaling.get("rope_type") or scaling.get("type") or "default"
    if kind == "default":
        return theta, None
    if kind == "linear":
        return theta, RopeScaling("linear", float(scaling["factor"]))
    if kind == "llama3":
        return theta, RopeScaling(
            "llama3",
            float(scaling["factor"]),
            float(scaling["low_freq_factor"]),
            float(scaling["high_freq_factor"]),
            int(scaling["original_max_position_embeddings"]),
        )
    raise ModelError(f"rope scaling {kind!r}; implemented are default, linear and llama3")


def to_hf(cfg: DecoderConfig) -> dict[str, Any]:
    """Return the dictionary of a config.json that transformers 4 and 5 read."""
    eos: Any = cfg.eos_ids[0] if len(cfg.eos_ids) == 1 else list(cfg.eos_ids) or None
    data = {
        "architectures": [_CLASS_NAMES[cfg.family]],
        "model_type": cfg.family,
        "vocab_size": cfg.vocab_size,
        "hidden_size": cfg.hidden_size,
        "intermediate_size": cfg.intermediate_size,
        "num_hidden_layers": cfg.num_layers,
        "num_attention_heads": cfg.num_heads,
        "num_key_value_heads": cfg.num_kv_heads,
        "head_dim": cfg.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": cfg.max_positions,
        "rms_norm_eps": cfg.rms_eps,
        "rope_theta": cfg.rope_theta,
        "rope_scaling": _rope_to_hf(cfg.rope_scaling),
        "tie_word_embeddings": cfg.tie_embeddings,
        "attention_bias": cfg.qkv_bias and cfg.family != "qwen2",
        "bos_token_id": cfg.bos_id,
        "eos_token_id": eos,
        "torch_dtype": "float32",
    }
    if cfg.family == "qwen2":
        del data["attention_bias"]
    return data


def _rope_to_hf(scaling: RopeScaling | None) -> dict[str, Any] | None:
    if scaling is None:
        return None
    if scaling.kind == "linear":
        return {"rope_type": "linear", "factor": scaling.factor}
    return {
        "rope_type": "llama3",
        "factor": scaling.factor,
        "low_freq_factor": scaling.low_freq_factor,
        "high_freq_factor": scaling.high_freq_factor,
        "original_max_position_embeddings": scaling.original_max_positions,
    }
