"""GGUF files against transformers' own reader of them."""

from __future__ import annotations

import sys

import pytest
import torch
from test_decoder import theirs

from rollwright.engine.checkpoint import load_model
from rollwright.engine.gguf import _LAYER_NAMES, _NAMES, load_gguf
from rollwright.errors import ModelError

gguf = pytest.importorskip("gguf")


def write(model, path, quantise=None):
    """Write a GGUF as llama.cpp's converter does: llama's rotary rows permuted, others not."""
    cfg = model.config
    arch = cfg.model_type
    writer = gguf.GGUFWriter(str(path), arch)
    writer.add_context_length(cfg.max_position_embeddings)
    writer.add_embedding_length(cfg.hidden_size)
    writer.add_block_count(cfg.num_hidden_layers)
    writer.add_feed_forward_length(cfg.intermediate_size)
    writer.add_head_count(cfg.num_attention_heads)
    writer.add_head_count_kv(cfg.num_key_value_heads)
    head_dim = getattr(cfg, "head_dim", None) or cfg.hidden_size // cfg.num_attention_heads
    writer.add_key_length(head_dim)
    writer.add_layer_norm_rms_eps(cfg.rms_norm_eps)
    writer.add_rope_freq_base(cfg.rope_parameters["rope_theta"])
    writer.add_eos_token_id(7)
    for name, value in model.state_dict().items():
        if name == "lm_head.weight" and cfg.tie_word_embeddings:
            continue
        data = value.numpy()
        if arch == "llama" and name.endswith(("q_proj.weight", "k_proj.weight")):
            heads = data.shape[0] // head_dim
            data = data.reshape(heads, 2, head_dim // 2, -1).swapaxes(1, 2).reshape(data.shape)
        parts = name.split(".")
        theirs_name = _NAMES.get(name) or f"blk.{parts[2]}.{_LAYER_NAMES['.'.join(parts[3:-1])]}.{parts[-1]}"
        kind = gguf.GGMLQuantizationType.F32
        if quantise is not None and data.ndim == 2 and data.shape[1] % 32 == 0:
            kind, data = quantise, gguf.quants.quantize(data, quantise)
        writer.add_tensor(theirs_name, data.copy(), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize("variant", ["llama", "qwen2", "qwen3"])
def test_gguf_gives_the_logits_of_the_model_it_was_made_from(variant, tmp_path):
    """Oracle: the transformers model that was written. Broken by: leaving llama's rows permuted."""
    model = theirs(variant)
    write(model, tmp_path / "model.gguf")
    ours = load_model(tmp_path / "model.gguf")
    assert ours.cfg.eos_ids == (7,)
    tokens = torch.randint(0, 50, (60,))
    with torch.no_grad():
        got = ours.logits(ours.hidden_packed(tokens, [60]))
        torch.testing.assert_close(got, model(tokens[None]).logits[0], atol=1e-4, rtol=0)


def test_quantised_tensors_are_dequantised(tmp_path):
    """Oracle: gguf's own quantiser and dequantiser, to a part in a hundred of the weights."""
    model = theirs("llama")
    write(model, tmp_path / "model.gguf", gguf.GGMLQuantizationType.Q8_0)
    ours = load_gguf(tmp_path / "model.gguf")
    want = model.state_dict()["model.layers.0.mlp.gate_proj.weight"]
    got = ours.layers[0].gate_up_proj.weight[:48]
    assert not torch.equal(got, want)
    torch.testing.assert_close(got, want, atol=float(want.abs().max()) / 100, rtol=0)


def test_missing_package_and_file_are_named(tmp_path, monkeypatch):
    """Oracle: the messages."""
    with pytest.raises(ModelError, match="no file"):
        load_gguf(tmp_path / "none.gguf")
    (tmp_path / "bad.gguf").write_bytes(b"GARBAGE" * 20)
    with pytest.raises(ModelError, match="cannot be read as GGUF"):
        load_gguf(tmp_path / "bad.gguf")
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(ModelError, match=r"rollwright\[gguf\]"):
        load_gguf(tmp_path / "bad.gguf")
