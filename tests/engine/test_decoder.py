"""The decoder against transformers, on random weights of each family."""

from __future__ import annotations

import json

import pytest
import torch
from engine_help import characters, config, lively_model
from safetensors.torch import load_file, save_file

from rollwright.engine.checkpoint import load_config, load_model, load_tokenizer, save_model
from rollwright.engine.model import DecoderConfig, new_model
from rollwright.errors import ModelError

transformers = pytest.importorskip("transformers")

SIZES = {
    "vocab_size": 50,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 5e5,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
VARIANTS = {
    "llama": ("LlamaConfig", {}),
    "llama-bias-rope3": ("LlamaConfig", {"attention_bias": True, "rope_parameters": LLAMA3_ROPE}),
    "qwen2": ("Qwen2Config", {"tie_word_embeddings": True}),
    "qwen3": ("Qwen3Config", {"head_dim": 24, "tie_word_embeddings": True}),
    "qwen3-mha": ("Qwen3Config", {"head_dim": 8, "num_key_value_heads": 4}),
}


def theirs(variant: str, seed: int = 0):
    torch.manual_seed(seed)
    name, changes = VARIANTS[variant]
    model = transformers.AutoModelForCausalLM.from_config(getattr(transformers, name)(**(SIZES | changes)))
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.1)
    return model.eval()


@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_agree_with_transformers(variant, tmp_path):
    """Oracle: transformers' own implementation. Broken by: swapping gate and up; wrong rotary pairs."""
    model = theirs(variant)
    model.save_pretrained(tmp_path)
    ours = load_model(tmp_path)
    lengths = [5, 9, 3, 40, 41, 1]
    tokens = torch.randint(0, 50, (sum(lengths),))
    with torch.no_grad():
        got = ours.logits(ours.hidden_packed(tokens, lengths))
        for piece, part in zip(tokens.split(lengths), got.split(lengths), strict=True):
            torch.testing.assert_close(part, model(piece[None]).logits[0], atol=1e-4, rtol=0)


def test_gradients_agree_with_transformers(tmp_path):
    """Oracle: transformers' gradients through the same loss, for one fused and one tied parameter."""
    model = theirs("qwen2")
    model.save_pretrained(tmp_path)
    ours = load_model(tmp_path)
    tokens = torch.randint(0, 50, (24,))
    ours.logits(ours.hidden_packed(tokens, [9, 15])).logsumexp(-1).sum().backward()
    for piece in tokens.split([9, 15]):
        model(piece[None]).logits.logsumexp(-1).sum().backward()
    torch.testing.assert_close(ours.embed.grad, model.model.embed_tokens.weight.grad, atol=1e-3, rtol=1e-3)
    attention = model.model.layers[0].self_attn
    num_q, num_k, _ = ours.cfg.qkv_sizes
    got = ours.layers[0].qkv_proj.weight.grad[num_q + num_k :]
    torch.testing.assert_close(got, attention.v_proj.weight.grad, atol=1e-3, rtol=1e-3)


def test_packing_and_order_do_not_matter():
    """Metamorphic: a sequence's states are the same alone, in any order, equal or ragged lengths."""
    model = lively_model()
    parts = [torch.randint(0, 64, (n,)) for n in (7, 30, 8, 8, 29)]
    alone = [model.hidden_packed(p, [len(p)]) for p in parts]
    for order in ([0, 1, 2, 3, 4], [4, 2, 0, 3, 1], [2, 3]):
        got = model.hidden_packed(torch.cat([parts[i] for i in order]), [len(parts[i]) for i in order])
        for i, states in zip(order, got.split([len(parts[i]) for i in order]), strict=True):
            torch.testing.assert_close(states, alone[i], atol=2e-5, rtol=0)


@pytest.mark.parametrize("lengths", [[3, 4], [], [0, 8], [300]])
def test_packed_lengths_that_do_not_fit_are_refused(lengths):
    """Oracle: closed form: eight tokens, a context of 256."""
    model = lively_model()
    tokens = torch.zeros(300 if lengths == [300] else 8, dtype=torch.int64)
    with pytest.raises(ModelError, match=r"packed batch|limit"):
        model.hidden_packed(tokens, lengths)


@pytest.mark.parametrize("variant", VARIANTS)
def test_save_is_read_back_by_transformers_and_by_us(variant, tmp_path):
    """Oracle: transformers reads what we wrote and finds its own tensors, bit for bit."""
    model = theirs(variant)
    model.save_pretrained(tmp_path / "theirs")
    ours = load_model(tmp_path / "theirs")
    save_model(ours, tmp_path / "ours")
    back = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "ours")
    for name, value in model.state_dict().items():
        assert torch.equal(back.state_dict()[name], value), name
    again = load_model(tmp_path / "ours")
    assert again.cfg == ours.cfg == load_config(tmp_path / "ours")
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), again.parameters(), strict=True))
    tokens = torch.randint(0, 50, (1, 100))
    with torch.no_grad():  # positions beyond the original context show a lost rope scaling
        torch.testing.assert_close(back(tokens).logits, model(tokens).logits, atol=1e-6, rtol=0)


def test_sharded_checkpoints_load(tmp_path):
    """Oracle: the same weights from one file."""
    model = theirs("llama")
    model.save_pretrained(tmp_path / "one")
    model.save_pretrained(tmp_path / "many", max_shard_size="8KB")
    assert (tmp_path / "many" / "model.safetensors.index.json").exists()
    one, many = load_model(tmp_path / "one"), load_model(tmp_path / "many")
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), many.parameters(), strict=True))


def test_bad_checkpoints_say_what_is_wrong(tmp_path):
    """Oracle: the message names the tensor, the shape that was given and the one expected."""
    with pytest.raises(ModelError, match=r"no config\.json"):
        load_model(tmp_path)
    save_model(lively_model(), tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    name = "model.layers.1.self_attn.k_proj.weight"
    save_file(tensors | {name: torch.zeros(5, 48)}, tmp_path / "model.safetensors")
    with pytest.raises(ModelError, match=r"layers\.1\.self_attn\.k_proj.*\(5, 48\).*\(32, 48\)"):
        load_model(tmp_path)
    del tensors[name]
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(ModelError, match=r"no tensor 'model\.layers\.1\.self_attn\.k_proj"):
        load_model(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"not a checkpoint")
    with pytest.raises(ModelError, match="cannot be read as safetensors"):
        load_model(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"no model\.safetensors"):
        load_model(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"model_type": "gpt2"},
        {"hidden_act": "gelu"},
        {"use_sliding_window": True},
        {"rope_scaling": {"rope_type": "yarn", "factor": 2.0}},
        {"num_attention_heads": 3},
        {"hidden_size": None},
    ],
)
def test_configs_that_cannot_run_are_refused(change, tmp_path):
    """Oracle: closed form: each asks for what the decoder does not do."""
    data = config().to_hf() | change
    data = {k: v for k, v in data.items() if v is not None}
    (tmp_path / "config.json").write_text(json.dumps(data))
    with pytest.raises(ModelError):
        load_config(tmp_path)


def test_config_round_trip():
    """Oracle: equality."""
    for cfg in (config(), config(family="llama", qkv_bias=False, tie_embeddings=False, eos_ids=(1, 2))):
        assert DecoderConfig.from_hf(json.loads(json.dumps(cfg.to_hf()))) == cfg


def test_new_models_are_seeded():
    """Oracle: the same seed gives the same weights, another seed others; norms start at one."""
    one, same, other = new_model(config(), 1), new_model(config(), 1), new_model(config(), 2)
    assert torch.equal(one.embed, same.embed) and not torch.equal(one.embed, other.embed)
    assert one.embed.std().item() == pytest.approx(0.02, rel=0.1)
    assert bool((one.final_norm == 1).all()) and bool((one.layers[0].qkv_proj.bias == 0).all())


def test_tokenizer_adds_nothing(tmp_path):
    """Oracle: T05's rule: what a template wrote is encoded once, with no second begin token."""
    tokenizer = characters()
    save_model(lively_model(config(eos_ids=(0,))), tmp_path, tokenizer)
    loaded = load_tokenizer(tmp_path)
    assert loaded.eos_ids == (0,) and loaded.vocab_size == 64
    ids = loaded.encode("2 + 2 = 4")
    assert len(ids) == 9 and loaded.decode(ids) == "2 + 2 = 4"
    assert loaded.encode("") == []
    with pytest.raises(ModelError, match=r"no tokenizer\.json|no model at"):
        load_tokenizer(tmp_path / "nowhere")
    save_model(lively_model(), tmp_path / "copy", tokenizer_from=tmp_path)
    assert load_tokenizer(tmp_path / "copy").encode("abc") == loaded.encode("abc")
