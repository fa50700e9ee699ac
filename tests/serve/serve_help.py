"""A server on a thread around a small model, and small readers of what it answers."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx

sys.path.insert(0, str(Path(__file__).parents[1] / "engine"))

from engine_help import CHARACTERS, ask, characters, config, lively_model, run

from rollwright.chat import ChatTemplate
from rollwright.engine.checkpoint import Tokenizer
from rollwright.engine.inprocess import LocalEngine
from rollwright.events import Sampled
from rollwright.serve.jobs import Limits
from rollwright.serve.server import Server
from rollwright.tasks.tokenizer import EOS, byte_tokenizer
from rollwright.tree import StopReason

__all__ = ["CHARACTERS", "ask", "characters", "config", "lively_model", "run"]

MODEL = lively_model()  # one for all: two of them would differ

BYTES = Tokenizer(byte_tokenizer(), "bytes", (1,))  # any text; the character EOS ends a turn
TEMPLATE = ChatTemplate(
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}"
    + EOS
    + "{% endfor %}{% if tools %}[tools {{ tools | length }}]{% endif %}"
    + "{% if add_generation_prompt %}[assistant]{% endif %}"
)


class SlowEngine(LocalEngine):
    """Takes a moment for every step, so that a test can do something meanwhile."""

    pause = 0.01

    def step(self):
        time.sleep(self.pause)
        return super().step()


def serve(
    engine: LocalEngine | None = None, template=None, limits: Limits | None = None, **more: Any
) -> Server:
    if engine is None:
        engine = LocalEngine(MODEL, characters())
    return Server(engine, engine.tokenizer, template, limits=limits, **more)


def client(server: Server, **more: Any) -> httpx.Client:
    return httpx.Client(base_url=server.url, timeout=60, trust_env=False, verify=False, **more)


def events(lines: Iterator[str]) -> Iterator[Any]:
    """Yield the messages of an event stream; "[DONE]" as a string."""
    for line in lines:
        if line.startswith("data: "):
            data = line.removeprefix("data: ")
            yield data if data == "[DONE]" else json.loads(data)


def stream(http: httpx.Client, path: str, body: dict[str, Any]) -> list[Any]:
    with http.stream("POST", path, json=body | {"stream": True}) as response:
        assert response.status_code == 200, response.read()
        return list(events(response.iter_lines()))


def wait_until(what: Callable[[], bool], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.005)


class ScriptedEngine:
    """Says what it is told to: for each ask the next answer, (ids, why it ends). Implements Engine."""

    def __init__(self, tokenizer, answers, context: int = 4096) -> None:
        self.tokenizer, self.answers = tokenizer, list(answers)
        self.cfg = config(vocab_size=1 << 20, max_positions=context)
        self.version, self.prompts, self.live = 0, [], {}

    @property
    def num_live(self) -> int:
        return len(self.live)

    def submit(self, command, prefix) -> None:
        self.prompts.append(list(prefix))
        self.live[command.ask] = (command, *self.answers.pop(0))

    def abort(self, ask):
        del self.live[ask]
        return Sampled(ask=ask, tokens=(), logprobs=(), version=self.version, stop=StopReason.INTERRUPTED)

    def step(self):
        ask, (_, ids, stop) = next(iter(self.live.items()))
        del self.live[ask]
        logprobs = tuple(-0.5 - i / 8 for i in range(len(ids)))
        return [Sampled(ask=ask, tokens=tuple(ids), logprobs=logprobs, version=self.version, stop=stop)]

    def memory_report(self) -> dict[str, int]:
        return {}

    def retire(self, group) -> None: ...

    def publish(self, version) -> None:
        self.version = version
