"""New weights while requests are in flight."""

from __future__ import annotations

import threading

import pytest
import torch
from serve_help import SlowEngine, ask, characters, client, config, run, serve, stream, wait_until

from rollwright.engine.checkpoint import load_model, save_model
from rollwright.engine.inprocess import LocalEngine
from rollwright.engine.model import new_model

PATH = "/v1/completions"


@pytest.fixture
def models(tmp_path):
    """A model that is served and one to put in its place, as a checkpoint."""
    torch.manual_seed(0)
    old, new = new_model(config(), 0), new_model(config(), 1)
    save_model(new, tmp_path / "new")
    return old, tmp_path / "new"


def update(http, path, version):
    return http.post("/rollwright/weights", json={"path": str(path), "version": version})


def test_what_comes_after_is_of_the_new_weights_alone(models):
    """Other implementation (cases W01, W02): a fresh engine with the new weights, bit for bit, although the
    same prompt was cached under the old ones."""
    old, path = models
    command, prefix = ask("a", [5, 9, 30, 7], max_tokens=20)
    body = {"prompt": prefix, "max_tokens": 20, "rollwright": {"stream": command.stream}}
    with serve(LocalEngine(old, characters(()))).running() as server, client(server) as http:
        before = http.post(PATH, json=body).json()
        assert update(http, path, 3).json() == {"version": 3, "in_flight": 0}
        after = http.post(PATH, json=body).json()
        assert http.get("/version").json()["weights"] == 3
    expected = run(LocalEngine(load_model(path), characters(())), [(command, prefix)])["a"]
    (chunk,) = after["choices"][0]["rollwright"]["chunks"]
    assert tuple(chunk["tokens"]) == expected.tokens and tuple(chunk["logprobs"]) == expected.logprobs
    assert before["rollwright"] == {"versions": [0]} and after["rollwright"] == {"versions": [3]}
    assert chunk["tokens"] != before["choices"][0]["rollwright"]["chunks"][0]["tokens"]


def test_a_stream_that_straddles_the_update_says_so_token_by_token(models):
    """Hand: chunks of the old version, then of the new one, never one of both; the record has two nodes."""
    old, path = models
    engine = SlowEngine(old, characters(()))
    found = []
    with serve(engine).running() as server, client(server) as http:
        body = {"prompt": "ABC", "max_tokens": 200, "seed": 1, "rollwright": True}
        thread = threading.Thread(target=lambda: found.extend(stream(http, "/rollout/r" + PATH, body)))
        thread.start()
        wait_until(lambda: server.jobs.metrics.generation_tokens > 5)
        assert update(http, path, 1).json()["in_flight"] == 1
        thread.join(20)
        record = http.get("/rollout/r").json()
    chunks = [c for m in found[:-1] for c in m["choices"][0]["rollwright"]["chunks"]]
    versions = [v for c in chunks for v in [c["version"]] * len(c["tokens"])]
    assert len(versions) == 200 and versions == sorted(versions) and set(versions) == {0, 1}
    sampled = [n for n in record["groups"][0]["nodes"].values() if n["origin"] == "sampled"]
    assert [(n["version"], len(n["tokens"])) for n in sampled] == [
        (0, versions.count(0)),
        (1, versions.count(1)),
    ]


def test_an_update_that_fails_changes_nothing(models, tmp_path):
    """Case W02. Hand: no version moves and no weight changes unless the whole checkpoint is in place."""
    old, path = models
    save_model(new_model(config(num_layers=3), 0), tmp_path / "deeper")
    (tmp_path / "torn").mkdir()
    for file in path.iterdir():
        data = file.read_bytes()
        (tmp_path / "torn" / file.name).write_bytes(data[: len(data) // 2])
    kept = {name: p.clone() for name, p in old.named_parameters()}
    with serve(LocalEngine(old, characters(()))).running() as server, client(server) as http:
        for folder, words in (("deeper", "another architecture"), ("torn", ""), ("none", "none")):
            response = update(http, tmp_path / folder, 5)
            assert response.status_code == 400 and words in response.json()["error"]["message"]
        assert http.get("/version").json()["weights"] == 0
        assert all(torch.equal(p, kept[name]) for name, p in old.named_parameters())
        assert update(http, path, 6).status_code == 200
        assert update(http, path, 6).status_code == 409 and update(http, path, 5).status_code == 409
        assert http.get("/version").json()["weights"] == 6
        assert http.post("/rollwright/weights", json={"path": str(path)}).status_code == 400
        assert http.post(PATH, json={"prompt": "A", "max_tokens": 2}).json()["rollwright"]["versions"] == [6]
