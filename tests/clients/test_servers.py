"""vLLM, SGLang and llama.cpp as they are documented: what is sent, what is made of their answers."""

from __future__ import annotations

import subprocess
import sys

import pytest
from client_help import BYTES, ask, connected, fake, run_to_end, wait_until
from fake_servers import FakeLlamaCpp, FakeSGLang, FakeVLLM, logprobs, top

from rollwright.errors import EngineError, UnknownName
from rollwright.tree import Sampling, StopReason

KINDS = {"vllm": FakeVLLM, "sglang": FakeSGLang, "llama.cpp": FakeLlamaCpp}


def play(script, *asks, **more):
    """Run asks against a fake server; return the joined answers and the failures."""
    with fake(script) as url, connected(url, **more) as engine:
        events, failures = run_to_end(engine, asks)
        assert engine.num_live == 0
    return events, failures


def joined(events, name="tokens"):
    return tuple(value for event in events for value in getattr(event, name) or ())


def one(temperature=1.0, **more):
    return ask("a", [9, 8, 7], sampling=more.pop("sampling", Sampling(temperature)), **more)


# ------------------------------------------------------------------ what is sent


def test_vllm_is_told_everything():
    """Golden, from vLLM's protocol file: ids in and out, nothing left to the model's own defaults."""
    script = FakeVLLM()
    script.answers = [script.says([3, 4], finish="length")]
    sampling = Sampling(0.7, stop_ids=(6,), stop_strings=("Q",))
    play(
        script,
        one(sampling=sampling, max_tokens=2, num_top=3, priority=4),
        tokenizer=BYTES,
        has_priority=True,
    )
    (body,) = script.bodies
    expected = {
        "model": "m",
        "prompt": [9, 8, 7],
        "max_tokens": 2,
        "temperature": 0.7,
        "top_p": 1.0,
        "top_k": -1,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "stop": ["Q"],
        "stop_token_ids": [6],
        "logprobs": 3,
        "return_token_ids": True,
        "return_tokens_as_token_ids": True,
        "skip_special_tokens": False,
        "stream": True,
        "priority": -4,
    }
    assert {name: body.get(name) for name in expected} == expected
    assert 0 <= body["seed"] < 2**31


def test_sglang_is_told_everything():
    """Golden, from SGLang's sampling parameters page."""
    script = FakeSGLang()
    script.answers = [script.says([3], finish={"type": "length", "length": 1})]
    play(script, one(0.5, max_tokens=1, num_top=2))
    (body,) = script.bodies
    assert body["input_ids"] == [9, 8, 7] and "priority" not in body
    assert (body["return_logprob"], body["logprob_start_len"], body["top_logprobs_num"]) == (True, -1, 2)
    params = body["sampling_params"]
    expected = {"max_new_tokens": 1, "temperature": 0.5, "top_p": 1.0, "top_k": -1, "min_p": 0.0}
    assert expected.items() <= params.items()
    assert params["skip_special_tokens"] is False and params["repetition_penalty"] == 1.0


def test_llamacpp_is_told_everything():
    """Golden, from the server's README: temperature alone, since its own order cuts before it cools."""
    for temperature, is_post in ((1.0, False), (0.0, False), (0.6, True)):
        script = FakeLlamaCpp()
        script.answers = [script.says([3], kind="limit")]
        play(script, one(temperature, max_tokens=1))
        (body,) = script.bodies
        assert body["samplers"] == ["temperature"] and body["post_sampling_probs"] is is_post
        assert (body["prompt"], body["n_predict"], body["return_tokens"]) == ([9, 8, 7], 1, True)
        assert body["n_probs"] == 1 and body["repeat_penalty"] == 1.0


# ------------------------------------------------------------------ what is read


@pytest.mark.parametrize("temperature", [1.0, 0.5, 0.0])
@pytest.mark.parametrize("kind", ["vllm", "sglang", "sglang incremental", "llama.cpp"])
def test_answers_become_events(kind, temperature):
    """Closed form (case L01): logprobs of the distribution after temperature, alternatives, chunks, ends."""
    if kind == "vllm":
        script = FakeVLLM()
        script.answers = [script.says([3], [4, 5], [6])]
    elif kind == "llama.cpp":
        script = FakeLlamaCpp()
        script.answers = [script.says([3, 4, 5, 6])]
    else:
        script = FakeSGLang(is_incremental="incremental" in kind)
        script.answers = [script.says([3], [4, 5], [6], finish={"type": "stop", "matched": 6})]
    events, failures = play(script, one(temperature, max_tokens=9, num_top=3, chunk=2, attempt=5))
    assert not failures
    found = events["a"]
    assert joined(found) == (3, 4, 5, 6) and found[-1].stop is StopReason.EOS
    values = logprobs(temperature or 1.0)
    assert joined(found, "logprobs") == pytest.approx([values[t] for t in (3, 4, 5, 6)], abs=1e-9)
    for row in joined(found, "top"):
        assert [t for t, _ in row] == [3, 4, 5]
        assert [p for _, p in row] == pytest.approx([p for _, p in top(temperature or 1.0, 3)], abs=1e-9)
    assert [len(e.tokens) for e in found][:1] == [2] and sum(len(e.tokens) for e in found) == 4
    assert {(e.version, e.attempt, e.entropies, e.kept_masses) for e in found} == {(0, 5, None, None)}


def test_ends_are_told_apart():
    """Hand: end token, stop id, stop string, length, context."""
    vllm = FakeVLLM()
    cases = [
        (vllm.says([3, 4]), {}, StopReason.EOS),
        (vllm.says([3, 4], stop_reason=4), {"stop_ids": (4,)}, StopReason.STOP),
        (vllm.says([3, 4], finish="length"), {}, StopReason.CONTEXT),
        (vllm.says([3] * 9, finish="length"), {}, StopReason.LENGTH),
    ]
    for answer, sampling, stop in cases:
        vllm.answers = [answer]
        events, _ = play(vllm, one(sampling=Sampling(**sampling), max_tokens=9))
        assert events["a"][-1].stop is stop
    for kind, stop in (("eos", StopReason.EOS), ("limit", StopReason.CONTEXT)):
        llama = FakeLlamaCpp()
        llama.answers = [llama.says([3], kind=kind, truncated=True)]
        events, _ = play(llama, one(max_tokens=9))
        assert events["a"][-1].stop is stop


def test_t06_ids_end_where_the_stop_string_does():
    """Case T06: the server's ids run past the stop string; the record ends with the id that completes it."""
    vllm = FakeVLLM()
    three, four, five = (BYTES.decode([t]) for t in (3, 4, 5))
    vllm.answers = [vllm.says([3], [4, 5, 6], finish="stop", stop_reason=four + five)]
    sampling = Sampling(stop_strings=(four + five,))
    events, _ = play(vllm, one(sampling=sampling, max_tokens=9, chunk=1), tokenizer=BYTES)
    assert joined(events["a"]) == (3, 4, 5) and len(joined(events["a"], "logprobs")) == 3
    assert events["a"][-1].stop is StopReason.STOP and three


def test_a_stop_string_that_began_in_an_earlier_submit_is_found():
    """Hand: half of it was sampled before, and the server knows nothing of it."""
    vllm = FakeVLLM()
    vllm.answers = [vllm.says([4], [5], [6])]
    sampling = Sampling(stop_strings=(BYTES.decode([3, 4]),))
    command, prefix = ask("a", [9, 3], sampling=sampling, max_tokens=9, turn_start=1)
    events, _ = play(vllm, (command, prefix), tokenizer=BYTES)
    assert joined(events["a"]) == (4,) and events["a"][-1].stop is StopReason.STOP


def test_greedy_sampling_ignores_cuts_everywhere():
    """Hand: as in the engine, the kept set of greedy sampling is everything."""
    vllm = FakeVLLM()
    vllm.answers = [vllm.says([3, 4])]
    events, _ = play(vllm, one(sampling=Sampling(0.0, top_p=0.5), max_tokens=9))
    assert joined(events["a"], "kept_masses") == (1.0, 1.0) and vllm.bodies[0]["top_p"] == 1.0


# ------------------------------------------------------------------ refusals before anything is sampled


REFUSED = {
    "kept mass": (Sampling(top_p=0.9), {}, "kept set"),
    "kept mass of top-k": (Sampling(top_k=5), {}, "kept set"),
    "forced": (Sampling(), {"first": 3}, "first token"),
    "alternatives": (Sampling(), {"num_top": 21}, "21 alternatives"),
    "stop strings": (Sampling(stop_strings=("x",)), {}, "tokenizer"),
}


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_what_a_server_cannot_give_is_refused_at_once(kind):
    """Hand: by name, at submit; nothing was sent. The method is refused in the same way."""
    script = KINDS[kind]()
    with fake(script) as url, connected(url) as engine:
        assert engine.dialect.name == kind
        for sampling, more, words in REFUSED.values():
            with pytest.raises(EngineError, match=words):
                engine.submit(*ask("a", [9], sampling=sampling, **more))
        with pytest.raises(EngineError, match=r"entropy, kept_mass.*rollwright serve"):
            engine.require(frozenset({"entropy", "top", "kept_mass"}))
        engine.require(frozenset({"top"}))
        assert engine.num_live == 0 and script.bodies == []


@pytest.mark.parametrize(
    "script", [FakeVLLM(mode="raw_logprobs"), FakeSGLang(is_original=True)], ids=["vllm", "sglang"]
)
def test_l01_logprobs_before_temperature_are_found_out(script):
    """Case L01: the server reports them raw; temperature 1 is right, 0.7 is refused before sampling."""
    script.answers = (
        [script.says([3])] if script.kind == "vllm" else [script.says([3], finish={"type": "stop"})]
    )
    with fake(script) as url, connected(url) as engine:
        assert engine.gives.logprobs == "raw"
        with pytest.raises(EngineError, match="logprobs after temperature"):
            engine.submit(*one(0.7))
        events, failures = run_to_end(engine, [one(1.0)])
    assert not failures and joined(events["a"], "logprobs") == pytest.approx([logprobs()[3]])


def test_a_server_without_token_ids_is_refused_at_the_start():
    """Hand: any other OpenAI-compatible server; the message says what it lacks."""
    script = FakeVLLM(has_ids=False)
    script.kind = "someone"
    with fake(script) as url, pytest.raises(EngineError, match=r"unknown server.*token ids.*'token_ids'"):
        connected(url).__enter__()
    script = FakeVLLM()
    script.kind = "someone"  # unknown, but it answers as vLLM does
    with fake(script) as url, connected(url) as engine:
        assert engine.gives.logprobs == "sampled"


def test_addresses_and_names():
    """Hand: no server, no such model, no such kind."""
    with pytest.raises(EngineError, match="is the server up"):
        connected("http://127.0.0.1:9").__enter__()
    with fake(FakeVLLM()) as url:
        with pytest.raises(EngineError, match="no model 'n'; it serves: m"):
            connected(f"{url}/v1", model="n").__enter__()
        with pytest.raises(UnknownName, match=r"did you mean 'vllm'"):
            connected(url, server="vlm").__enter__()


# ------------------------------------------------------------------ versions


def test_sglang_says_its_version_chunk_by_chunk():
    """Hand: weight_version moves in the middle; no event mixes two, and the client is not asked."""
    script = FakeSGLang(version="4")
    script.answers = [script.says([3, 4], [5], [6], versions=["4", "4", "5"], finish={"type": "stop"})]
    events, failures = play(script, one(max_tokens=9))
    assert not failures
    assert [(e.version, e.tokens) for e in events["a"]] == [(4, (3, 4, 5)), (5, (6,))]


def test_labels_of_a_server_that_says_nothing():
    """Hand: hold() labels what came before the change; publish() without it drops what nobody can label."""
    vllm = FakeVLLM()
    vllm.answers = [vllm.says([3, 4], 5.0, [5]), vllm.says([5, 6], 5.0, [3]), vllm.says([7])]
    with fake(vllm) as url, connected(url) as engine:
        command, prefix = one(max_tokens=9)
        engine.submit(command, prefix)
        _until_unreported(engine, 2)
        engine.hold()
        engine.publish(1)
        _until_unreported(engine, 2)
        engine.publish(2)  # the new weights came while it sampled
        events = []
        while engine.num_live:
            events += engine.step()
        assert engine.report == {"num_retries": 0, "num_dropped": 2} and engine.version == 2
    assert [(e.version, e.tokens, e.stop) for e in events] == [(0, (3, 4), None), (2, (7,), StopReason.EOS)]
    assert [body["prompt"][3:] for body in vllm.bodies] == [[], [3, 4], [3, 4]]
    assert [body["max_tokens"] for body in vllm.bodies] == [9, 7, 7]


def _until_unreported(engine, num):
    wait_until(lambda: any(f.num_unreported == num for f in engine._fleet._flights.values()))


def test_weights_over_http():
    """Hand: SGLang loads from disk and is told the version; vLLM cannot, and the message says what to do."""
    script = FakeSGLang()
    with fake(script) as url, connected(url) as engine:
        engine.update_weights("/models/2", 2)
        assert script.bodies[-1] == {"model_path": "/models/2", "weight_version": "2"} and engine.version == 2
    with fake(FakeVLLM()) as url, connected(url) as engine:
        with pytest.raises(EngineError, match="hold"):
            engine.update_weights("/models/2", 2)
        engine.publish(2)
        with pytest.raises(EngineError, match="only moves up"):
            engine.publish(1)


def test_the_client_needs_no_torch():
    """Hand: it may run where no model does."""
    code = "import sys, rollwright.clients.openai; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
