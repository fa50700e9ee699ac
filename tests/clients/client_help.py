"""The client engine against a real server, and small servers that answer as others document it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

sys.path.insert(0, str(Path(__file__).parents[1] / "serve"))

from serve_help import BYTES, MODEL, SlowEngine, ask, characters, config, serve, wait_until

from rollwright.clients.openai import OpenAIEngine
from rollwright.clients.wire import Waits
from rollwright.events import Failed

__all__ = ["BYTES", "MODEL", "SlowEngine", "ask", "characters", "config", "serve", "wait_until"]

PATIENT = Waits(connect=20.0, first=60.0, between=60.0, total=100.0)  # the machine may be busy


@contextlib.contextmanager
def connected(url: str, **more: Any) -> Iterator[OpenAIEngine]:
    engine = OpenAIEngine(url, **({"waits": PATIENT, "backoff": 0.01} | more))
    try:
        yield engine
    finally:
        engine.close()


def run_to_end(engine, asks, seconds: float = 100.0):
    """Submit everything and step until idle; return (events, failures) by ask."""
    events: dict[str, list] = defaultdict(list)
    failures: dict[str, str] = {}
    for command, prefix in asks:
        engine.submit(command, prefix)
    deadline = time.monotonic() + seconds
    while engine.num_live:
        assert time.monotonic() < deadline, "the engine hangs"
        for event in engine.step():
            if isinstance(event, Failed):
                failures[event.ask] = event.message
            else:
                events[event.ask].append(event)
    return events, failures


class Script:
    """What a fake server says: for every request in turn a function of its body to messages or a response."""

    def __init__(self, kind: str, path: str, *answers: Callable[[dict], Any], warm_logprobs: bool = False):
        self.kind, self.path, self.answers = kind, path, list(answers)
        self.bodies: list[dict] = []
        self.num_cut = 0

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/v1/models", self.models),
                Route(self.path, self.answer, methods=["POST"]),
                Route("/update_weights_from_disk", self.update, methods=["POST"]),
            ]
        )

    async def models(self, request: Request) -> Response:
        return JSONResponse({"data": [{"id": "m", "owned_by": self.kind}]})

    async def update(self, request: Request) -> Response:
        self.bodies.append(await request.json())
        return JSONResponse({"success": True, "message": ""})

    async def answer(self, request: Request) -> Response:
        body = await request.json()
        is_probe = body.get("max_tokens", body.get("n_predict")) == 1 or (
            body.get("sampling_params", {}).get("max_new_tokens") == 1
        )
        if is_probe and len(body.get("prompt", body.get("input_ids", ()))) == 2:
            said = self.probe(body)
        else:
            self.bodies.append(body)
            said = self.answers.pop(0)(body)
        return (
            said
            if isinstance(said, Response)
            else StreamingResponse(self._lines(said), media_type="text/event-stream")
        )

    def probe(self, body: dict) -> Any:
        raise NotImplementedError

    async def _lines(self, messages) -> Any:
        for message in messages:
            if message == "cut":
                self.num_cut += 1
                raise ConnectionResetError
            if isinstance(message, float):
                await asyncio.sleep(message)
            elif isinstance(message, bytes):
                yield message
            else:
                yield f"data: {json.dumps(message)}\n\n".encode()
        yield b"data: [DONE]\n\n"


@contextlib.contextmanager
def fake(script: Script) -> Iterator[str]:
    """Run a fake server on a thread and yield its address."""
    config = uvicorn.Config(script.app(), port=0, log_level="critical", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    wait_until(lambda: server.started)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(10)
