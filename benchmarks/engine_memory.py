"""What keys and values cost: a fork of many children, the bytes reported, and what sleep gives back.

python benchmarks/engine_memory.py [--size 5M] [--children 64] [--prefix 2000] [--own 128] [--threads 1]

One sequence reaches ``--prefix`` tokens, half of them sampled. Then ``--children`` sequences fork there and
make ``--own`` tokens each, and go on. Wanted: no token is prefilled for them, and they take at most 1% more
keys and values than their own tokens have. Pages are of 16 places, so other numbers than multiples of 16 for
``--own`` show what a partly filled last page costs.

Then the bytes that the engine reports are compared with the buffers that it holds, and the bytes that `sleep`
says it freed with the fall of the process's resident memory. Every page is written before that, because
memory that nobody wrote takes none.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _competitors.ours import new_engine
from _models import SHAPES, build
from _report import Figure, print_report

from rollwright.engine.inprocess import LocalEngine
from rollwright.events import Sampled, Submit
from rollwright.rng import stream_key
from rollwright.tree import Sampling

MAX_OVERHEAD = 0.01


def grow_parent(engine: LocalEngine, prompt: list[int], num: int) -> list[int]:
    """Submit a sequence that stays live, let it make ``num`` tokens and return all its tokens."""
    command = Submit(
        ask="parent",
        group="tree",
        parent="root",
        at=len(prompt),
        stream=stream_key(0, "tree", "0/0"),
        start=len(prompt),
        max_tokens=2 * num,
        sampling=Sampling(),
        chunk=num,
    )
    engine.submit(command, prompt)
    (answer,) = engine.step()
    return [*prompt, *answer.tokens]


def fork_children(engine: LocalEngine, prefix: list[int], num: int, own: int) -> list[Sampled]:
    """Fork the parent and return each child's first ``own`` tokens; the children stay live."""
    for i in range(num):
        command = Submit(
            ask=f"child{i}",
            group="tree",
            parent="parent",
            at=len(prefix),
            stream=stream_key(0, "tree", f"0/0~{i}"),
            start=len(prefix),
            max_tokens=2 * own,
            sampling=Sampling(),
            chunk=own,
        )
        engine.submit(command, prefix)
    answers: list[Sampled] = []
    while len(answers) < num:
        answers += [event for event in engine.step() if event.ask != "parent"]
    return answers


def used_bytes(engine: LocalEngine) -> int:
    """Return what sequences and cached prefixes take of the memory for keys and values."""
    report = engine.memory_report()
    return report["kv_live_bytes"] + report["kv_cached_bytes"]


def measure_fork(engine: LocalEngine, arguments: argparse.Namespace) -> dict[str, Figure]:
    """Fork and return what it cost."""
    own, num = arguments.own, arguments.children
    prompt = [2 + i % 500 for i in range(arguments.prefix // 2)]
    prefix = grow_parent(engine, prompt, arguments.prefix - len(prompt))
    engine.abort("parent")  # its keys stay cached; so what is used from here on is the children's
    before = used_bytes(engine)
    answers = fork_children(engine, prefix, num, own)
    taken, wanted = used_bytes(engine) - before, num * own * engine.kv.bytes_per_token
    assert all(len(answer.tokens) == own for answer in answers)
    return {
        "prefix_kv_bytes": before,
        "children_prefilled_tokens": sum(answer.prefilled for answer in answers),
        "children_kv_bytes": taken,
        "children_own_kv_bytes": wanted,
        "children_kv_overhead": taken / wanted - 1,
    }


def measure_sleep(engine: LocalEngine) -> dict[str, Figure]:
    """Compare what the engine says about its memory with what the process has."""
    for ask in list(engine.by_ask):
        engine.abort(ask)
    report = engine.memory_report()
    held = buffer_bytes(engine.kv)
    with torch.inference_mode():
        engine.kv.pool.zero_()
    before = resident_bytes()
    freed = engine.sleep()
    gone = before - resident_bytes()
    return {
        "kv_bytes_reported": report["kv_bytes"],
        "kv_bytes_held": held,
        "packed_weight_bytes_reported": report["packed_bytes"],
        "sleep_bytes_said": freed,
        "sleep_bytes_gone": gone,
        "kv_bytes_after_sleep": engine.memory_report()["kv_bytes"],
    }


def buffer_bytes(root: Any) -> int:
    """Return the bytes of every different tensor and array that an object's attributes lead to."""
    address_to_bytes: dict[int, int] = {}
    waiting, seen = [root], set[int]()
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, torch.Tensor):
            storage = value.untyped_storage()
            address_to_bytes[storage.data_ptr()] = storage.nbytes()
        elif isinstance(value, np.ndarray):
            base = value
            while isinstance(base.base, np.ndarray):
                base = base.base
            address_to_bytes[base.ctypes.data] = base.nbytes
        elif isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, (list, tuple)):
            waiting += value
        elif type(value).__module__.startswith("rollwright"):
            waiting += getattr(value, "__dict__", {}).values()
    return sum(address_to_bytes.values())


def resident_bytes() -> int:
    """Return the process's resident memory, after free memory has gone back to the system."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # another C library keeps what it wants
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def verdicts(figures: dict[str, Figure]) -> list[str]:
    """Return what is not as wanted, in words."""
    found = []
    if figures["children_prefilled_tokens"]:
        found.append(f"{figures['children_prefilled_tokens']:,} tokens were prefilled for the children")
    if float(figures["children_kv_overhead"] or 0) > MAX_OVERHEAD:
        found.append(f"children take {figures['children_kv_overhead']:.1%} more than their own tokens")
    if figures["kv_bytes_reported"] != figures["kv_bytes_held"]:
        found.append("reported bytes of keys and values are not those held")
    if figures["kv_bytes_after_sleep"]:
        found.append("keys and values are held after sleep")
    if float(figures["sleep_bytes_gone"] or 0) < 0.98 * float(figures["sleep_bytes_said"] or 0):
        found.append("the process kept memory that sleep says it freed")
    return found


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    parser.add_argument("--size", choices=tuple(SHAPES), default="5M")
    parser.add_argument("--children", type=int, default=64)
    parser.add_argument("--prefix", type=int, default=2000)
    parser.add_argument("--own", type=int, default=128)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args(words)
    if arguments.children < 1 or arguments.own < 1 or arguments.prefix < 2:
        parser.error("--children and --own must be at least 1, --prefix at least 2")
    return arguments


def main() -> None:
    arguments = parse()
    torch.set_num_threads(arguments.threads)
    with tempfile.TemporaryDirectory() as folder:
        model = build(arguments.size, Path(folder))
        print(model.note)
        engine = new_engine(model.decoder, arguments.threads, max_batch=arguments.children + 1)
        figures = measure_fork(engine, arguments) | measure_sleep(engine)
    print_report("engine_memory", figures, ("torch",))
    for verdict in verdicts(figures):
        print(f"not as wanted: {verdict}")


if __name__ == "__main__":
    main()
