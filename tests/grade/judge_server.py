"""A real HTTP server that judges by a script, and misbehaves on demand."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Behaviour = Any  # text to reply with, a function of the request's body, or a name of MISBEHAVIOURS
MISBEHAVIOURS = (
    "hang",
    "drip",
    "endless",
    "close",
    "half",
    "html",
    "500",
    "429",
    "400",
    "empty",
    "null",
)


class JudgeServer:
    """Answers the n-th request by the n-th behaviour; the last one goes on for ever.

    ``requests`` holds every body; ``most_at_once`` how many were open at a time.
    """

    def __init__(self, *behaviours: Behaviour, usage: bool = True) -> None:
        self.behaviours, self.usage = list(behaviours), usage
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.most_at_once = self._open = 0
        self._lock = threading.Lock()
        self.is_stopped = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                outer.serve(self)

            def log_message(self, *_: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> JudgeServer:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.is_stopped.set()
        self.http.shutdown()
        self.http.server_close()

    def serve(self, handler: BaseHTTPRequestHandler) -> None:
        body = json.loads(handler.rfile.read(int(handler.headers["content-length"])))
        with self._lock:
            behaviour = self.behaviours[min(len(self.requests), len(self.behaviours) - 1)]
            self.requests.append(body)
            self.headers.append(dict(handler.headers))
            self._open += 1
            self.most_at_once = max(self.most_at_once, self._open)
        try:
            said = behaviour(body) if isinstance(behaviour, Callable) else behaviour
            if said in MISBEHAVIOURS:
                self.misbehave(handler, said)
            else:
                self.send(handler, 200, json.dumps(self.completion(said)).encode())
        except (BrokenPipeError, ConnectionResetError):
            pass  # the client has given up
        finally:
            with self._lock:
                self._open -= 1

    def completion(self, said: str) -> dict[str, Any]:
        cut = said.endswith("...")
        message = {"role": "assistant", "content": said}
        choice = {"index": 0, "message": message, "finish_reason": "length" if cut else "stop"}
        usage = {"usage": {"prompt_tokens": 100, "completion_tokens": 7}} if self.usage else {}
        return {"object": "chat.completion", "choices": [choice], **usage}

    def send(self, handler: BaseHTTPRequestHandler, status: int, data: bytes, **headers: str) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("content-length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    def misbehave(self, handler: BaseHTTPRequestHandler, how: str) -> None:
        whole = json.dumps(self.completion('{"score": 10}')).encode()
        if how == "hang":
            self.is_stopped.wait(30)
        elif how in ("drip", "endless"):  # a byte now and then; as much as there is room for
            handler.send_response(200)
            handler.end_headers()
            while not self.is_stopped.is_set():
                handler.wfile.write(b" " if how == "drip" else b" " * 65536)
                handler.wfile.flush()
                time.sleep(0.02 if how == "drip" else 0)
        elif how == "half":
            handler.send_response(200)
            handler.send_header("content-length", str(len(whole)))
            handler.end_headers()
            handler.wfile.write(whole[: len(whole) // 2])
        elif how == "html":
            self.send(handler, 200, b"<html>It works!</html>")
        elif how == "empty":
            self.send(handler, 200, b'{"choices": []}')
        elif how == "null":
            self.send(handler, 200, whole.replace(b'"{\\"score\\": 10}"', b"null"))
        elif how == "429":
            self.send(handler, 429, b"slow down", retry_after="0.4")
        elif how in ("500", "400"):
            self.send(handler, int(how), b"something is wrong")
