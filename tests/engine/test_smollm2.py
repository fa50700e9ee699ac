"""SmolLM2-135M out of its GGUF file, against transformers' reading of the same file."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from engine_help import ask, run

from rollwright.chat import ChatFormat, check_append_only, inserted_system, load_template
from rollwright.engine.checkpoint import load_model, load_tokenizer
from rollwright.engine.inprocess import LocalEngine
from rollwright.engine.shipped import find_model
from rollwright.tree import Sampling

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
TEXT = "The sum of 12 and 30 is 42.\n\ndef add(a, b):\n    return a + b\n\nÉcole, 日本語, 🙂. " * 8


@cache
def ours():
    return load_model("smollm2")


@cache
def theirs():
    from transformers import AutoModelForCausalLM

    path = find_model("smollm2")
    options = {"gguf_file": path.name, "dtype": torch.float32}
    return AutoModelForCausalLM.from_pretrained(path.parent, **options).eval()


@cache
def tokenizer():
    return load_tokenizer("smollm2")


def test_weights_are_those_of_transformers():
    """Oracle: transformers' dequantised weights, to the bit. Broken by: a block size that is off."""
    table = theirs().get_input_embeddings().weight
    assert torch.equal(ours().embed, table)
    assert ours().num_parameters == sum(p.numel() for p in theirs().parameters()) == 134_515_008


@torch.inference_mode()
def test_logprobs_of_whole_texts():
    """Oracle: transformers, over the full vocabulary at every position; two packed sequences."""
    ids = torch.tensor(tokenizer().encode(TEXT))
    parts = [ids, ids[40:100]]
    got = ours().logits(ours().hidden_packed(torch.cat(parts), [len(part) for part in parts]))
    want = torch.cat([theirs()(part[None]).logits[0] for part in parts])
    assert (got - want).abs().max() < 1e-3
    assert (got.log_softmax(-1) - want.log_softmax(-1)).abs().max() < 1e-4


@torch.inference_mode()
@pytest.mark.parametrize("sampling", [Sampling(1.0), Sampling(0.7, top_p=0.9), Sampling(0.0)])
def test_logprobs_of_cached_decoding(sampling):
    """Oracle: transformers, run once over each finished sequence. Broken by: positions off by one.

    What the engine reports is after temperature and over the kept set; the kept mass takes it back to the
    whole vocabulary.
    """
    prompt = ChatFormat(load_template("smollm2"), tokenizer()).prompt("Write a line about the sea.")
    engine = LocalEngine(ours(), tokenizer())
    asks = [ask(f"a{i}", prompt, sampling=sampling, max_tokens=24 + 8 * i) for i in range(3)]
    for answer in run(engine, asks).values():
        whole = torch.tensor([*prompt, *answer.tokens])
        logits = theirs()(whole[None]).logits[0, len(prompt) - 1 : -1]
        logits = logits / (sampling.temperature or 1.0)
        want = logits.log_softmax(-1).gather(1, whole[len(prompt) :, None])[:, 0]
        got = torch.tensor(answer.logprobs)
        if sampling.cuts:
            got = got + torch.tensor(answer.kept_masses).log()
        if sampling.temperature == 0:
            assert torch.equal(logits.argmax(-1), whole[len(prompt) :])
        else:
            assert (got - want).abs().max() < 1e-4


def test_the_template_is_append_only_with_a_system_prompt_of_its_own():
    """Oracle: hand, from the model's card."""
    template = load_template("smollm2")
    assert check_append_only(template) == ()
    assert inserted_system(template).startswith("<|im_start|>system\nYou are a helpful AI assistant")
    assert tokenizer().eos_ids == (2,) == ours().cfg.eos_ids


def test_it_says_something_sensible():
    """Oracle: hand: the greedy answer to a question that the model knows."""
    prompt = ChatFormat(load_template("smollm2"), tokenizer()).prompt("What is the capital of France?")
    engine = LocalEngine(ours(), tokenizer())
    answer = run(engine, [ask("a", prompt, sampling=Sampling(0.0), max_tokens=40)])["a"]
    assert "Paris" in tokenizer().decode(answer.tokens)
