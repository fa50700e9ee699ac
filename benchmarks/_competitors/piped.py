"""Sides that run in an environment of their own, kept alive behind a pipe so that repeats can interleave."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _models import BenchModel

from . import Side, Timing, Workload, check_count, clock_name

HERE = Path(__file__).parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "rollwright"
START_S, RUN_S = 600, 1800


class Piped:
    """A worker process that answers one line of JSON with another.

    Args:
        name: for the tables.
        command: what starts it; its first answer says that it is ready.
        env: environment variables beside those of this process.

    Raises:
        RuntimeError: it ended, or said nothing in time; the message holds the end of its error stream.
    """

    def __init__(self, name: str, command: list[str], env: dict[str, str]) -> None:
        self.name = name
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (lives as long as the process)
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            env={**os.environ, **env},
        )
        self.lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        self._answer(START_S)

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put("")

    def _answer(self, seconds: float) -> dict[str, Any]:
        try:
            line = self.lines.get(timeout=seconds)
        except queue.Empty:
            self.close()
            raise RuntimeError(f"{self.name} did not answer within {seconds} s") from None
        if line:
            return dict(json.loads(line))
        self.close()
        self.errors.seek(0)
        raise RuntimeError(f"{self.name} ended early:\n{self.errors.read()[-2000:]}")

    def run(self, workload: Workload) -> Timing:
        assert self.process.stdin is not None
        request = {"prompts": workload.prompts, "lengths": workload.lengths}
        print(json.dumps(request), file=self.process.stdin, flush=True)
        answer = self._answer(RUN_S)
        check_count(self.name, answer["made"], workload)
        return Timing(answer[clock_name()])

    def close(self) -> None:
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def vllm(model: BenchModel, venv: Path, threads: int, max_batch: int, context: int = 512) -> Piped:
    """Start vLLM's CPU build on a model, with ``threads`` threads of arithmetic.

    Raises:
        FileNotFoundError: the environment was not made.
    """
    python = _python(venv, "make_vllm_env.sh")
    cores = sorted(os.sched_getaffinity(0))[:threads]
    env = {
        "OMP_NUM_THREADS": str(threads),
        "VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, cores)),
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
    }
    worker = [str(python), str(HERE / "vllm_worker.py"), str(model.folder), str(max_batch), str(context)]
    return Piped("vllm", worker, env)


def llama_cpp(file: Path, venv: Path, threads: int, num_slots: int, context: int = 512) -> Piped:
    """Start llama.cpp on a GGUF file.

    Raises:
        FileNotFoundError: the environment was not made.
    """
    python = _python(venv, "make_llama_env.sh")
    worker = [str(python), str(HERE / "llama_worker.py"), str(file)]
    return Piped("llama.cpp", [*worker, str(num_slots), str(context), str(threads)], {})


def started(what: str, start: Callable[[], Piped]) -> list[Side]:
    """Return the side that ``start`` makes, or say why it is left out."""
    try:
        return [start()]
    except (FileNotFoundError, RuntimeError) as error:
        print(f"{what} is left out: {error}", flush=True)
        return []


def site_packages(venv: Path) -> list[Path]:
    return sorted(venv.glob("lib/python*/site-packages"))


def _python(venv: Path, script: str) -> Path:
    python = venv / "bin" / "python"
    if not (venv / ".ready").exists():
        raise FileNotFoundError(
            f"no finished environment in {venv}; run benchmarks/_competitors/{script} {venv}"
        )
    return python
