"""Tokens a second over HTTP, by requests in flight, against the engine in the same process.

python benchmarks/servers.py [--size 1M] [--threads 1] [--repeats 3] [--endpoint URL [--model NAME]]

The server runs in a process of its own (`rollwright serve`) with the weights that the engine here has; the
client is `OpenAIEngine`. At each concurrency that many requests are kept in flight, of 64 tokens after
prompts of 32, until four times as many have ended. ``inprocess`` is the engine itself in this process,
``server`` the same asks over HTTP with reports of sixteen tokens, ``stream`` with one message for each token.
All sides are measured in turn, ``repeats`` times; the figures are medians, ratios are over ``inprocess`` of
the same run. ``..._here_us`` and ``..._there_us`` are processor time per token in this process and in the
server's, which other load on the machine distorts less than a rate. ``--endpoint`` measures any other server
that gives ids and logprobs as ``endpoint``; give it the same weights (they are in the folder that is
printed) for a fair ratio.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from _models import build
from _report import Figure, print_report
from tokenizers import Tokenizer as Inner
from tokenizers import models

from rollwright.clients.openai import OpenAIEngine
from rollwright.engine.api import Engine, ended
from rollwright.engine.inprocess import LocalEngine
from rollwright.errors import EngineError
from rollwright.events import Failed, Submit
from rollwright.rng import stream_key
from rollwright.tree import Sampling

PROMPT, LENGTH, ROUNDS = 32, 64, 4
CONCURRENCIES = (1, 8, 32)


def asks(num: int, chunk: int, name: str) -> Iterator[tuple[Submit, list[int]]]:
    """Yield requests with prompts that share nothing."""
    for i in range(num):
        prompt = [(i * 31 + j * 7) % 500 + 1 for j in range(PROMPT)]
        key = stream_key(0, name, str(i))
        command = Submit(
            ask=f"{name}/{i}",
            group=f"{name}/{i}",
            parent="prompt",
            at=PROMPT,
            stream=key,
            start=PROMPT,
            max_tokens=LENGTH,
            sampling=Sampling(),
            chunk=chunk,
        )
        yield command, prompt


def tokens_per_s(engine: Engine, num_flying: int, chunk: int, name: str) -> float:
    """Return tokens a second with ``num_flying`` requests in flight.

    Raises:
        EngineError: a request failed.
    """
    todo = asks(num_flying * ROUNDS, chunk, name)
    started, made = time.perf_counter(), 0
    for command, prompt in (next(todo) for _ in range(num_flying)):
        engine.submit(command, prompt)
    while engine.num_live:
        answers = engine.step()
        for answer in answers:
            if isinstance(answer, Failed):
                raise EngineError(f"{answer.ask} failed: {answer.message}")
            made += len(answer.tokens)
        for _ in ended(answers):
            if (more := next(todo, None)) is not None:
                engine.submit(*more)
    if made != num_flying * ROUNDS * LENGTH:
        raise EngineError(f"{made} tokens came where {num_flying * ROUNDS * LENGTH} were asked for")
    return made / (time.perf_counter() - started)


@contextlib.contextmanager
def served(folder: Path, threads: int) -> Iterator[tuple[str, int]]:
    """Run `rollwright serve` on a free port and yield its address and process id."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "rollwright.cli.main", "serve", str(folder), "--port", str(port)]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen([*command, "--threads", str(threads), "--max-batch", "64"], stderr=log)
        try:
            deadline = time.monotonic() + 180
            while True:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                    break
                if process.poll() is not None or time.monotonic() > deadline:
                    log.seek(0)
                    raise EngineError(f"the server did not start: {log.read()}")
                time.sleep(0.1)
            yield f"http://127.0.0.1:{port}", process.pid
        finally:
            process.terminate()
            process.wait(20)


def words(folder: Path, num: int) -> None:
    """Write a tokenizer of ``num`` words, so that the folder can be served; no word ends a text."""
    Inner(models.WordLevel({f"w{i}": i for i in range(num)}, unk_token="w0")).save(
        str(folder / "tokenizer.json")
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", default="1M")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--endpoint", help="measure this server too")
    parser.add_argument("--model", help="the endpoint's model, if it has several")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    with contextlib.ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        model = build(arguments.size, place)
        words(model.folder, model.cfg.vocab_size)
        print(f"weights: {model.folder} ({model.note})")
        url, pid = stack.enter_context(served(model.folder, arguments.threads))
        sides: dict[str, Callable[[int, str], float]] = {}
        local = LocalEngine(model.decoder)
        remote = stack.enter_context(contextlib.closing(OpenAIEngine(url)))
        sides["inprocess"] = lambda num, name: tokens_per_s(local, num, 0, name)
        sides["server"] = lambda num, name: tokens_per_s(remote, num, 0, name)
        sides["stream"] = lambda num, name: tokens_per_s(remote, num, 1, name)
        if arguments.endpoint:
            other = stack.enter_context(contextlib.closing(OpenAIEngine(arguments.endpoint, arguments.model)))
            sides["endpoint"] = lambda num, name: tokens_per_s(other, num, 0, name)
        figures = measure(sides, arguments.repeats, pid)
        print_report("servers", figures | {"size": arguments.size}, ("torch", "httpx"))


def measure(sides: dict[str, Callable[[int, str], float]], repeats: int, pid: int) -> dict[str, Figure]:
    """Return the medians of interleaved repeats, and ratios over the engine in this process."""
    found: dict[tuple[str, int], list[tuple[float, float, float]]] = {}
    for repeat in range(-1, repeats):  # the first round warms everything up
        for num in CONCURRENCIES:
            for side, rate in sides.items():
                here, there = time.process_time(), cpu_s(pid)
                tokens = rate(num, f"{side}-{num}-{repeat}")
                made = num * ROUNDS * LENGTH / 1e6
                row = (tokens, (time.process_time() - here) / made, (cpu_s(pid) - there) / made)
                if repeat >= 0:
                    found.setdefault((side, num), []).append(row)
    figures: dict[str, Figure] = {}
    for (side, num), rows in found.items():
        name = f"{side}_c{num}"
        figures[f"{name}_tokens_per_s"] = statistics.median(row[0] for row in rows)
        figures[f"{name}_here_us"] = statistics.median(row[1] for row in rows)
        if side != "inprocess":
            pairs = zip(rows, found["inprocess", num], strict=True)
            figures[f"ratio_{name}"] = statistics.median(mine[0] / theirs[0] for mine, theirs in pairs)
        if side in ("server", "stream"):
            figures[f"{name}_there_us"] = statistics.median(row[2] for row in rows)
    return figures


def cpu_s(pid: int) -> float:
    """Return the seconds of processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
