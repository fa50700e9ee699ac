"""Servers that fail: what passes is tried again, what stays becomes a failure, and nothing becomes tokens."""

from __future__ import annotations

import asyncio
import json
import time

import pytest
from client_help import (
    MODEL,
    SlowEngine,
    ask,
    characters,
    connected,
    fake,
    run_to_end,
    serve,
    wait_until,
)
from fake_servers import FakeLlamaCpp, FakeSGLang, FakeVLLM
from starlette.responses import JSONResponse

from rollwright.clients.dialect import Part
from rollwright.clients.flight import server_chunk
from rollwright.clients.wire import Waits
from rollwright.errors import EngineError
from rollwright.events import Failed
from rollwright.serve.jobs import Limits
from rollwright.tree import StopReason


def status(code, **headers):
    return lambda body: JSONResponse({"error": {"message": f"it is {code}"}}, code, headers=headers)


def play(script, command, prefix, **more):
    with fake(script) as url, connected(url, **more) as engine:
        events, failures = run_to_end(engine, [(command, prefix)])
        return events["a"], failures, engine.report


def one(**more):
    return ask("a", [9, 8, 7], **({"max_tokens": 9} | more))


def joined(events):
    return tuple(token for event in events for token in event.tokens)


@pytest.mark.parametrize("code", [429, 500, 502, 503])
def test_what_may_pass_is_tried_again(code):
    """Hand: two failures, then the answer; the request is the same each time."""
    vllm = FakeVLLM()
    vllm.answers = [status(code), status(code, **{"retry-after": "0.05"}), vllm.says([3, 4])]
    started = time.monotonic()
    events, failures, report = play(vllm, *one())
    assert joined(events) == (3, 4) and not failures and report["num_retries"] == 2
    assert vllm.bodies[0] == vllm.bodies[1] == vllm.bodies[2]
    assert code != 429 or time.monotonic() - started > 0.05


@pytest.mark.parametrize("code", [400, 401, 404, 422])
def test_what_the_server_refuses_is_a_failure_at_once(code):
    """Hand: no retry; the server's words are in the failure."""
    vllm = FakeVLLM()
    vllm.answers = [status(code)]
    events, failures, report = play(vllm, *one())
    assert events == [] and f"it is {code}" in failures["a"] and report["num_retries"] == 0


def test_a_failure_that_stays_is_told_with_its_words():
    """Hand: three tries, then one `Failed` of kind engine and nothing else."""
    vllm = FakeVLLM()
    vllm.answers = [status(503)] * 3
    with fake(vllm) as url, connected(url, retries=2) as engine:
        engine.submit(*one())
        (event,) = engine.step()
        assert event == Failed(ask="a", kind="engine", message=event.message)
        assert "it is 503" in event.message and "3 times" in event.message
        assert engine.step() == [] and engine.num_live == 0
        with pytest.raises(EngineError, match="no ask 'a'"):
            engine.abort("a")


@pytest.mark.parametrize("kind", ["vllm", "sglang", "llama.cpp"])
def test_a_stream_cut_in_the_middle_goes_on_from_there(kind):
    """Hand: what came is kept, the next request asks for the rest, and every token stands once."""
    if kind == "vllm":
        script = FakeVLLM()
        script.answers = [script.says([3, 4], "cut", [5]), script.says([5, 6])]
    elif kind == "sglang":
        script = FakeSGLang()
        script.answers = [script.says([3, 4], "cut"), script.says([5, 6], finish={"type": "stop"})]
    else:
        script = FakeLlamaCpp()
        script.answers = [script.says([3, 4], after=("cut",)), script.says([5, 6])]
    events, failures, _ = play(script, *one(num_top=2))
    assert joined(events) == (3, 4, 5, 6) and not failures and script.num_cut == 1
    prompt, most = ("input_ids", None) if kind == "sglang" else ("prompt", "n_predict")
    assert script.bodies[1][prompt] == [9, 8, 7, 3, 4]
    if kind == "llama.cpp":
        assert script.bodies[1][most] == 7


def test_a_stream_that_ends_without_its_end_is_cut():
    """Hand: the server says [DONE] before it said why; all tokens there is a length stop."""
    vllm = FakeVLLM()
    vllm.answers = [vllm.says([3, 4], finish=None), vllm.says([5])]
    events, _, report = play(vllm, *one())
    assert joined(events) == (3, 4, 5) and report["num_retries"] == 1
    vllm.answers = [vllm.says([3] * 9, finish=None)]
    events, _, _ = play(vllm, *one())
    assert joined(events) == (3,) * 9 and events[-1].stop is StopReason.LENGTH


@pytest.mark.parametrize("at", ["first", "between", "total"])
def test_every_wait_has_a_timer(at):
    """Hand: a server that stalls, at the start or in the middle. Kills: a wait without an end."""
    waits = {"connect": 5.0, "first": 5.0, "between": 5.0, "total": 20.0} | {at: 0.3}
    vllm = FakeVLLM()
    stalled = vllm.says(30.0, [3]) if at == "first" else vllm.says([3], 30.0, [4])
    vllm.answers = [stalled, vllm.says([4, 5])]
    started = time.monotonic()
    with fake(vllm) as url, connected(url) as engine:
        engine._wire.waits = Waits(**waits)  # not before: a busy machine may look at the server for longer
        engine._fleet._waits = engine._wire.waits
        events, failures = run_to_end(engine, [one()])
    assert time.monotonic() - started < 15
    if at == "total":
        assert "0.3 s in total" in failures["a"] and joined(events["a"]) == (3,)
    else:
        assert not failures and joined(events["a"]) == ((4, 5) if at == "first" else (3, 4, 5))


BROKEN = {
    "too few logprobs": (
        lambda s: s.says([3, 4], logprobs={"token_logprobs": [-1.0]}),
        "1 logprobs for 2 tokens",
    ),
    "no logprobs": (lambda s: s.says([3, 4], logprobs=None), "logprobs"),
    "no ids": (lambda s: s.says([3, 4], token_ids=None), "token_ids"),
    "not a number": (lambda s: s.says([3], logprobs={"token_logprobs": [None]}), "NoneType"),
    "a logprob above 0": (
        lambda s: s.says([3], logprobs={"token_logprobs": [0.5]}),
        "logprob of a sampled token is 0.5",
    ),
    "minus infinity": (
        lambda s: s.says([3], logprobs={"token_logprobs": [-3.4e38]}),
        "logprob of a sampled token",
    ),
    "too many tokens": (lambda s: s.says([3] * 10), "10 tokens where 9"),
    "another prompt": (lambda s: s.says([3], prompt_token_ids=[1, 2]), "a prompt of 2 ids"),
    "no JSON": (lambda s: s.says(b"data: {nonsense\n\n"), "not JSON"),
    "an error": (
        lambda s: s.says(b'data: {"error": {"message": "bad", "type": "invalid_request_error"}}\n\n'),
        "bad",
    ),
}


@pytest.mark.parametrize("name", sorted(BROKEN))
def test_an_answer_that_cannot_be_true_is_a_failure(name):
    """Hand: nothing is patched or guessed, and it is not tried again in the hope of better."""
    make, words = BROKEN[name]
    vllm = FakeVLLM()
    vllm.answers = [make(vllm)]
    events, failures, report = play(vllm, *one())
    assert joined(events) == () and words in failures["a"] and report["num_retries"] == 0


def test_what_came_before_a_failure_is_reported_first():
    """Hand: two good tokens, then nonsense: the tokens are the record's, the ask fails."""
    vllm = FakeVLLM()
    vllm.answers = [vllm.says([3, 4], b"data: []\n\n", [5])]
    with fake(vllm) as url, connected(url) as engine:
        engine.submit(*one())
        events = []
        while engine.num_live:
            events += engine.step()
    assert [type(e).__name__ for e in events] == ["Sampled", "Failed"]
    assert events[0].tokens == (3, 4) and events[0].stop is None


def test_llamacpp_leaves_out_tokens_within_a_character_and_is_found_out():
    """Golden, from process_token in its source: such tokens are never sent."""
    script = FakeLlamaCpp()
    script.answers = [script.says([3, 4], unsent=1)]
    _, failures, _ = play(script, *one())
    assert "sampled 3 tokens and sent 2" in failures["a"]


def test_sglang_that_skips_tokens_is_found_out():
    """Hand: a message says that four tokens were made and shows three."""
    script = FakeSGLang()
    script.answers = [script.says([3, 4, 5], completion_tokens=4)]
    _, failures, _ = play(script, *one())
    assert "3 entries in output_token_logprobs where 4 tokens are new" in failures["a"]


def test_an_abort_closes_the_stream_and_keeps_what_came():
    """Hand: one chunk was reported, two tokens came since; the server sees the connection close."""
    vllm = FakeVLLM()
    vllm.answers = [vllm.says([3], [4], [5], 30.0, [6])]
    with fake(vllm) as url, connected(url) as engine:
        engine.submit(*one(chunk=1))
        seen = []
        while len(seen) < 1:
            seen += engine.step()
        wait_until(lambda: len(engine._fleet._flights["a"].made) == 3)
        rest = engine.abort("a")
        assert joined([*seen, rest]) == (3, 4, 5) and rest.stop is StopReason.INTERRUPTED
        assert engine.num_live == 0 and engine.step() == []


def test_an_abort_before_anything_came():
    """Hand: no tokens, the client's version."""
    vllm = FakeVLLM()
    vllm.answers = [vllm.says(30.0, [6])]
    with fake(vllm) as url, connected(url, version=7) as engine:
        engine.submit(*one())
        rest = engine.abort("a")
        assert (rest.tokens, rest.stop, rest.version) == ((), StopReason.INTERRUPTED, 7)
        engine.submit(*one())  # the name is free again


def test_no_more_in_flight_than_told():
    """Hand: three at once; the fake counts how many are open."""
    vllm, most, now = FakeVLLM(), [0], [0]

    def slow(body):
        now[0] += 1
        most[0] = max(most[0], now[0])

        def messages():
            yield 0.05
            now[0] -= 1
            yield vllm.message(body, [3], "stop")

        return messages()

    vllm.answers = [slow] * 12
    asks = [ask(f"a{i}", [9, 8, 7], max_tokens=9) for i in range(12)]
    with fake(vllm) as url, connected(url, max_in_flight=3) as engine:
        events, failures = run_to_end(engine, asks)
    assert not failures and most[0] <= 3 and all(joined(events[command.ask]) == (3,) for command, _ in asks)


def test_l03_answers_are_joined_by_name():
    """Case L03: contexts differ and answers come in another order; each goes to its own ask."""
    vllm = FakeVLLM()
    token = {101: 3, 102: 4, 103: 5}
    vllm.answers = [
        lambda body: [
            0.02 * (104 - body["prompt"][-1]),
            vllm.message(body, [token[body["prompt"][-1]]], "stop"),
        ]
    ] * 3
    contexts = {"0": [9, 101], "1": [9, 102], "2": [8, 103]}
    asks = [ask(name, ids, max_tokens=9) for name, ids in contexts.items()]
    with fake(vllm) as url, connected(url) as engine:
        events, _ = run_to_end(engine, asks)
    assert {name: joined(found) for name, found in events.items()} == {"0": (3,), "1": (4,), "2": (5,)}


def test_our_server_that_is_full_is_waited_for():
    """Hand: both places are taken, so all six asks meet a 429; once they are free all come through."""
    engine = SlowEngine(MODEL, characters(()))
    asks = [ask(f"a{i}", [9, 8, 7], max_tokens=20) for i in range(6)]
    server = serve(engine, limits=Limits(max_open=2))
    with server.running(), connected(server.url, retries=200) as remote:
        for command, prefix in (ask(f"b{i}", [9, 8, 7], max_tokens=240) for i in range(2)):
            remote.submit(command, prefix)
        wait_until(lambda: server.jobs.num_open == 2)
        for command, prefix in asks:
            remote.submit(command, prefix)
        wait_until(lambda: remote.report["num_retries"] >= 6)
        remote.abort("b0"), remote.abort("b1")
        events, failures = run_to_end(remote, [])
        assert not failures
    assert {name: len(joined(found)) for name, found in events.items()} == {c.ask: 20 for c, _ in asks}


def test_our_server_that_dies_is_a_failure_with_words():
    """Hand: the server stops in the middle; the ask fails after its retries, with the address."""
    engine = SlowEngine(MODEL, characters(()))
    engine.pause = 0.3  # longer in all than the server's grace for open streams
    command, prefix = ask("a", [9, 8, 7], max_tokens=240, chunk=8)
    with serve(engine).running() as server, connected(server.url, retries=1, backoff=0.01) as remote:
        remote.submit(command, prefix)
        events = list(remote.step())
        server._uvicorn.should_exit = True
        while remote.num_live:
            events += remote.step()
    assert isinstance(events[-1], Failed) and server.url in events[-1].message
    assert len(joined([e for e in events if not isinstance(e, Failed)])) < 240


def test_messages_cut_anywhere_are_put_together():
    """Metamorphic: the bytes of a stream in pieces of three, with CRLF and comments between the messages."""
    vllm = FakeVLLM()

    def answer(body):
        messages = [vllm.message(body, [3, 4]), vllm.message(body, [5], "stop")]
        data = b": ping\r\n\r\n" + b"".join(b"data: %b\r\n\r\n" % json.dumps(m).encode() for m in messages)
        return [data[i : i + 3] for i in range(0, len(data), 3)]

    vllm.answers = [answer]
    events, failures, report = play(vllm, *one())
    assert joined(events) == (3, 4, 5) and not failures and report["num_retries"] == 0


def test_what_arrives_on_a_closed_stream_is_not_taken():
    """Hand: a message was read just before the ask was held; it belongs to nobody any more."""
    vllm = FakeVLLM()
    vllm.answers = [vllm.says([3], 30.0, [4])] * 2
    with fake(vllm) as url, connected(url) as engine:
        engine.submit(*one())
        flight = engine._fleet._flights["a"]
        wait_until(lambda: flight.made == [3])
        epoch = flight.epoch
        engine.hold()
        with pytest.raises(asyncio.CancelledError):
            engine._fleet._change(flight, epoch, lambda: flight.take(Part((4,), (-1.0,)), 0))
        engine._fleet._fail(flight, epoch, "late")
        assert flight.made == [3] and joined(engine.step()) == (3,) and engine.num_live == 1


def test_reports_of_the_server_end_where_the_clients_do():
    """Closed form: the largest divisor of the chunk up to 16; 16 where only the end is due."""
    found = {chunk: server_chunk(chunk) for chunk in (0, 1, 5, 7, 8, 9, 17, 24, 64, 100)}
    assert found == {0: 16, 1: 1, 5: 5, 7: 7, 8: 8, 9: 9, 17: 1, 24: 12, 64: 16, 100: 10}
