"""Start the server: in this process, or on a thread for tests and benchmarks."""

from __future__ import annotations

import contextlib
import gc
import socket
import threading
import time
from collections.abc import Iterator

import uvicorn

from rollwright.chat import ChatTemplate, load_template
from rollwright.engine.checkpoint import Tokenizer, load_model, load_tokenizer
from rollwright.engine.inprocess import LocalEngine
from rollwright.engine.shipped import find_model
from rollwright.errors import ConfigError, EngineError
from rollwright.serve.app import make_app
from rollwright.serve.jobs import Jobs, Limits
from rollwright.serve.loop import EngineLoop
from rollwright.serve.metrics import Metrics
from rollwright.serve.service import Service


class Server:
    """An engine behind HTTP.

    Args:
        engine: nobody else may use it from now on.
        tokenizer, template: the model's own.
        name: the model's name for clients.
        host, port: where to listen; port 0 takes a free one.
        limits: what is taken on.
        api_key: what clients must send, if anything.

    Raises:
        ConfigError: the address cannot be had.
    """

    def __init__(
        self,
        engine: LocalEngine,
        tokenizer: Tokenizer,
        template: ChatTemplate | None = None,
        *,
        name: str = "model",
        host: str = "127.0.0.1",
        port: int = 0,
        limits: Limits | None = None,
        api_key: str | None = None,
    ) -> None:
        self.engine = engine
        limits = limits or Limits()
        self.loop = EngineLoop(engine)
        self.jobs = Jobs(self.loop, limits, Metrics())
        cfg = engine.cfg
        self.service = Service(name, tokenizer, template, cfg.max_positions, cfg.vocab_size, limits)
        app = make_app(self.service, self.loop, self.jobs, api_key)
        config = uvicorn.Config(app, log_level="warning", access_log=False, timeout_graceful_shutdown=2)
        self._uvicorn = uvicorn.Server(config)
        try:
            self._socket = socket.create_server((host, port), backlog=1024)
            # asyncio leaves this off on a socket that was made for it, and every answer may wait 40 ms.
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            raise ConfigError(
                f"cannot listen on {host}:{port} ({error}); choose another with --port"
            ) from error
        self.host, self.port = self._socket.getsockname()[:2]

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def run(self) -> None:
        """Serve until the process is told to stop."""
        self._uvicorn.run(sockets=[self._socket])

    @contextlib.contextmanager
    def running(self) -> Iterator[Server]:
        """Serve on a thread while the block runs.

        Raises:
            EngineError: it does not start within ten seconds.
        """
        thread = threading.Thread(target=self.run, name="rollwright-server", daemon=True)
        thread.start()
        deadline = time.monotonic() + 10
        while not self._uvicorn.started:
            if time.monotonic() > deadline or not thread.is_alive():
                raise EngineError("the server did not start within 10 s")
            time.sleep(0.005)
        try:
            yield self
        finally:
            self._uvicorn.should_exit = True
            thread.join(15)


def load(
    model: str,
    *,
    name: str | None,
    version: int,
    max_batch: int,
    kv_budget_bytes: int,
    host: str,
    port: int,
    api_key: str | None,
    limits: Limits,
) -> Server:
    """Load a model and put a server around it.

    Args:
        model: a checkpoint folder, a .gguf file, or a shipped name (`rollwright.engine.shipped`).
        name: for clients; None is the folder's or file's own.
        version: of the weights.
        max_batch, kv_budget_bytes: of the engine.
        host, port, api_key, limits: of the server.

    Raises:
        ModelError: the model is not there or cannot be served.
        ConfigError: the address cannot be had.
    """
    path = find_model(model)
    tokenizer = load_tokenizer(path)
    engine = LocalEngine(
        load_model(path), tokenizer, max_batch=max_batch, kv_budget_bytes=kv_budget_bytes, version=version
    )
    gc.freeze()  # a pass over all of torch's objects would stop every stream
    return Server(
        engine,
        tokenizer,
        load_template(path),
        name=name or (path.stem if path.suffix == ".gguf" else path.resolve().name),
        host=host,
        port=port,
        limits=limits,
        api_key=api_key,
    )
