"""The viewer's routes: static files, and what pages ask for as JSON. Everything is read only.

The page is open to whoever knows its address: that holds a random token, every other path is refused, and
so is a request whose Host is another name (a site that lets its own name point here). The content policy lets
scripts come from this server only and none from a text, whatever a model wrote.
"""

from __future__ import annotations

import hmac
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib.resources import files
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rollwright.errors import ConfigError, DataError, RollwrightError, StoreError
from rollwright.view.diff import diff
from rollwright.view.run import Run

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
    "trusted-types 'none'"
)
_HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_STATIC = files("rollwright.view") / "static"
_NAMES = frozenset(file.name for file in _STATIC.iterdir())


class Api:
    """What each address gives.

    Args:
        runs: in the order in which pages number them.
    """

    def __init__(self, runs: Sequence[Run]) -> None:
        self.runs = runs

    def routes(self) -> list[Route]:
        """Return every route below the token."""
        group = "/api/runs/{run:int}/group/{kind}/{step:int}/{group_index:int}"
        pages: dict[str, Callable[[Request], Any]] = {
            "/api/runs": lambda _: [run.status() for run in self.runs],
            "/api/runs/{run:int}": lambda r: self._run(r).status(),
            "/api/runs/{run:int}/overview": lambda r: self._run(r).overview(),
            "/api/runs/{run:int}/series": lambda r: self._run(r).series(r.query_params.getlist("name")),
            "/api/runs/{run:int}/timeline": self._timeline,
            "/api/runs/{run:int}/columns": lambda r: self._run(r).lists.columns(r.query_params["table"]),
            "/api/runs/{run:int}/rows": self._rows,
            group: lambda r: self._run(r).group(*_place(r)),
            f"{group}/node": lambda r: self._run(r).node(*_place(r), r.query_params["name"]),
            group.replace("/group/", "/rollout/") + "/{index:int}": self._rollout,
            "/api/diff": self._diff,
        }
        found = [Route(path, _answering(page)) for path, page in pages.items()]
        return [*found, Route("/", _static), Route("/{name:str}", _static)]

    def _run(self, request: Request) -> Run:
        return self.run(request.path_params["run"])

    def run(self, number: int) -> Run:
        """Return a run by its number.

        Raises:
            DataError: there is none.
        """
        if not 0 <= number < len(self.runs):
            raise DataError(f"there is no run {number}; {len(self.runs)} are open, numbered from 0")
        return self.runs[number]

    def _timeline(self, request: Request) -> Any:
        given = request.query_params
        until = _number(given, "until", float) if "until" in given else None
        return self._run(request).timeline(_number(given, "since", float, 0.0), until)

    def _rows(self, request: Request) -> Any:
        given = request.query_params
        return self._run(request).lists.page(
            given.get("table", "rollouts"),
            given.get("where", ""),
            given.get("sort", ""),
            given.get("desc", "0") == "1",
            _number(given, "offset", int, 0),
            _number(given, "limit", int, 100),
        )

    def _rollout(self, request: Request) -> Any:
        return self._run(request).rollout(*_place(request), request.path_params["index"])

    def _diff(self, request: Request) -> Any:
        return diff(*(self._named(request.query_params.get(name, "")) for name in ("a", "b")))

    def _named(self, name: str) -> Any:
        """Return the rollout of ``run/kind/step/group_index/index``."""
        parts = name.split("/")
        try:
            run, kind, (step, group_index, index) = int(parts[0]), parts[1], map(int, parts[2:])
        except (ValueError, IndexError) as error:
            raise DataError(f"{name!r} names no rollout; expected run/kind/step/group/index") from error
        return self.run(run).rollout(kind, step, group_index, index)


def _place(request: Request) -> tuple[str, int, int]:
    given = request.path_params
    return given["kind"], given["step"], given["group_index"]


def _number(given: Mapping[str, str], name: str, kind: Callable[[str], Any], default: Any = None) -> Any:
    try:
        return kind(given[name]) if name in given else default
    except ValueError as error:
        raise DataError(f"{name}={given[name]!r}; expected a number") from error


def _answering(page: Callable[[Request], Any]) -> Callable[[Request], Response]:
    """Return an endpoint; no coroutine, so that it runs on a thread and queries stand in no one's way."""

    def endpoint(request: Request) -> Response:
        try:
            return _json(page(request))
        except KeyError as error:
            return _refused(DataError(f"the address lacks {error}"))
        except RollwrightError as error:
            return _refused(error)

    return endpoint


def plain(value: Any) -> Any:
    """Return a value as JSON can hold it: numbers that are not finite as words, never as null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


def _json(value: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(plain(value)), status, media_type="application/json")


def _refused(error: RollwrightError) -> Response:
    is_ours = isinstance(error, (ConfigError, DataError, StoreError))
    return _json({"error": str(error)}, 400 if is_ours else 500)


def _static(request: Request) -> Response:
    name = request.path_params.get("name", "index.html")
    kind = next((_TYPES[end] for end in _TYPES if name.endswith(end)), None)
    if kind is None or name not in _NAMES:
        return _json({"error": f"there is no page {name!r}"}, 404)
    return Response((_STATIC / name).read_bytes(), media_type=kind)


class Gate:
    """Lets through who knows the token and calls this server by its own name, and adds the headers."""

    def __init__(self, app: ASGIApp, token: str, hosts: frozenset[str]) -> None:
        self.app, self.token, self.hosts = app, token, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        host = dict(scope["headers"]).get(b"host", b"").decode("latin-1")
        given = scope["path"].split("/")[1]
        if host not in self.hosts or not hmac.compare_digest(given.encode(), self.token.encode()):
            await _json({"error": "open the whole address that `rollwright view` printed"}, 403)(
                scope, receive, _with_headers(send)
            )
            return
        await self.app(scope, receive, _with_headers(send))


def _with_headers(send: Send) -> Callable[[Message], Awaitable[None]]:
    async def wrapped(message: Message) -> None:
        if message["type"] == "http.response.start":
            more = [(name.encode(), value.encode()) for name, value in _HEADERS.items()]
            message = {**message, "headers": [*message["headers"], *more]}
        await send(message)

    return wrapped


def make_app(runs: Sequence[Run], token: str, port: int) -> ASGIApp:
    """Return the ASGI application for runs, below ``/<token>/``, called by this machine's own name only."""
    hosts = frozenset(f"{name}:{port}" for name in ("127.0.0.1", "localhost"))
    return Gate(Starlette(routes=[Mount(f"/{token}", routes=Api(runs).routes())]), token, hosts)
