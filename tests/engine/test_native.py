"""The compiled kernel: against the model itself, against torch, and to the bit against itself."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from engine_help import ask, config, lively_model, run

from rollwright.engine.forward import TorchForward, places
from rollwright.engine.inprocess import LocalEngine
from rollwright.engine.native import build
from rollwright.engine.native.forward import NativeForward
from rollwright.engine.noise import step_words
from rollwright.engine.pages import PagedKV
from rollwright.engine.passes import Noise, Pass
from rollwright.engine.sampler import Controls, draw
from rollwright.errors import EngineError
from rollwright.tree import Sampling

SHAPES = {
    "grouped": {},
    "odd": {"family": "qwen3", "qkv_bias": False, "qk_norm": True, "head_dim": 24, "hidden_size": 50}
    | {"intermediate_size": 77, "vocab_size": 61, "num_heads": 6, "num_kv_heads": 2},
    "wide-head": {"family": "llama", "qkv_bias": False, "num_heads": 5, "num_kv_heads": 1, "head_dim": 128},
    "untied": {"tie_embeddings": False, "o_bias": True, "head_dim": 64, "num_heads": 3, "num_kv_heads": 1},
}
RAGGED = (5, 16, 3, 16, 10)  # places of each page that belong to the sequence


def whole_pass(tokens: np.ndarray, counts: tuple[int, ...]) -> Pass:
    """All tokens of one sequence at once, in pages 3, 4, ... of which each holds so many."""
    num, each = tokens.size, np.array(counts, np.int32)
    table = np.arange(3, 3 + each.size, dtype=np.int32)
    return Pass(
        tokens=tokens,
        positions=np.arange(num),
        slots=np.zeros(num, np.int32),
        pages=np.repeat(table, each),
        offsets=np.concatenate([np.arange(n) for n in counts]),
        table=table[None].copy(),
        counts=each[None].copy(),
        out_rows=np.arange(num),
    )


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kernel", [lambda m, kv: NativeForward(m, kv, 2), TorchForward])
def test_logits_agree_with_the_packed_forward(shape, kernel):
    """Oracle: the decoder's own packed forward, to 1e-4 in logprob. Broken by: a head's values from the
    next page; gates and ups swapped."""
    model = lively_model(config(**SHAPES[shape]))
    kv = PagedKV(model.cfg, model.embed)
    kv.grow(16)
    tokens = torch.randint(0, model.cfg.vocab_size, (50,), generator=torch.Generator().manual_seed(0))
    logits, _ = kernel(model, kv).run(whole_pass(tokens.numpy(), RAGGED), None)
    with torch.no_grad():
        want = torch.log_softmax(model.logits(model.hidden_packed(tokens, [50])), -1)
    torch.testing.assert_close(torch.log_softmax(logits, -1), want, atol=1e-4, rtol=0)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("threads", [1, 3])
def test_bits_do_not_depend_on_pages_chunks_or_threads(shape, threads):
    """Metamorphic: token by token in whole pages, on memory full of NaN, equals one pass in ragged pages.

    Broken by: summing the softmax by page; a tile that starts its sum with the bias for one row only."""
    model = lively_model(config(**SHAPES[shape]))
    kv = PagedKV(model.cfg, model.embed)
    kv.grow(16)
    tokens = np.random.default_rng(0).integers(0, model.cfg.vocab_size, 50)
    want = NativeForward(model, kv, 2).run(whole_pass(tokens, RAGGED), None)[0].clone()
    kv.pool.fill_(float("nan"))
    forward = NativeForward(model, kv, threads)
    table, counts = np.arange(4, dtype=np.int32)[None].copy(), np.zeros((1, 4), np.int32)
    for t in range(50):
        counts[0] = np.clip(t + 1 - 16 * np.arange(4), 0, 16)
        one = [np.array([x]) for x in (tokens[t], t, 0, t // 16, t % 16)]
        logits, _ = forward.run(Pass(*one, table, counts, np.array([0])), None)
        assert torch.equal(logits[0], want[t]), t


def test_the_kernels_draw_is_the_samplers():
    """Oracle: `rollwright.engine.sampler.draw` on the same logits: equal tokens but for near ties, logprob
    and entropy to 1e-5; greedy, forced and cooled rows among them."""
    model = lively_model()
    kv = PagedKV(model.cfg, model.embed)
    kv.grow(300)
    forward, rng, num = NativeForward(model, kv, 1), np.random.default_rng(1), 256
    work = Pass(
        tokens=rng.integers(0, 64, num),
        positions=np.zeros(num),
        slots=np.arange(num),
        pages=np.arange(num),
        offsets=np.zeros(num),
        table=np.arange(num, dtype=np.int32)[:, None].copy(),
        counts=np.ones((num, 1), np.int32),
        out_rows=np.arange(num),
    )
    differ = 0
    for trial in range(20):
        noise = Noise(
            words=step_words(rng.integers(0, 1 << 62, num), rng.integers(0, 1000, num)),
            temperature=rng.choice(np.array([0, 0.5, 1, 1.7], np.float32), num),
            forced=np.where(rng.random(num) < 0.1, rng.integers(0, 64, num), -1),
            skip=np.zeros(num, np.int32),
        )
        logits, drawn = forward.run(work, noise)
        ones, zeros = np.ones(num, np.float32), np.zeros(num, np.float32)
        controls = Controls(noise.temperature, ones, np.zeros(num, np.int64), zeros, noise.forced)
        want = draw(logits.clone(), controls, noise.words)
        same = drawn.tokens == want.tokens
        differ += int((~same).sum())
        np.testing.assert_allclose(drawn.logps[same], want.logps[same], atol=1e-5)
        np.testing.assert_allclose(drawn.entropies, want.entropies, atol=1e-5)
        greedy = (noise.temperature == 0) & (noise.forced < 0)
        assert (drawn.tokens[greedy] == logits.argmax(-1).numpy()[greedy]).all(), trial
    assert differ <= 2  # of 5,120: both are right to the last bits of E / p


def test_the_kernel_samples_its_own_distribution():
    """Oracle: chi-square of 8,000 draws at one state against the softmax, 63 degrees: < 110 (p > 1e-4)."""
    model = lively_model(gain=2.0)
    engine = LocalEngine(model, kernel="native")
    counts = np.zeros(64)
    asks = [ask(f"a{i}", [7, 8], stream=1000 + i, max_tokens=1) for i in range(8_000)]
    for answer in run(engine, asks).values():
        counts[answer.tokens[0]] += 1
    with torch.no_grad():
        p = torch.softmax(model.logits(model.hidden_packed(torch.tensor([7, 8]), [2]))[-1], -1).numpy()
    assert ((counts - 8_000 * p) ** 2 / (8_000 * p)).sum() < 110


def test_native_and_torch_engines_agree():
    """Oracle: the torch path: equal tokens and stops, logprobs to 1e-4, where no tie is near."""
    model = lively_model()
    hows = (Sampling(), Sampling(temperature=0.7), Sampling(top_p=0.9), Sampling(top_k=4))
    asks = [ask(f"a{i}", [i % 60, 4, 9], group=f"g{i % 9}", sampling=hows[i % 4]) for i in range(40)]
    native = run(LocalEngine(model, kernel="native"), asks)
    by_torch = run(LocalEngine(model, kernel="torch"), asks)
    for name in native:
        assert native[name].tokens == by_torch[name].tokens and native[name].stop == by_torch[name].stop
        np.testing.assert_allclose(native[name].logprobs, by_torch[name].logprobs, atol=1e-4)


def test_gates_far_below_zero_shut():
    """Oracle: the packed forward, with gates beyond -89, where exp(-gate) leaves float32."""
    model = lively_model()
    with torch.no_grad():
        model.layers[0].gate_up_proj.weight[: model.cfg.intermediate_size] *= 60
    tokens = torch.arange(50) % 60
    gates: list[torch.Tensor] = []
    silu = torch.nn.functional.silu
    with torch.no_grad(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.nn.functional, "silu", lambda x, *a, **k: (gates.append(x), silu(x, *a, **k))[1])
        want = torch.log_softmax(model.logits(model.hidden_packed(tokens, [50])), -1)
    kv = PagedKV(model.cfg, model.embed)
    kv.grow(16)
    logits, _ = NativeForward(model, kv, 1).run(whole_pass(tokens.numpy(), RAGGED), None)
    torch.testing.assert_close(torch.log_softmax(logits, -1), want, atol=1e-3, rtol=0)
    assert min(float(g.min()) for g in gates) < -89


def test_places_spread_pages_with_counts():
    """Oracle: by hand."""
    table = np.array([[4, 9, 0], [7, 0, 0]], np.int32)
    counts = np.array([[2, 3, 0], [1, 0, 0]], np.int32)
    pages, offsets = places(table, counts, 4)
    assert pages.tolist() == [[4, 4, 9, 9], [7, 0, 0, 0]]
    assert offsets.tolist() == [[0, 1, 0, 1], [0, 0, 0, 0]]


def test_without_a_compiler_the_engine_runs_on_torch_and_says_so(monkeypatch, caplog):
    """Oracle: the words; asking for the kernel by name is an error instead."""
    build.library.cache_clear()
    monkeypatch.setattr(build, "compiler", lambda: None)
    model = lively_model()
    try:
        engine = LocalEngine(model)
        assert engine.forward.name == "torch" and "no C compiler" in caplog.text
        with pytest.raises(EngineError, match="no C compiler"):
            LocalEngine(model, kernel="native")
        with pytest.raises(EngineError, match="unknown kernel 'cuda'"):
            LocalEngine(model, kernel="cuda")
    finally:
        build.library.cache_clear()


def test_a_compiler_that_fails_is_quoted(monkeypatch, tmp_path):
    """Oracle: the compiler's own words reach the message."""
    build.library.cache_clear()
    monkeypatch.setenv("ROLLWRIGHT_CACHE", str(tmp_path))
    monkeypatch.setattr(build, "compiler", lambda: ["sh", "-c", "echo no such flag >&2; exit 3"])
    try:
        with pytest.raises(EngineError, match="no such flag"):
            build.library()
        assert not list(tmp_path.rglob("*.so")) and not list(tmp_path.rglob("*.tmp"))
    finally:
        build.library.cache_clear()


def test_head_sizes_that_the_kernel_does_not_take():
    """Oracle: the message; `auto` goes to torch."""
    model = lively_model(config(head_dim=4, hidden_size=16))
    with pytest.raises(EngineError, match=r"head_dim that (8|16) divides; given 4"):
        LocalEngine(model, kernel="native")
    assert LocalEngine(model).forward.name == "torch"
