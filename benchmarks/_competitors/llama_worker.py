"""llama.cpp behind a pipe: run by the python of the environment that `make_llama_env.sh` makes.

python llama_worker.py GGUF_FILE NUM_SLOTS CONTEXT THREADS

Reads one workload a line, ``{"prompts": [[int]], "lengths": [int]}``, and answers each with one line,
``{"wall": seconds, "cpu": seconds, "made": int}``. Requests go to the server inside this process, one
thread each.
"""

from __future__ import annotations

import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

pipe = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)

import xllamacpp  # noqa: E402


def new_server(file: str, num_slots: int, context: int, threads: int) -> Any:
    """Return a server with one slot a request; ``context`` is of one slot."""
    params = xllamacpp.CommonParams()
    params.model.path = file
    params.n_parallel = num_slots
    params.n_ctx = num_slots * context
    params.cpuparams.n_threads = threads
    params.cpuparams_batch.n_threads = threads
    params.cont_batching = True
    params.cache_prompt = False
    params.verbosity = -1
    return xllamacpp.Server(params)


def complete(server: Any, prompt: list[int], num_tokens: int) -> int:
    """Make the tokens of one request and return how many there are."""
    request = {
        "prompt": prompt,
        "n_predict": num_tokens,
        "ignore_eos": True,
        "temperature": 1.0,
        "top_k": 0,
        "top_p": 1.0,
        "min_p": 0.0,
        "samplers": ["temperature"],
        "cache_prompt": False,
    }
    answer = server.handle_completions(request)
    timings = answer.get("timings") or {}
    return int(answer["usage"]["completion_tokens"] if "usage" in answer else timings["predicted_n"])


def main() -> None:
    file, num_slots, context, threads = sys.argv[1], *map(int, sys.argv[2:5])
    server = new_server(file, num_slots, context, threads)
    send({"ready": True})
    with ThreadPoolExecutor(num_slots) as pool:
        for line in sys.stdin:
            workload = json.loads(line)
            started = time.perf_counter(), time.process_time()
            jobs = [
                pool.submit(complete, server, prompt, length)
                for prompt, length in zip(workload["prompts"], workload["lengths"], strict=True)
            ]
            made = sum(job.result() for job in jobs)
            wall, cpu = time.perf_counter() - started[0], time.process_time() - started[1]
            send({"wall": wall, "cpu": cpu, "made": made})


def send(value: dict[str, object]) -> None:
    print(json.dumps(value), file=pipe, flush=True)


if __name__ == "__main__":
    main()
