"""Clients that leave, limits, keys, failures of the engine, and the pages about the server."""

from __future__ import annotations

import json
import socket
import threading
import time

import httpx
import pytest
from serve_help import MODEL, SlowEngine, characters, client, serve, stream, wait_until

from rollwright.engine.inprocess import LocalEngine
from rollwright.errors import EngineError
from rollwright.serve.jobs import Limits

PATH = "/v1/completions"


def slow(**more) -> SlowEngine:
    """An engine that takes its time and has no end token, so that nothing ends by itself."""
    return SlowEngine(MODEL, characters(()), **more)


def raw_post(server, body: dict) -> socket.socket:
    """Send a request on a socket of our own and leave it open."""
    data = json.dumps(body).encode()
    sock = socket.create_connection((server.host, server.port), timeout=10)
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n"
    sock.sendall(head.encode() + data)
    return sock


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_client_that_leaves_frees_the_engine(is_streamed):
    """Hand: the socket is closed in the middle; nothing decodes on. Kills: a sampler nobody reads."""
    with serve(slow()).running() as server:
        sock = raw_post(
            server, {"prompt": "ABC", "max_tokens": 250, "n": 3, "stream": is_streamed, "seed": 1}
        )
        if is_streamed:
            assert b"200 OK" in sock.recv(4096)
        wait_until(lambda: server.engine.num_live == 3 and server.jobs.metrics.generation_tokens > 6)
        sock.close()
        wait_until(lambda: server.engine.num_live == 0 and server.jobs.num_open == 0)
        made = server.jobs.metrics.generation_tokens
        assert made < 3 * 200
        assert server.jobs.metrics.finished["abort"] == 3
        time.sleep(0.05)
        assert server.jobs.metrics.generation_tokens == made


def test_a_client_that_leaves_while_waiting_frees_its_place():
    """Hand: the second request never got a row. Kills: asks that are only dropped once they decode."""
    with serve(slow(max_batch=1)).running() as server, client(server) as http:
        first = raw_post(server, {"prompt": "ABC", "max_tokens": 250, "seed": 1})
        wait_until(lambda: server.engine.num_live == 1)
        second = raw_post(server, {"prompt": "ABC", "max_tokens": 250})
        wait_until(lambda: server.engine.num_live == 2)
        second.close()
        wait_until(lambda: server.engine.num_live == 1)
        first.close()
        wait_until(lambda: server.engine.num_live == 0)
        assert http.post(PATH, json={"prompt": "A", "max_tokens": 2}).status_code == 200


def test_too_many_are_told_to_come_back():
    """Hand: two places; the third is refused with 429 and a time, and fits once they are free."""
    with serve(slow(), limits=Limits(max_open=2)).running() as server, client(server) as http:
        sock = raw_post(server, {"prompt": "ABC", "max_tokens": 250, "n": 2, "seed": 1})
        wait_until(lambda: server.engine.num_live == 2)
        refused = http.post(PATH, json={"prompt": "A", "max_tokens": 2})
        assert refused.status_code == 429 and int(refused.headers["retry-after"]) >= 1
        assert refused.json()["error"]["type"] == "rate_limit_error"
        sock.close()
        wait_until(lambda: server.jobs.num_open == 0)
        assert http.post(PATH, json={"prompt": "A", "max_tokens": 2, "n": 2}).status_code == 200
        assert http.post(PATH, json={"prompt": "A", "max_tokens": 2, "n": 3}).status_code == 429
        assert "rollwright:requests_refused_total{" in http.get("/metrics").text


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_request_has_a_time_limit(is_streamed):
    """Hand: 0.1 s for a second's work. Kills: a wait without a timer, a decode that goes on after it."""
    limits = Limits(request_timeout_s=0.1)
    body = {"prompt": "ABC", "max_tokens": 250, "seed": 1}
    with serve(slow(), limits=limits).running() as server, client(server) as http:
        if is_streamed:
            *_, last = stream(http, PATH, body)
            error = last["error"]
        else:
            response = http.post(PATH, json=body)
            assert response.status_code == 504
            error = response.json()["error"]
        assert error["type"] == "timeout_error" and "0.1 s" in error["message"]
        wait_until(lambda: server.engine.num_live == 0)


def test_keys():
    """Hand: without the key nothing but /health answers."""
    with serve(api_key="secret").running() as server:
        for key, status in (("", 401), ("Bearer wrong", 401), ("Bearer secret", 200)):
            with client(server, headers={"authorization": key} if key else {}) as http:
                assert http.get("/health").status_code == 200
                for path in ("/v1/models", "/metrics", "/version"):
                    assert http.get(path).status_code == status
                answer = http.post(PATH, json={"prompt": "A", "max_tokens": 1})
                assert answer.status_code == status
                assert http.post("/rollout/r/v1/completions", json={"prompt": "A"}).status_code == status


def test_large_bodies_are_refused():
    """Hand: a limit of 1000 bytes."""
    with serve(limits=Limits(max_body_bytes=1000)).running() as server, client(server) as http:
        assert http.post(PATH, json={"prompt": "A" * 2000}).status_code == 413


class Breaking(SlowEngine):
    """Fails in its third step, by our own error or by a bug."""

    error: Exception = EngineError("the logits are not finite")
    is_broken = True
    num_steps = 0

    def step(self):
        self.num_steps += 1
        if self.is_broken and self.num_steps > 2:
            raise self.error
        return super().step()


@pytest.mark.parametrize("error", [EngineError("the logits are not finite"), ZeroDivisionError("a bug")])
def test_a_failing_engine_answers_everybody_and_goes_on(error):
    """Hand: every request in flight hears of it, /health says so, and the next weights may heal it."""
    engine = Breaking(MODEL, characters(()))
    engine.error = error
    with serve(engine).running() as server, client(server) as http:
        statuses = []
        body = {"prompt": "ABC", "max_tokens": 250, "n": 2, "seed": 1}
        threads = [
            threading.Thread(target=lambda: statuses.append(http.post(PATH, json=body))) for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        assert [r.status_code for r in statuses] == [500] * 3
        assert all(str(error) in r.json()["error"]["message"] for r in statuses)
        assert http.get("/health").status_code == 503 and server.jobs.num_open == 0
        engine.is_broken = False
        assert http.post(PATH, json={"prompt": "A", "max_tokens": 2}).status_code == 200
        assert http.get("/health").status_code == 200


def test_a_shutdown_in_the_middle_ends_the_thread():
    """Hand: a stream is open; the server stops within its grace and the engine's thread with it."""
    started = time.monotonic()
    with serve(slow()).running() as server:
        sock = raw_post(server, {"prompt": "ABC", "max_tokens": 250, "stream": True, "seed": 1})
        assert sock.recv(100)
    assert time.monotonic() - started < 8
    assert not server.loop._thread.is_alive()
    with pytest.raises((ConnectionError, httpx.ConnectError)):
        client(server).get("/health")


def test_metrics_page():
    """Golden names (vLLM's, with our prefix), counts by hand."""
    with (
        serve(LocalEngine(MODEL, characters(())), name='a "b"\\').running() as server,
        client(server) as http,
    ):
        answer = http.post(PATH, json={"prompt": "ABC", "max_tokens": 7, "n": 2, "seed": 2}).json()
        page = http.get("/metrics").text
    lines = [line for line in page.splitlines() if not line.startswith("#")]
    label = '{model_name="a \\"b\\"\\\\"}'
    values = {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}
    assert values["rollwright:prompt_tokens_total" + label] == 6  # computed for each of the two
    assert values["rollwright:generation_tokens_total" + label] == answer["usage"]["completion_tokens"] == 14
    assert values["rollwright:num_requests_running" + label] == 0
    assert values["rollwright:weights_version" + label] == 0
    assert sum(v for k, v in values.items() if "request_success_total" in k) == 2
    buckets = [v for k, v in values.items() if k.startswith("rollwright:e2e_request_latency_seconds_bucket")]
    assert buckets == sorted(buckets) and buckets[-1] == 2
    assert values["rollwright:e2e_request_latency_seconds_count" + label] == 2
    for line in page.splitlines():
        assert line.startswith("#") or line.startswith("rollwright:")
