"""Versions move only by publish, and no key of older weights is used again."""

from __future__ import annotations

import pytest
import torch
from engine_help import Answer, ask, lively_model, run

from rollwright.engine.inprocess import LocalEngine
from rollwright.engine.model import Decoder
from rollwright.errors import EngineError
from rollwright.tree import StopReason

PROMPT = [5, 9, 13, 20, 21, 22, 40]


def update(model: Decoder, seed: int) -> None:
    """Change every weight in place, as an optimiser does."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn(p.shape, generator=generator) * 0.02)


def test_case_w01_no_key_of_older_weights_is_reused():
    """Oracle: case W01: a fresh engine with the new weights; nothing is taken from the cache."""
    model = lively_model()
    local = LocalEngine(model)
    old = run(local, [ask("a", PROMPT)])["a"]
    update(model, 1)
    local.publish(1)
    new = run(local, [ask("a", PROMPT)])["a"]
    assert new.prefilled == len(PROMPT) - 1
    assert new.exact == run(LocalEngine(model), [ask("a", PROMPT)])["a"].exact
    assert new.logprobs != old.logprobs and set(new.versions) == {1}


def test_a_sequence_in_flight_goes_on_under_the_new_weights():
    """Oracle: a fresh engine with the new weights asked for the rest, with the same stream."""
    model = lively_model()
    local = LocalEngine(model)
    answer = Answer()
    local.submit(*ask("a", PROMPT, max_tokens=20))
    local.submit(*ask("b", PROMPT, max_tokens=6))
    assert [e.ask for e in local.step()] == ["b"]
    update(model, 1)
    local.publish(1)
    while local.num_live:
        for event in local.step():
            answer.add(event)
    assert answer.versions == (0,) * 6 + (1,) * 14 and answer.chunks == (6, 14)
    command, _ = ask("a", PROMPT)
    rest = ask("r", PROMPT + list(answer.tokens[:6]), stream=command.stream, max_tokens=14)
    fresh = run(LocalEngine(model), [rest])["r"]
    assert (answer.tokens[6:], answer.logprobs[6:]) == (fresh.tokens, fresh.logprobs)


def test_a_forced_token_is_forced_once():
    """Oracle: the same ask without a publish between: equal weights, so equal tokens."""
    model = lively_model()
    want = run(LocalEngine(model), [ask("a", PROMPT, first=33, chunk=4)])["a"]
    local = LocalEngine(model)
    got = Answer()
    local.submit(*ask("a", PROMPT, first=33, chunk=4))
    got.add(*local.step())
    local.publish(1)
    while local.num_live:
        for event in local.step():
            got.add(event)
    assert got.exact == want.exact and set(got.versions) == {0, 1}


def test_abort_right_after_publish_returns_the_older_chunk_once():
    """Oracle: closed form: the six tokens of version 0, labelled so, and nothing more."""
    model = lively_model()
    local = LocalEngine(model)
    local.submit(*ask("a", PROMPT, max_tokens=20))
    local.submit(*ask("b", PROMPT, max_tokens=6))
    local.step()
    update(model, 1)
    local.publish(1)
    answer = local.abort("a")
    assert (len(answer.tokens), answer.version, answer.stop) == (6, 0, StopReason.INTERRUPTED)
    assert local.step() == [] and local.num_live == 0


def test_case_w02_the_version_moves_only_when_the_update_is_whole():
    """Oracle: case W02: after a failed transfer the version is 5 and sampling is refused; then it is 6."""
    model = lively_model()
    local = LocalEngine(model, version=5)
    local.submit(*ask("a", PROMPT))
    buckets = list(model.parameters())
    with torch.no_grad():
        for p in buckets[:2]:
            p.add_(0.01)
    assert local.version == 5
    with pytest.raises(EngineError, match="weights changed since version 5"):
        local.step()
    with torch.no_grad():
        for p in buckets[2:]:
            p.add_(0.01)
    local.publish(6)
    assert local.version == 6
    (event,) = local.step()
    assert event.version == 6
    with pytest.raises(EngineError, match="only moves up"):
        local.publish(6)


def test_learner_and_torch_engine_share_one_set_of_weights():
    """Oracle: the engine's views have the parameters' addresses; the compiled kernel says what it copies."""
    model = lively_model()
    weights = LocalEngine(model, kernel="torch").forward.weights
    assert weights.layers[0].qkv[0].data_ptr() == model.layers[0].qkv_proj.weight.data_ptr()
    assert weights.embed.data_ptr() == model.embed.data_ptr() == weights.head[0].data_ptr()
    report = LocalEngine(model, kernel="native").memory_report()
    assert report["weight_bytes"] <= report["packed_bytes"] < 1.5 * report["weight_bytes"]


def test_weights_loaded_before_the_first_ask_may_keep_the_version():
    """Oracle: the rule in words. Kills: refusing a checkpoint of version 0 when a run is resumed."""
    model = lively_model()
    local = LocalEngine(model, version=0)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.01)
    local.publish(0)
    local.submit(*ask("a", PROMPT))
    (event,) = local.step()
    assert event.version == 0
