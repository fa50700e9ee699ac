"""The routes of the server."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from importlib.metadata import version as package_version
from pathlib import Path
from typing import Any, cast

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from rollwright.engine.inprocess import LocalEngine
from rollwright.errors import RollwrightError
from rollwright.serve.jobs import Jobs
from rollwright.serve.loop import EngineLoop
from rollwright.serve.refusals import Refused
from rollwright.serve.requests import ChatRequest, CompletionRequest, parse
from rollwright.serve.service import Service, Work
from rollwright.serve.weights import update

_LARGE = 1 << 14  # bytes of a request whose text is encoded on another thread
_OPEN_PATHS = frozenset({"/health"})


class WeightsRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Body of ``POST /rollwright/weights``."""

    path: str
    version: int


class Routes:
    """What each path does.

    Args:
        service: turns requests into asks.
        loop: the engine's thread.
        jobs: what is in flight.
    """

    def __init__(self, service: Service, loop: EngineLoop, jobs: Jobs) -> None:
        self.service, self.loop, self.jobs = service, loop, jobs
        self._memory: dict[str, int] = {}
        self._version = 0
        self._is_updating = asyncio.Lock()

    def routes(self) -> list[Route]:
        """Return every route; the protocols stand below each rollout's own address too."""
        found = [
            Route("/health", self.health),
            Route("/metrics", self.metrics),
            Route("/version", self.version),
            Route("/rollwright/weights", self.weights, methods=["POST"]),
        ]
        for base in ("", "/rollout/{rollout_id:path}"):
            found += [
                Route(f"{base}/v1/completions", self.completions, methods=["POST"]),
                Route(f"{base}/v1/chat/completions", self.chat, methods=["POST"]),
                Route(f"{base}/v1/models", self.models),
            ]
        found.append(Route("/rollout/{rollout_id:path}", self.rollout, methods=["GET", "DELETE"]))
        return found

    async def completions(self, request: Request) -> Response:
        body, rollout_id = await self._body(request), request.path_params.get("rollout_id")
        wanted = parse(body, CompletionRequest)
        return Answering(self.jobs, await self.service.completion(wanted, rollout_id, len(body) > _LARGE))

    async def chat(self, request: Request) -> Response:
        body, rollout_id = await self._body(request), request.path_params.get("rollout_id")
        wanted = parse(body, ChatRequest)
        return Answering(self.jobs, await self.service.chat(wanted, rollout_id, len(body) > _LARGE))

    async def models(self, request: Request) -> Response:
        model = {"id": self.service.name, "object": "model", "created": 0, "owned_by": "rollwright"}
        return as_json({"object": "list", "data": [model | {"max_model_len": self.service.context}]})

    async def health(self, request: Request) -> Response:
        error = self.loop.error
        if error is not None:
            raise Refused(str(error), status=503)
        return as_json({"status": "ok"})

    async def version(self, request: Request) -> Response:
        await self._look()
        return as_json(
            {"version": package_version("rollwright"), "server": "rollwright", "weights": self._version}
        )

    async def metrics(self, request: Request) -> Response:
        await self._look()
        page = self.jobs.metrics.text(
            self.service.name, self._memory, self._version, len(self.service.rollouts)
        )
        return PlainTextResponse(page, media_type="text/plain; version=0.0.4")

    async def rollout(self, request: Request) -> Response:
        name = request.path_params["rollout_id"]
        if request.method == "DELETE":
            self.service.rollouts.delete(name)
            return as_json({"id": name, "deleted": True})
        record = self.service.rollouts.get(name).rollout.to_json()
        return Response(await asyncio.to_thread(msgspec.json.encode, record), 200, {}, "application/json")

    async def weights(self, request: Request) -> Response:
        try:
            wanted = msgspec.json.decode(await self._body(request), type=WeightsRequest)
        except msgspec.DecodeError as error:
            raise Refused(
                f"{error}; expected {{'path': a checkpoint folder, 'version': a number}}"
            ) from error
        async with self._is_updating:  # two updates at once would take twice the memory
            num_live = await asyncio.to_thread(update, self.loop, Path(wanted.path), wanted.version)
        return as_json({"version": wanted.version, "in_flight": num_live})

    async def _look(self) -> None:
        """Ask the engine for its report; one in a long step is not waited for."""
        future = asyncio.wrap_future(self.loop.call(lambda engine: _report(cast(LocalEngine, engine))))
        with contextlib.suppress(TimeoutError):
            self._memory, self._version = await asyncio.wait_for(future, 1.0)

    async def _body(self, request: Request) -> bytes:
        limit, body = self.jobs.limits.max_body_bytes, bytearray()
        try:
            async for part in request.stream():
                body += part
                if len(body) > limit:
                    words = f"the body is larger than {limit} bytes, the limit of this server"
                    raise Refused(words, status=413)
        except ClientDisconnect as error:
            raise Refused("the client left before it had sent its request") from error
        return bytes(body)


def _report(engine: LocalEngine) -> tuple[dict[str, int], int]:
    return engine.memory_report(), engine.version


class Answering(Response):
    """Samples while it is sent, and stops the engine's work for it when the client goes away."""

    def __init__(self, jobs: Jobs, work: Work) -> None:
        self.jobs, self.work, self.is_begun = jobs, work, False
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def forward(message: Any) -> None:
            self.is_begun = True
            await send(message)

        answer = self._stream(forward) if self.work.request.stream else self._whole(scope, receive, forward)
        sending = asyncio.create_task(self._guarded(answer, scope, receive, forward))
        leaving = asyncio.create_task(_until_gone(receive))
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, leaving):
                task.cancel()
            results = await asyncio.gather(sending, leaving, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                raise result

    async def _guarded(self, answer: Awaitable[None], scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await answer
        except RollwrightError as error:
            if not self.is_begun:
                await error_response(error)(scope, receive, send)
                return
            await send(_body(_event(error_body(error)), is_last=True))

    async def _whole(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self.jobs.open(self.work.asks, self.work.recorder) as job:
            async for _ in job.pieces():
                pass
        await as_json(self.work.answer.whole(self.work.choices))(scope, receive, send)

    async def _stream(self, send: Send) -> None:
        request, answer = self.work.request, self.work.answer
        async with self.jobs.open(self.work.asks, self.work.recorder) as job:
            async for pieces in job.pieces():
                if not self.is_begun:
                    await send(_STREAM_START)
                events = b"".join(_event(answer.piece(choice, piece)) for choice, piece in pieces)
                await send(_body(events))
        last = b""
        if request.stream_options is not None and request.stream_options.include_usage:
            last = _event(answer.last(self.work.choices))
        await send(_body(last + b"data: [DONE]\n\n", is_last=True))


_STREAM_START = {
    "type": "http.response.start",
    "status": 200,
    "headers": [
        (b"content-type", b"text/event-stream; charset=utf-8"),
        (b"cache-control", b"no-cache"),
        (b"x-accel-buffering", b"no"),
    ],
}


def _event(value: Mapping[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(value) + b"\n\n"


def _body(data: bytes, is_last: bool = False) -> dict[str, Any]:
    return {"type": "http.response.body", "body": data, "more_body": not is_last}


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


# ------------------------------------------------------------------ errors and keys


def error_body(error: Exception) -> dict[str, Any]:
    """Return OpenAI's error object for an error of ours."""
    refused = error if isinstance(error, Refused) else Refused(str(error), status=500)
    return refused.body()


def error_response(error: Exception) -> Response:
    """Return the response for an error: a refusal's own status, 500 for a failure of ours."""
    refused = error if isinstance(error, Refused) else Refused(str(error), status=500)
    headers = {} if refused.retry_after is None else {"retry-after": f"{max(1, round(refused.retry_after))}"}
    return as_json(refused.body(), refused.status, headers)


def as_json(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(value), status, dict(headers or {}), "application/json")


async def _on_error(request: Request, error: Exception) -> Response:
    return error_response(error)


async def _on_http_error(request: Request, error: Exception) -> Response:
    error = cast(HTTPException, error)
    where = f"{request.method} {request.url.path}"
    return error_response(Refused(f"{where}: {error.detail}", status=error.status_code))


async def _on_bug(request: Request, error: Exception) -> Response:
    return error_response(Refused(f"the server failed: {type(error).__name__}: {error}", status=500))


class KeyCheck:
    """Lets through who has the key. ``/health`` is open to all."""

    def __init__(self, app: ASGIApp, key: str) -> None:
        self.app, self.key = app, key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in _OPEN_PATHS or self._is_known(scope):
            await self.app(scope, receive, send)
            return
        refused = Refused(
            "no or a wrong API key; send 'Authorization: Bearer <key>'", status=401, code="invalid_api_key"
        )
        await error_response(refused)(scope, receive, send)

    def _is_known(self, scope: Scope) -> bool:
        given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        return hmac.compare_digest(given, f"Bearer {self.key}".encode())


def make_app(service: Service, loop: EngineLoop, jobs: Jobs, api_key: str | None = None) -> ASGIApp:
    """Return the ASGI application; it starts the engine's thread and ends it."""

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        jobs.attach()
        loop.start()
        yield
        await asyncio.to_thread(loop.close)

    handlers: dict[Any, Callable[..., Any]] = {
        RollwrightError: _on_error,
        HTTPException: _on_http_error,
        Exception: _on_bug,
    }
    routes = Routes(service, loop, jobs).routes()
    app: ASGIApp = Starlette(routes=routes, lifespan=lifespan, exception_handlers=handlers)
    return app if api_key is None else KeyCheck(app, api_key)
