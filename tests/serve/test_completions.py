"""`/v1/completions`: what is sampled, in which shape, and what is refused."""

from __future__ import annotations

import pytest
from serve_help import CHARACTERS, MODEL, ScriptedEngine, ask, characters, client, run, serve, stream
from tokenizers import AddedToken
from tokenizers.processors import TemplateProcessing

from rollwright.chat import ChatTemplate
from rollwright.engine.checkpoint import Tokenizer
from rollwright.engine.inprocess import LocalEngine
from rollwright.tasks.tokenizer import byte_tokenizer
from rollwright.tree import Sampling, StopReason

PATH = "/v1/completions"


@pytest.fixture(scope="module")
def http():
    with serve(name="tiny").running() as server, client(server) as http:
        yield http


def complete(http, **body):
    response = http.post(PATH, json=body)
    assert response.status_code == 200, response.text
    return response.json()


def exact(command):
    """The fields of our own that name a submit's noise."""
    return {"stream": command.stream, "start": command.start, "num_top": command.num_top}


SAMPLINGS = {
    "plain": (Sampling(), {}),
    "cold": (Sampling(temperature=0.7), {"temperature": 0.7}),
    "greedy": (Sampling(temperature=0.0), {"temperature": 0}),
    "cut": (Sampling(0.9, 0.8, 20, 0.01), {"temperature": 0.9, "top_p": 0.8, "top_k": 20, "min_p": 0.01}),
    "stops": (Sampling(stop_strings=("A", "((")), {"stop": ["A", "(("]}),
    "stop ids": (Sampling(stop_ids=(11, 14)), {"stop_token_ids": [11, 14]}),
}


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("name", sorted(SAMPLINGS))
def test_equals_the_engine_bit_for_bit(http, name, is_streamed):
    """Other implementation: the engine in this process. Kills: a field that never reaches it, a float
    rounded on the way, a chunk lost or doubled."""
    sampling, fields = SAMPLINGS[name]
    command, prefix = ask("a", [5, 9, 30, 7], max_tokens=40, sampling=sampling, num_top=3)
    expected = run(LocalEngine(MODEL, characters()), [(command, prefix)])["a"]
    body = {"prompt": prefix, "max_tokens": 40, "rollwright": exact(command), **fields}
    if is_streamed:
        pieces = [m["choices"][0] for m in stream(http, PATH, body)[:-1]]
        chunks = [chunk for piece in pieces for chunk in piece["rollwright"]["chunks"]]
        text = "".join(piece["text"] for piece in pieces)
    else:
        choice = complete(http, **body)["choices"][0]
        chunks, text = choice["rollwright"]["chunks"], choice["text"]
    got = {
        key: tuple(value for chunk in chunks for value in chunk[key] or ())
        for key in ("tokens", "logprobs", "entropies", "kept_masses")
    }
    tops = tuple(tuple(map(tuple, at)) for chunk in chunks for at in chunk["top"])
    stop = chunks[-1]["stop"]
    assert (got["tokens"], got["logprobs"], got["entropies"], got["kept_masses"], tops) == expected.exact[:5]
    assert stop == expected.stop.value
    whole = characters().decode(expected.tokens, skip_special=True)
    if stop == "stop" and not sampling.stop_ids:
        whole = whole[: min(whole.find(s) for s in sampling.stop_strings if s in whole)]
    elif stop == "stop":
        whole = whole[:-1]
    assert text == whole.replace("<eos>", "")


def test_streamed_and_whole_answers_are_equal(http):
    """Metamorphic: the same seed gives the same text, ids, logprobs and usage in both ways."""
    body = {"prompt": "HELLO", "max_tokens": 60, "seed": 4, "n": 3, "logprobs": 2, "return_token_ids": True}
    whole = complete(http, **body)
    *pieces, last, done = stream(http, PATH, body | {"stream_options": {"include_usage": True}})
    assert done == "[DONE]" and last["choices"] == [] and last["usage"] == whole["usage"]
    for choice in whole["choices"]:
        mine = [m["choices"][0] for m in pieces if m["choices"][0]["index"] == choice["index"]]
        assert "".join(m["text"] for m in mine) == choice["text"]
        assert [i for m in mine for i in m["token_ids"]] == choice["token_ids"]
        for key in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
            assert [v for m in mine for v in m["logprobs"][key]] == choice["logprobs"][key]
        assert [m["finish_reason"] for m in mine[:-1]] == [None] * (len(mine) - 1)
        assert mine[-1]["finish_reason"] == choice["finish_reason"] in ("stop", "length")
        assert mine[0]["prompt_token_ids"] == choice["prompt_token_ids"] == characters().encode("HELLO")
        assert all("prompt_token_ids" not in m for m in mine[1:])


def test_prompts_of_every_kind(http):
    """Metamorphic: a text and its ids, alone and in lists, sample the same under one seed and place."""
    ids = characters().encode("ABC")
    texts = [complete(http, prompt=p, seed=1, max_tokens=8) for p in ("ABC", ids, ["ABC"], [ids])]
    assert len({answer["choices"][0]["text"] for answer in texts}) == 1
    both = complete(http, prompt=[ids, [9, 9]], seed=1, max_tokens=8, n=2, return_token_ids=True)
    assert [c["index"] for c in both["choices"]] == [0, 1, 2, 3]
    assert [c["prompt_token_ids"] for c in both["choices"]] == [ids, ids, [9, 9], [9, 9]]
    assert both["choices"][0]["text"] == texts[0]["choices"][0]["text"]
    assert len({tuple(c["token_ids"]) for c in both["choices"]}) == 4  # every completion has its own noise
    assert both["usage"] == {"prompt_tokens": 5, "completion_tokens": 32, "total_tokens": 37}


def test_without_a_seed_nothing_repeats(http):
    """Hand. Kills: a constant seed where none was given (case D02)."""
    found = {complete(http, prompt="ABC", max_tokens=20)["choices"][0]["text"] for _ in range(4)}
    assert len(found) == 4


def test_logprobs_are_those_of_what_was_sampled_from(http):
    """Closed form (case L01): at temperature 0.5 the listed alternatives obey p ∝ p₁² of temperature 1."""
    body = {"prompt": "ABC", "max_tokens": 1, "logprobs": 20, "seed": 0, "return_tokens_as_token_ids": True}
    warm = complete(http, **body)["choices"][0]["logprobs"]["top_logprobs"][0]
    cold = complete(http, **body, temperature=0.5)["choices"][0]["logprobs"]["top_logprobs"][0]
    both = sorted(warm.keys() & cold.keys())
    assert len(both) >= 10 and all(name.startswith("token_id:") for name in both)
    first = both[0]
    for name in both[1:]:
        assert cold[name] - cold[first] == pytest.approx(2 * (warm[name] - warm[first]), abs=1e-4)


def test_context_ends_a_completion(http):
    """Hand: 256 positions; the record has the reason that OpenAI's words do not."""
    answer = complete(http, prompt=[5] * 250, max_tokens=10**9, rollwright=True, stop_token_ids=[], seed=8)
    choice = answer["choices"][0]
    assert choice["finish_reason"] == "length"
    assert choice["rollwright"]["chunks"][-1]["stop"] == "context"
    assert answer["usage"]["completion_tokens"] == 6


BAD = [
    ({}, "required field `prompt`", None),
    ({"prompt": ""}, "no tokens", "prompt"),
    ({"prompt": []}, "empty", "prompt"),
    ({"prompt": ["A", 3]}, "mixes", "prompt"),
    ({"prompt": [1, 64]}, "id 64 is outside the vocabulary of 64", "prompt"),
    ({"prompt": [-1]}, ">= 0", "prompt"),
    ({"prompt": [7] * 256}, "leaves no room", "prompt"),
    ({"prompt": "A", "max_tokens": 0}, "expected at least 1", "max_tokens"),
    ({"prompt": "A", "max_tokens": "9"}, "max_tokens: expected `int", "max_tokens"),
    ({"prompt": "A", "temprature": 1}, "did you mean 'temperature'", "temprature"),
    ({"prompt": "A", "temperature": -1}, "temperature is -1", "temperature"),
    ({"prompt": "A", "top_p": 0}, "expected 0 < top_p", "top_p"),
    ({"prompt": "A", "min_p": 2}, "from 0 to 1", "min_p"),
    ({"prompt": "A", "top_k": -2}, ">= -1", "top_k"),
    ({"prompt": "A", "stop": ["x", ""]}, "empty string", "stop"),
    ({"prompt": "A", "stop_token_ids": [64]}, "outside the vocabulary", "stop_token_ids"),
    ({"prompt": "A", "n": 0}, "expected 1 to 128", "n"),
    ({"prompt": "A", "logprobs": 21}, "expected 0 to 20", "logprobs"),
    ({"prompt": "A", "echo": True}, "cannot do", "echo"),
    ({"prompt": "A", "best_of": 3}, "cannot do", "best_of"),
    ({"prompt": "A", "presence_penalty": 0.5}, "cannot do", "presence_penalty"),
    ({"prompt": "A", "stream_options": {"include_usage": True}}, "stream: true", "stream_options"),
    ({"prompt": "A", "rollwright": {"straem": 1}}, "unknown field", "rollwright"),
    ({"prompt": "A", "n": 2, "rollwright": {"stream": 1}}, "one completion", None),
    ({"prompt": "A", "rollwright": {"first": 64}}, "outside the vocabulary", "rollwright.first"),
]


@pytest.mark.parametrize("body, words, param", BAD, ids=[str(b)[:40] for b, _, _ in BAD])
@pytest.mark.parametrize("is_streamed", [False, True])
def test_bad_input_is_refused_with_its_reason(http, body, words, param, is_streamed):
    """Hand. Kills: a field accepted and ignored (case G02), a stream that begins with 200 and an error."""
    body = body | ({"stream": True} if is_streamed and "stream_options" not in body else {})
    response = http.post(PATH, json=body)
    error = response.json()["error"]
    assert response.status_code == 400 and error["type"] == "invalid_request_error"
    assert words in error["message"] and error["param"] == param


def test_what_the_engine_refuses_is_the_clients_error():
    """Hand: a budget of one slot's keys. Kills: 500 for a request that can never fit."""
    engine = LocalEngine(MODEL, characters(), kv_budget_bytes=20_000)
    with serve(engine).running() as server, client(server) as http:
        response = http.post(PATH, json={"prompt": "ABC", "max_tokens": 250})
        assert response.status_code == 400 and "kv_budget" in response.json()["error"]["message"]
        assert complete(http, prompt="ABC", max_tokens=2)["choices"]
        assert server.jobs.num_open == 0


def test_neutral_settings_are_taken(http):
    """Hand: what common clients send by default changes nothing."""
    body = {"prompt": "A", "max_tokens": 4, "seed": 1}
    more = {"echo": False, "best_of": 1, "presence_penalty": 0, "logit_bias": None, "user": "me", "top_k": -1}
    assert complete(http, **body, **more)["choices"] == complete(http, **body)["choices"]


def test_other_paths_and_methods(http):
    """Hand: errors are OpenAI's objects everywhere."""
    assert http.get("/nothing").json()["error"]["type"] == "not_found_error"
    assert http.get(PATH).status_code == 405
    assert http.post(PATH, content=b"{").json()["error"]["message"].startswith("the body is not JSON")
    assert http.post(PATH, content=b"[1]").status_code == 400
    assert http.post(PATH, json={"prompt": "A", "model": "other"}).status_code == 404
    assert http.get("/v1/models").json()["data"][0]["id"] == "tiny"
    assert set("HELLO") <= set(CHARACTERS)


def test_t05_one_begin_token():
    """Case T05. Golden: a raw text gets the tokenizer's begin token, a rendered dialogue has its own."""
    inner = byte_tokenizer()
    inner.add_special_tokens([AddedToken("<bos>", special=True, normalized=False)])
    bos = inner.token_to_id("<bos>")
    inner.post_processor = TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", bos)])
    tokenizer = Tokenizer(inner, "with bos", (1,))
    template = ChatTemplate("{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}", bos="<bos>")
    engine = ScriptedEngine(tokenizer, [([1], StopReason.EOS)] * 4)
    with serve(engine, template).running() as server, client(server) as http:
        complete(http, prompt="Hi")
        complete(http, prompt="Hi", add_special_tokens=False)
        http.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": "Hi"}]})
        http.post("/rollout/r/v1/completions", json={"prompt": "Hi"})
    plain = tokenizer.encode("Hi")
    assert engine.prompts == [[bos, *plain], plain, [bos, *plain], [bos, *plain]]
