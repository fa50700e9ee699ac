"""The viewer's server: this machine only, until Ctrl-C, or on a thread for tests."""

from __future__ import annotations

import contextlib
import secrets
import socket
import threading
import time
from collections.abc import Iterator, Sequence

import uvicorn

from rollwright.errors import ConfigError, StoreError
from rollwright.view.app import make_app
from rollwright.view.run import Run

_START_S = 10.0


class Viewer:
    """Serves runs on this machine's own address.

    Args:
        runs: what to show.
        port: where; 0 takes a free one.

    Raises:
        ConfigError: the port cannot be had.
    """

    def __init__(self, runs: Sequence[Run], port: int = 0) -> None:
        self.runs, self.token = runs, secrets.token_urlsafe(18)
        try:
            self._socket = socket.create_server(("127.0.0.1", port))
            # asyncio leaves this off on a socket that was made for it, and every answer would wait 40 ms.
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except (OSError, OverflowError) as error:
            raise ConfigError(
                f"cannot listen on 127.0.0.1:{port} ({error}); choose another with --port"
            ) from error
        self.port = int(self._socket.getsockname()[1])
        config = uvicorn.Config(
            make_app(runs, self.token, self.port),
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)

    @property
    def url(self) -> str:
        """The whole address, token included."""
        return f"http://127.0.0.1:{self.port}/{self.token}/"

    def run(self) -> None:
        """Serve until the process is told to stop."""
        try:
            self._server.run(sockets=[self._socket])
        finally:
            for run in self.runs:
                run.close()

    @contextlib.contextmanager
    def running(self) -> Iterator[Viewer]:
        """Serve on a thread while the block runs.

        Raises:
            StoreError: it does not start within ten seconds.
        """
        thread = threading.Thread(target=self.run, name="rollwright-view", daemon=True)
        thread.start()
        deadline = time.monotonic() + _START_S
        while not self._server.started:
            if time.monotonic() > deadline or not thread.is_alive():
                raise StoreError(f"the viewer did not start within {_START_S:g} s")
            time.sleep(0.005)
        try:
            yield self
        finally:
            self._server.should_exit = True
            thread.join(10)
