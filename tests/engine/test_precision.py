"""Formats, the forwards in them, and what the papers say of them, on the shipped countdown model."""

import dataclasses
import functools

import numpy as np
import pytest
import torch
from engine_help import ask, characters, lively_model, run

from rollwright.engine.checkpoint import load_model, load_tokenizer
from rollwright.engine.inprocess import LocalEngine
from rollwright.engine.precision.formats import (
    FORMATS,
    fp8_tiles,
    hif4,
    int8_rows,
    min_max,
    mxfp4,
    nvfp4_rows,
    round_e2m1,
    round_e4m3,
    round_e6m2,
)
from rollwright.engine.precision.forward import new_forward
from rollwright.engine.precision.learner import calibrated, hidden_packed
from rollwright.engine.precision.probe import EngineLogits, Text, probe
from rollwright.engine.precision.value import Precision, largest_two_of_four
from rollwright.errors import ConfigError, EngineError, UnknownName
from rollwright.tasks.registry import load_task, shipped_checkpoint

E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6]


def nearest(values, codes):
    """Brute force: the nearest code, of two the one with the even number."""
    codes = np.asarray(codes, np.float64)
    found = []
    for value in values:
        off = np.abs(abs(float(value)) - codes)
        best = np.flatnonzero(off == off.min())
        found.append(np.sign(float(value)) * codes[best[best % 2 == 0][0] if len(best) > 1 else best[0]])
    return torch.tensor(np.array(found), dtype=torch.float32)


def ladder(codes):
    """Every code, every midpoint, and what lies just beside each, with both signs."""
    codes = np.asarray(codes, np.float32)
    points = np.concatenate([codes, (codes[1:] + codes[:-1]) / 2])
    points = np.concatenate(
        [points, np.nextafter(points, np.float32(1e9)), np.nextafter(points, np.float32(-1))]
    )
    points = points[points >= 0]
    return torch.from_numpy(np.concatenate([points, -points]))


def test_e2m1_is_the_nearest_of_all_codes():
    """Oracle: enumeration, brute-force nearest with ties to even. Broken by: ties away from zero."""
    x = torch.cat([ladder(E2M1), torch.tensor([7.0, -100.0])])
    assert torch.equal(round_e2m1(x), nearest(x, E2M1))


def test_e4m3_is_torchs():
    """Oracle: other implementation, torch.float8_e4m3fn, at its 127 codes, all midpoints and beside them."""
    codes = torch.arange(127, dtype=torch.uint8).view(torch.float8_e4m3fn).float().numpy()
    x = ladder(codes).clamp(-448, 448)
    assert torch.equal(round_e4m3(x), x.to(torch.float8_e4m3fn).float())
    assert torch.equal(round_e4m3(torch.tensor([1e6, -1e6])), torch.tensor([448.0, -448.0]))


def test_e6m2_is_the_nearest_of_all_codes():
    """Oracle: enumeration."""
    codes = [m * 2.0**e for e in range(-48, 16) for m in (1, 1.25, 1.5, 1.75)][:-1]
    x = ladder(codes)
    x = x[(x >= codes[0]) & (x <= codes[-1])]
    assert torch.equal(round_e6m2(x), nearest(x, codes))


def slow_hif4(x):
    """One block of 64, number by number, in double precision."""
    scale = float(round_e6m2(torch.tensor([max(map(abs, x)) / 7]))[0])
    found = []
    for i, value in enumerate(x):
        two, four = x[i // 8 * 8 : i // 8 * 8 + 8], x[i // 4 * 4 : i // 4 * 4 + 4]
        step = scale * (2 if max(map(abs, two)) >= 4 * scale else 1)
        step *= 2 if max(map(abs, four)) >= 2 * step else 1
        codes = np.arange(8) / 4 * step
        off = np.abs(abs(value) - codes)
        found.append(np.sign(value) * codes[np.flatnonzero(off == off.min())[-1]])
    return found


def test_hif4_is_its_definition():
    """Oracle: slow reference, scalar, nearest code by search. Broken by: the third level left out."""
    x = torch.randn(50, 64, generator=torch.Generator().manual_seed(0)) ** 3
    expected = torch.tensor([slow_hif4([float(v) for v in row]) for row in x], dtype=torch.float32)
    torch.testing.assert_close(hif4(x), expected, rtol=1e-6, atol=1e-7)


def test_mxfp4_is_its_definition():
    """Oracle: closed form: a power of two that puts the largest into [4, 8), then the nearest code."""
    x = torch.randn(40, 32, generator=torch.Generator().manual_seed(0)) ** 3
    scale = 2.0 ** (np.floor(np.log2(x.abs().amax(1, keepdim=True).double().numpy())) - 2)
    expected = torch.stack([nearest(row / s[0], E2M1) * float(s[0]) for row, s in zip(x, scale, strict=True)])
    assert torch.equal(mxfp4(x), expected)


@pytest.mark.parametrize("quantise", [int8_rows, fp8_tiles, mxfp4, nvfp4_rows])
def test_twice_is_once(quantise):
    """Oracle: metamorphic, idempotence. (HiF4's scale may move: its largest may round to 6 of 7.)"""
    x = torch.randn(130, 150, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(quantise(quantise(x)), quantise(x), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", [n for n, f in FORMATS.items() if f.activation])
def test_a_row_does_not_depend_on_its_batch(name):
    """Oracle: metamorphic, to the bit; zeros stay zeros. Broken by: one NVFP4 scale for the whole batch."""
    x = torch.randn(7, 96, generator=torch.Generator().manual_seed(0)) * torch.logspace(-3, 3, 7)[:, None]
    quantise = FORMATS[name].activation
    assert torch.equal(quantise(x)[3:4], quantise(x[3:4]))
    assert not quantise(torch.zeros(2, 40)).any()


def test_keys_take_the_levels_between_their_ends():
    """Oracle: hand: 16 levels between the smallest and the largest, ends exact."""
    x = torch.linspace(-1, 2, 32)
    found = min_max(x, 4)
    assert found.unique().numel() == 16 and (found - x).abs().max() <= 0.1001
    assert torch.isclose(found[0], x[0]) and torch.isclose(found[-1], x[-1])


def test_two_of_four():
    """Oracle: hand."""
    x = torch.tensor([[1.0, -3, 2, 0, 1, 1, 1, 1]])
    assert torch.equal(largest_two_of_four(x), torch.tensor([[0.0, -3, 2, 0, 1, 1, 0, 0]]))


def test_what_cannot_be_is_refused():
    """Oracle: hand."""
    with pytest.raises(UnknownName):
        Precision("mxfp5")
    with pytest.raises(ConfigError, match="weights only"):
        Precision("int8", "int8")
    with pytest.raises(ConfigError, match="share of channels"):
        Precision("", "mxfp4", residual="3:4")
    model = lively_model()
    with pytest.raises(EngineError, match="weights only"):
        new_forward(model, LocalEngine(model).kv, Precision("hif4", "hif4"), kernel="native")


@pytest.mark.parametrize(
    "precision",
    [
        Precision("int8"),
        Precision("nvfp4", "nvfp4"),
        Precision("hif4", "hif4", "int4-protected", "2:4", num_sinks=2, window=5),
    ],
)
def test_recorded_logprobs_are_the_quantised_policys(precision):
    """Oracle: other computation: the whole text fed at once to the same precision. In a batch;
    after a publish under the new weights. Broken by: weights that are not quantised again."""
    model = lively_model()
    engine = LocalEngine(model, characters(), threads=1, kernel="torch")
    engine.forward = new_forward(model, engine.kv, precision, kernel="torch")
    for version in (0, 1):
        if version:
            with torch.no_grad():
                for p in model.parameters():
                    p.mul_(1.1)
            engine.publish(1)
        asks = [ask(f"{version}/{i}", [5, 9, 11 + i, 20 + i][: 2 + i]) for i in range(3)]
        answers = run(engine, asks)
        alone = EngineLogits(model, precision)
        for command, prefix in asks:
            answer = answers[command.ask]
            logits = alone(Text((*prefix, *answer.tokens), len(prefix)))
            logp = logits.log_softmax(-1).gather(1, torch.tensor(answer.tokens)[:, None])[:, 0]
            torch.testing.assert_close(torch.tensor(answer.logprobs).float(), logp, rtol=0, atol=2e-5)


def test_the_learners_gradient_passes_straight_through():
    """Oracle: other implementation: without formats it is `Decoder.hidden_packed`'s gradient. Metamorphic: in
    hif4 a shared prefix that is packed once has the values and gradient of one that is packed twice."""
    model = lively_model()
    tokens = torch.tensor([5, 9, 11, 20, 5, 9, 30])
    rows = torch.tensor([0, 1, 2, 3, 0, 1, 4])

    def gradient(precision, tokens, rows, pick):
        model.zero_grad()
        hidden = hidden_packed(model, precision, tokens, [4, 3], rows)
        hidden[pick].square().sum().backward()
        return hidden[pick].detach(), torch.cat(
            [p.grad.flatten() for p in model.parameters() if p.grad is not None]
        )

    own = gradient(Precision("hif4", "hif4"), tokens, None, [2, 3, 6])
    shared = gradient(Precision("hif4", "hif4"), torch.tensor([5, 9, 11, 20, 30]), rows, [2, 3, 4])
    for mine, theirs in zip(own, shared, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)
    model.zero_grad()
    plain = model.hidden_packed(tokens, [4, 3])
    plain[[2, 3, 6]].square().sum().backward()
    expected = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    torch.testing.assert_close(
        gradient(Precision(), tokens, None, [2, 3, 6])[1], expected, rtol=1e-4, atol=1e-4
    )
    with pytest.raises(ConfigError, match="keys in float32"):
        hidden_packed(model, Precision(kv="int4"), tokens, [4, 3])


@functools.cache
def countdown():
    """Return the shipped model and 24 rollouts that it sampled in float32."""
    path = shipped_checkpoint("countdown")
    model, tokenizer, task = load_model(path), load_tokenizer(path), load_task("countdown")
    prompts = [tokenizer.encode(task.prompt(one)) for one in task.ids("train")[:24]]
    engine = LocalEngine(model, tokenizer, threads=1)
    asks = [ask(str(i), p, max_tokens=24) for i, p in enumerate(prompts)]
    answers = run(engine, asks)
    return model, [Text((*p, *answers[c.ask].tokens), len(p)) for c, p in asks]


def mismatch(engine, learner=None):
    model, texts = countdown()
    return probe(
        model, texts, calibrated(engine, model, [t.tokens for t in texts[:8]]), learner or Precision()
    )


@pytest.mark.parametrize("name", ["nvfp4", "mxfp4", "hif4"])
def test_activations_err_more_than_weights_and_the_residual_mends_them(name):
    """Oracle: QUADS's and Rollout-ResQ's claims. Broken by: a residual that is not added."""
    weights, inputs = mismatch(Precision(name)), mismatch(Precision("", name))
    mended = mismatch(Precision("", name, residual="2:4"))
    assert inputs.mean > 1.1 * weights.mean
    assert mended.mean < 0.5 * inputs.mean and mended.kl < 0.25 * inputs.kl


def test_hif4_errs_less_than_mxfp4():
    """Oracle: Rollout-ResQ's and HiF4's claim."""
    assert mismatch(Precision("hif4", "hif4")).mean < 0.7 * mismatch(Precision("mxfp4", "mxfp4")).mean


@pytest.mark.parametrize("name", ["fp8", "nvfp4", "hif4"])
def test_one_precision_for_both_sides_removes_the_mismatch(name):
    """Oracle: Jet-RL's claim; what is left are inputs on an edge. Broken by: weights of other blocks."""
    both = Precision(name, name)
    assert mismatch(both, both).mean < 0.05 * mismatch(both).mean


def test_protected_keys_lie_between_int8_and_int4():
    """Oracle: KV4-RL's claim. Broken by: a window that is taken from the end of the batch."""
    int8, safe, int4 = (mismatch(Precision(kv=kind)) for kind in ("int8", "int4-protected", "int4"))
    assert int8.mean < safe.mean < 0.5 * int4.mean and int8.kl < safe.kl < int4.kl
    all_safe = mismatch(dataclasses.replace(Precision(kv="int4-protected"), window=1000))
    assert all_safe == int8
