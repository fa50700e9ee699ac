"""`/v1/chat/completions` and rollouts by URL: the model's own ids are never encoded again."""

from __future__ import annotations

import json
import threading

import pytest
from serve_help import BYTES, TEMPLATE, ScriptedEngine, SlowEngine, client, config, serve, stream, wait_until

from rollwright.chat import ChatTemplate
from rollwright.engine.checkpoint import Tokenizer
from rollwright.engine.inprocess import LocalEngine
from rollwright.engine.model import new_model
from rollwright.serve.capture import read_groups
from rollwright.tasks.tokenizer import EOS, byte_tokenizer
from rollwright.tree import Origin, StopReason

PATH = "/v1/chat/completions"
CFG = config(vocab_size=BYTES.vocab_size, max_positions=1024)
MODEL = new_model(CFG, 0)


@pytest.fixture(scope="module")
def server():
    with serve(LocalEngine(MODEL, BYTES), TEMPLATE).running() as server:
        yield server


def chat(http, messages, path=PATH, **body):
    response = http.post(path, json={"messages": messages, "return_token_ids": True, **body})
    assert response.status_code == 200, response.text
    return response.json()


def user(text):
    return {"role": "user", "content": text}


def one_row(record):
    """Return the ids and the mask of the only trajectory."""
    (group,) = read_groups(record)
    (trajectory,) = group.trajectories
    response = group.response(trajectory)
    return [*response.prompt, *response.tokens], [False] * len(response.prompt) + response.is_sampled.tolist()


def test_the_prompt_is_the_template(server):
    """Slow reference: the template rendered and encoded here; tools and variables reach it."""
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    messages = [
        {"role": "system", "content": "S"},
        user([{"type": "text", "text": "A"}, {"type": "text", "text": "B"}]),
    ]
    with client(server) as http:
        answer = chat(http, messages, max_tokens=3, tools=tools)
    text = TEMPLATE.render(
        [{"role": "system", "content": "S"}, user("AB")], tools, add_generation_prompt=True
    )
    assert answer["prompt_token_ids"] == BYTES.encode(text)
    assert answer["choices"][0]["message"]["role"] == "assistant"
    assert answer["object"] == "chat.completion" and answer["usage"]["completion_tokens"] == 3


def test_streamed_and_whole_chats_are_equal(server):
    """Metamorphic: one seed, both ways; bytes of logprobs spell the tokens."""
    body = {"max_tokens": 80, "seed": 3, "n": 2, "logprobs": True, "top_logprobs": 2}
    with client(server) as http:
        whole = chat(http, [user("Hi")], **body)
        *pieces, done = stream(http, PATH, {"messages": [user("Hi")], "return_token_ids": True, **body})
    assert done == "[DONE]"
    for choice in whole["choices"]:
        mine = [m["choices"][0] for m in pieces if m["choices"][0]["index"] == choice["index"]]
        assert mine[0]["delta"]["role"] == "assistant" and all("role" not in m["delta"] for m in mine[1:])
        assert "".join(m["delta"].get("content", "") for m in mine) == choice["message"]["content"]
        assert [i for m in mine for i in m["token_ids"]] == choice["token_ids"]
        entries = [e for m in mine for e in m["logprobs"]["content"]]
        assert entries == choice["logprobs"]["content"] and len(entries) == len(choice["token_ids"])
        assert all(len(e["top_logprobs"]) == 2 for e in entries)
        assert mine[-1]["finish_reason"] == choice["finish_reason"]
    assert pieces[0]["prompt_token_ids"] == whole["prompt_token_ids"]


@pytest.mark.parametrize("stop", [None, ["e", "a", "�"]])
def test_a_recorded_dialogue_uses_ids_as_sampled(server, stop):
    """Slow reference: ids put together here. A random model says bytes that are no text, so encoding its
    answers again could not give its ids; with stop strings the client sees less than was sampled."""
    messages, ids, mask = [], [], []
    with client(server) as http:
        path = f"/rollout/dialogue-{stop is None}/v1/chat/completions"
        for number, question in enumerate(["Hi", "é", "again"]):
            messages.append(user(question))
            if number == 1:  # streamed answers are recorded in the same way
                pieces = stream(
                    http,
                    path,
                    {
                        "messages": messages,
                        "seed": number,
                        "max_tokens": 30,
                        "stop": stop,
                        "return_token_ids": True,
                    },
                )[:-1]
                prompt = pieces[0]["prompt_token_ids"]
                choices = [m["choices"][0] for m in pieces]
                made = [i for c in choices for i in c["token_ids"]]
                content = "".join(c["delta"].get("content", "") for c in choices)
            else:
                answer = chat(http, messages, path, seed=number, max_tokens=30, stop=stop)
                prompt, made = answer["prompt_token_ids"], answer["choices"][0]["token_ids"]
                content = answer["choices"][0]["message"]["content"]
            new = BYTES.encode(f"{EOS if ids and ids[-1] != 1 else ''}[user]{question}{EOS}[assistant]")
            assert prompt == ids + new  # nothing of what was sampled has changed
            ids, mask = prompt + made, mask + [False] * len(new) + [True] * len(made)
            messages.append({"role": "assistant", "content": content, "refusal": None, "tool_calls": None})
        record = http.get(path.partition("/v1")[0]).json()
    assert one_row(record) == (ids, mask)
    assert BYTES.encode(BYTES.decode(ids)) != ids  # the oracle bites
    assert [call["goes_on_from"] for call in record["calls"]] == [None, 0, 1]
    assert [call["rewrite"] for call in record["calls"]] == [None] * 3
    assert record["calls"][2]["messages"] == messages[:-1]


def test_a_rewritten_history_is_another_trajectory(server):
    """Hand: the client changes what the model said; the record says where, and nothing is patched."""
    with client(server) as http:
        path = "/rollout/rewritten/v1/chat/completions"
        first = chat(http, [user("Hi")], path, max_tokens=5, seed=1)
        said = first["choices"][0]["message"]["content"]
        second = chat(
            http,
            [user("Hi"), {"role": "assistant", "content": f"!{said}"}, user("go on")],
            path,
            max_tokens=5,
        )
        record = http.get("/rollout/rewritten").json()
    groups = read_groups(record)
    assert len(groups) == 2 and [len(g.trajectories) for g in groups] == [1, 1]
    assert groups[1].root.tokens == tuple(second["prompt_token_ids"])
    call = record["calls"][1]
    shared = call["left"]["at"]
    before = first["prompt_token_ids"] + first["choices"][0]["token_ids"]
    assert call["goes_on_from"] is None and call["left"]["call"] == 0
    assert before[:shared] == second["prompt_token_ids"][:shared]
    assert before[shared : shared + 1] != second["prompt_token_ids"][shared : shared + 1]


def test_a_template_that_trims_gives_rows_that_were_in_context():
    """Hand (kind of case T02): the template strips what the model said, and the record says so."""
    trims = ChatTemplate(TEMPLATE.text.replace("m.content", "m.content | trim"))
    engine = ScriptedEngine(
        BYTES, [([*BYTES.encode(" yes "), 1], StopReason.EOS), ([*BYTES.encode("no"), 1], StopReason.EOS)]
    )
    with serve(engine, trims).running() as server, client(server) as http:
        path = "/rollout/r/v1/chat/completions"
        said = chat(http, [user("A")], path)["choices"][0]["message"]
        chat(http, [user("A"), said, user("B")], path)
        record = http.get("/rollout/r").json()
    assert said["content"] == " yes "
    groups = read_groups(record)
    assert ["".join(BYTES.decode(n.tokens) for n in g.nodes.values()) for g in groups] == [
        f"[user]A{EOS}[assistant] yes {EOS}",
        f"[user]A{EOS}[assistant]yes{EOS}[user]B{EOS}[assistant]no{EOS}",
    ]
    assert "yes" in record["calls"][1]["rewrite"] and record["calls"][0]["rewrite"] is None
    assert engine.prompts[1] == list(groups[1].root.tokens)


def test_t04_tool_calls_stay_as_they_were_sampled():
    """Case T04. Golden: the arguments' bytes are in the next prompt as sampled, escapes included."""
    sampled = '{"b":1, "a":"\\u00e9"}'
    engine = ScriptedEngine(
        BYTES, [([*BYTES.encode(sampled), 1], StopReason.EOS), ([*BYTES.encode("ok"), 1], StopReason.EOS)]
    )
    with serve(engine, TEMPLATE).running() as server, client(server) as http:
        path = "/rollout/r/v1/chat/completions"
        said = chat(http, [user("A")], path)["choices"][0]["message"]
        assert said["content"] == sampled and json.loads(said["content"]) == {"b": 1, "a": "é"}
        chat(http, [user("A"), said, {"role": "tool", "content": "done"}], path)
        record = http.get("/rollout/r").json()
    ids, mask = one_row(record)
    assert sampled in BYTES.decode(ids) and '{"a"' not in BYTES.decode(ids)
    assert (
        BYTES.decode([i for i, is_sampled in zip(ids, mask, strict=True) if is_sampled])
        == f"{sampled}{EOS}ok{EOS}"
    )


def test_a_client_that_leaves_is_recorded():
    """Hand: the stream is closed in the middle; what was sampled by then is in the tree, interrupted."""
    engine = SlowEngine(MODEL, BYTES)
    with serve(engine, TEMPLATE).running() as server, client(server) as http:
        body = {
            "messages": [user("Hi")],
            "max_tokens": 900,
            "stream": True,
            "seed": 5,
            "return_token_ids": True,
        }
        seen = []
        with http.stream("POST", "/rollout/r/v1/chat/completions", json=body) as response:
            for line in response.iter_lines():
                if line:
                    seen += json.loads(line.removeprefix("data: "))["choices"][0]["token_ids"]
                if len(seen) > 5:
                    break
        wait_until(lambda: http.get("/rollout/r").json()["calls"][0]["num_open"] == 0)
        record = http.get("/rollout/r").json()
    (group,) = read_groups(record)
    (trajectory,) = group.trajectories
    made = group.response(trajectory).tokens
    assert trajectory.stop is StopReason.INTERRUPTED and trajectory.truncated
    assert list(made[: len(seen)]) == seen and len(made) < 200


def test_text_completions_are_recorded_too(server):
    """Slow reference: prompts as text go on from ids as sampled; prompts as ids join where they are equal."""
    with client(server) as http:
        path, messages = "/rollout/plain/v1/completions", {"max_tokens": 12, "return_token_ids": True}
        first = http.post(path, json={"prompt": "Once", "seed": 1, **messages}).json()["choices"][0]
        text = "Once" + BYTES.decode(first["token_ids"])
        second = http.post(path, json={"prompt": text + " and", "seed": 2, **messages}).json()["choices"][0]
        ids = BYTES.encode("Once") + first["token_ids"]
        assert second["prompt_token_ids"] == ids + BYTES.encode(" and")
        third = second["prompt_token_ids"] + second["token_ids"] + [7]
        http.post(path, json={"prompt": third, **messages})
        record = http.get("/rollout/plain").json()
    assert one_row(record)[0][: len(third)] == third
    assert [call["goes_on_from"] for call in record["calls"]] == [None, 0, 1]


def test_rollouts_come_and_go(server):
    """Hand: a rollout is there from its first call until it is deleted; names may hold slashes."""
    name = "countdown/train/7%230"
    with client(server) as http:
        assert http.get(f"/rollout/{name}").status_code == 404
        chat(http, [user("A")], f"/rollout/{name}/v1/chat/completions", max_tokens=2)
        record = http.get(f"/rollout/{name}").json()
        assert record["id"] == "countdown/train/7#0" and len(record["calls"]) == 1
        assert http.get(f"/rollout/{name}/v1/models").status_code == 200
        assert http.delete(f"/rollout/{name}").json()["deleted"]
        assert http.get(f"/rollout/{name}").status_code == 404
        assert http.delete(f"/rollout/{name}").status_code == 404


def test_seeds_of_a_rollout_repeat_it(server):
    """Metamorphic: the same rollout name, calls and seed give the same tokens; another name does not."""
    with client(server) as http:
        found = []
        for name in ("same", "same", "other"):
            path = f"/rollout/{name}/v1/chat/completions"
            found.append([chat(http, [user("A")], path, seed=1, max_tokens=20)["choices"] for _ in range(2)])
            http.delete(f"/rollout/{name}")
    assert found[0] == found[1] != found[2] and found[0][0] != found[0][1]


BAD = [
    ({"messages": []}, "empty", "messages"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "only text", "messages"),
    ({"messages": [user("A")], "top_logprobs": 2}, "logprobs: true", "top_logprobs"),
    ({"messages": [user("A")], "max_completion_tokens": 0}, "at least 1", "max_tokens"),
    ({"messages": [user("A")], "response_format": {"type": "json_object"}}, "cannot do", "response_format"),
    ({"messages": [user("A")], "tool_choice": "required"}, "cannot do", "tool_choice"),
    ({"messages": "A"}, "messages", "messages"),
]


@pytest.mark.parametrize("body, words, param", BAD, ids=[b[1] for b in BAD])
def test_bad_chats_are_refused(server, body, words, param):
    """Hand."""
    with client(server) as http:
        response = http.post(PATH, json=body)
    error = response.json()["error"]
    assert response.status_code == 400 and words in error["message"] and error["param"] == param


def test_without_a_template_chat_is_refused():
    """Hand: the message says what to do instead."""
    with serve(LocalEngine(MODEL, BYTES)).running() as server, client(server) as http:
        response = http.post(PATH, json={"messages": [user("A")]})
        assert response.status_code == 400 and "/v1/completions" in response.json()["error"]["message"]


def test_observations_are_observations(server):
    """Hand: the record's nodes have their origins, so that nothing but samples can be trained."""
    with client(server) as http:
        path = "/rollout/origins/v1/chat/completions"
        said = chat(http, [user("A")], path, max_tokens=4, seed=2)["choices"][0]["message"]
        chat(http, [user("A"), said, user("B")], path, max_tokens=4)
        (group,) = read_groups(http.get("/rollout/origins").json())
    origins = [node.origin for node in group.nodes.values()]
    assert origins == [Origin.PROMPT, Origin.SAMPLED, Origin.OBSERVATION, Origin.SAMPLED]


class CountingTokenizer(Tokenizer):
    """Counts the ids that it encodes, and on which threads."""

    num_encoded = 0

    def encode(self, text):
        ids = super().encode(text)
        self.num_encoded += len(ids)
        self.threads = {*getattr(self, "threads", ()), threading.current_thread().name}
        return ids


def test_p01_only_what_is_new_is_encoded():
    """Case P01. Closed form: 128 turns of 500 new tokens are 64,000 encoded ones, not 4,128,000; and long
    texts are not encoded on the thread that all requests wait for."""
    turns, each = 128, 500
    tokenizer = CountingTokenizer(byte_tokenizer(), "bytes", (1,))
    said = [*BYTES.encode("ok"), 1]
    engine = ScriptedEngine(tokenizer, [(said, StopReason.EOS)] * turns, context=1 << 17)
    frame = len(BYTES.encode(f"[user]{EOS}[assistant]"))
    with serve(engine, TEMPLATE).running() as server, client(server) as http:
        messages, before = [], tokenizer.num_encoded
        for _ in range(turns):
            messages.append(user("x" * (each - frame)))
            response = http.post("/rollout/r/v1/chat/completions", json={"messages": messages}).json()
            messages.append(response["choices"][0]["message"])
        assert tokenizer.num_encoded - before == turns * each == 64_000
        record = http.get("/rollout/r").json()
    ids, mask = one_row(record)
    assert len(ids) == turns * (each + len(said)) and sum(mask) == turns * len(said)
    assert any(name.startswith("asyncio") for name in tokenizer.threads)


def test_several_prompts_in_one_recorded_call(server):
    """Hand: each prompt of a completion is a call of its own, with its own answers."""
    with client(server) as http:
        body = {"prompt": ["one", "two"], "n": 2, "max_tokens": 3, "seed": 1, "return_token_ids": True}
        choices = http.post("/rollout/several/v1/completions", json=body).json()["choices"]
        record = http.get("/rollout/several").json()
    assert [c["prompt"] for c in record["calls"]] == ["one", "two"]
    made = [list(group.response(t).tokens) for group in read_groups(record) for t in group.trajectories]
    assert made == [c["token_ids"] for c in choices]
