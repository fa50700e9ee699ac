"""The headline law: a sample's tokens and logprobs do not depend on the schedule, to the last bit."""

from __future__ import annotations

import random

import pytest
import torch
from engine_help import Answer, ask, characters, config, lively_model, run

from rollwright.engine.inprocess import LocalEngine
from rollwright.engine.pages import PAGE
from rollwright.tree import Sampling, StopReason

SHAPES = {
    "grouped": {},
    "one-kv-head": {"num_kv_heads": 1},
    "multi-head": {
        "num_heads": 3,
        "num_kv_heads": 3,
        "head_dim": 32,
        "hidden_size": 96,
        "intermediate_size": 256,
    },
    "odd": {"family": "qwen3", "qkv_bias": False, "qk_norm": True, "head_dim": 24, "hidden_size": 50}
    | {"intermediate_size": 77, "vocab_size": 61, "num_heads": 6, "num_kv_heads": 2},
    "wide-head": {"family": "llama", "qkv_bias": False, "num_heads": 2, "num_kv_heads": 1, "head_dim": 128},
    "small-head": {"head_dim": 4, "hidden_size": 16},
    "long-inner": {"intermediate_size": 1536},
}
SAMPLINGS = (
    Sampling(),
    Sampling(temperature=0.6),
    Sampling(temperature=0.0),
    Sampling(top_p=0.8),
    Sampling(top_k=5, temperature=1.3),
    Sampling(min_p=0.05, stop_ids=(7, 8)),
)


@pytest.fixture(params=["native", "torch"], autouse=True)
def kernel(request, monkeypatch):
    """Run every test with the compiled kernel and with torch."""
    monkeypatch.setenv("ROLLWRIGHT_KERNEL", request.param)
    return request.param


@pytest.fixture(params=SHAPES)
def model(request, kernel, monkeypatch):
    if request.param == "small-head":  # which the kernel does not take
        monkeypatch.setenv("ROLLWRIGHT_KERNEL", "auto")
    return lively_model(config(**SHAPES[request.param]))


def mixed_asks(rng: random.Random, num_groups: int, num_tokens: int):
    """Groups of samples with prompts, limits, samplings and alternatives of every kind."""
    asks = []
    for g in range(num_groups):
        prefix = [rng.randrange(3, num_tokens) for _ in range(rng.choice([1, 2, 15, 16, 17, 33, 70]))]
        for k in range(rng.randint(1, 6)):
            own = prefix if rng.random() < 0.8 else prefix[: rng.randint(1, len(prefix))]
            limit, how = rng.choice([1, 3, 20, 50]), rng.choice(SAMPLINGS)
            more = {"num_top": rng.choice([0, 0, 3]), "chunk": rng.choice([0, 4, 7])}
            asks.append(ask(f"{g}.{k}", own, group=f"g{g}", max_tokens=limit, sampling=how, **more))
    return asks


def interrupted(local: LocalEngine, asks, rng: random.Random) -> dict[str, Answer]:
    """Run asks, aborting live ones at random points and asking for the rest in a new ask."""
    name_to_ask = {command.ask: (command, prefix) for command, prefix in asks}
    got = {name: Answer() for name in name_to_ask}
    for item in asks:
        local.submit(*item)
    while local.num_live:
        for event in local.step():
            got[event.ask].add(event)
        flying = list(local.by_ask)[:64]
        for name in [n for n in flying if rng.random() < 0.3]:
            event = local.abort(name)
            assert event.stop is StopReason.INTERRUPTED
            got[name].add(event)
            got[name].stop = None
            command, prefix = name_to_ask[name]
            made = got[name].tokens
            more = {"num_top": command.num_top, "chunk": rng.choice([0, 1, 5])}
            rest = ask(
                name,
                prefix + list(made),
                group=command.group,
                stream=command.stream,
                max_tokens=command.max_tokens - len(made),
                sampling=command.sampling,
                turn_start=len(prefix),
                **more,
            )
            local.submit(*rest)
    return got


def exact(answers: dict[str, Answer]) -> dict[str, tuple]:
    return {name: answer.exact for name, answer in answers.items()}


def test_samples_do_not_depend_on_batch_size_or_arrival(model):
    """Metamorphic: alone, and in batches of 1 to 64 with random arrivals.

    Broken by: not padding the rows of linear layers to 16; prefilling with one product per head.
    """
    asks = mixed_asks(random.Random(1), 10, model.cfg.vocab_size)
    want = exact(run(LocalEngine(model, characters(eos=(3,)), max_batch=64), asks))
    for seed, max_batch in enumerate((1, 5, 24)):
        local = LocalEngine(model, characters(eos=(3,)), max_batch=max_batch)
        got = run(local, asks, random.Random(seed))
        assert exact(got) == want


@pytest.mark.parametrize("shape", ["multi-head", "long-inner"])
def test_two_threads_change_nothing(shape):
    """Metamorphic: one thread and batch 1 against two threads and batch 40."""
    model = lively_model(config(**SHAPES[shape]))
    asks = [ask(f"{g}.{k}", [g] * 20, f"g{g}", max_tokens=5) for g in range(5) for k in range(8)]
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        want = exact(run(LocalEngine(model, max_batch=1), asks))
        torch.set_num_threads(2)
        assert exact(run(LocalEngine(model), asks)) == want
    finally:
        torch.set_num_threads(threads)


def test_interrupted_and_forked_sequences_equal_fresh_ones(model):
    """Metamorphic: aborted at random points and resumed in new asks, in other batches."""
    rng = random.Random(2)
    asks = mixed_asks(rng, 6, model.cfg.vocab_size)
    want = exact(run(LocalEngine(model, characters(eos=(3,))), asks))
    local = LocalEngine(model, characters(eos=(3,)), max_batch=9, token_budget=23)
    assert exact(interrupted(local, asks, rng)) == want


def test_long_prefixes_are_exact_across_blocks():
    """Metamorphic: 600 tokens prefilled at once, in parts, or decoded one by one from two."""
    model = lively_model(config(max_positions=700, num_layers=1))
    tokens = [random.Random(3).randrange(64) for _ in range(600)]
    want = run(LocalEngine(model), [ask("a", tokens)])["a"].exact
    parts = LocalEngine(model, token_budget=37, max_batch=8)
    assert run(parts, [ask("b", tokens[:450], stream=1, max_tokens=3), ask("a", tokens)])["a"].exact == want
    grown = LocalEngine(model)
    for first in range(2, 600, 100):
        run(grown, [ask(f"s{first}", tokens[:first], max_tokens=1)])
    assert run(grown, [ask("a", tokens)])["a"].exact == want


@pytest.mark.slow
def test_ten_thousand_sequences(kernel, capsys):
    """Metamorphic: 10,000 sequences in batches of 256 and of 48 in another order, under preemption and with
    interruptions; ties are counted."""
    model = lively_model(config(num_layers=1))
    rng = random.Random(4)
    asks = []
    for g in range(1250):
        prefix = [rng.randrange(64) for _ in range(rng.randint(1, 40))]
        limit = min(60, max(1, int(rng.lognormvariate(2.5, 1))))
        asks += [ask(f"{g}.{k}", prefix, group=f"g{g}", max_tokens=limit) for k in range(8)]
    want = run(LocalEngine(model, max_batch=256), asks)
    budget = (
        160 * PAGE * LocalEngine(model).kv.bytes_per_token
    )  # for a fifth of its rows: the rest is preempted
    ways = {
        "other order, batch 48": run(LocalEngine(model, max_batch=48), asks, rng),
        "preempted": run(LocalEngine(model, kv_budget_bytes=budget, token_budget=300), asks, rng),
        "interrupted": interrupted(LocalEngine(model, max_batch=64), asks, rng),
    }
    for way, got in ways.items():
        differ = sum(want[n].tokens != got[n].tokens for n in want)
        unequal = sum(want[n].logprobs != got[n].logprobs for n in want)
        with capsys.disabled():
            print(f"\n10,000 sequences, {kernel}, {way}: {differ} other tokens, {unequal} other logprobs")
        assert differ == unequal == 0
