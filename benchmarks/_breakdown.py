"""What of a decode step is not the model: sampling, noise, logprobs, entropies, records and stop checks."""

from __future__ import annotations

import argparse
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

from _competitors import equal_lengths
from _competitors.ours import Ours
from _models import build
from _report import Figure, print_report

import rollwright.engine.decoding as decoding

LIMIT = 0.10
SIZES = ("1M", "135M")  # 512 and 49,152 words
SAMPLER = ("sampling", "noise", "drawing", "stops", "records")


def print_breakdown(folder: Path, arguments: argparse.Namespace) -> None:
    """Print the share of a step, by size and batch, that the sampler and what goes with it take."""
    figures: dict[str, Figure] = {"threads": arguments.threads}
    gc.freeze()
    for size in SIZES:
        model = build(size, folder)
        ours = Ours(model.decoder, arguments.threads, max(arguments.batches))
        print(f"{size}: {model.note}; kernel: {ours.engine.forward.name}", flush=True)
        for batch in arguments.batches:
            phases = measure(ours, batch, arguments.tokens, model.cfg.vocab_size)
            share, words = sampler_share(phases), f"words{model.cfg.vocab_size}_b{batch}"
            figures |= {f"{words}_sampler_share": share}
            figures |= {f"{words}_{name}_s": seconds for name, seconds in phases.items()}
            parts = ", ".join(f"{name} {seconds * 1e3:.3f}" for name, seconds in phases.items())
            verdict = "" if share < LIMIT else f"; above the limit of {LIMIT:.0%}"
            print(f"batch {batch:>3}: sampler {share:>6.1%} of a step (ms: {parts}){verdict}", flush=True)
    print_report("decode_breakdown", figures, ("torch",))


def sampler_share(phases: dict[str, float]) -> float:
    """Return the seconds of the phases in `SAMPLER` over those of the step."""
    return sum(phases.get(name, 0.0) for name in SAMPLER) / phases["step"]


def measure(ours: Ours, batch: int, num_tokens: int, num_words: int) -> dict[str, float]:
    """Return a step's seconds by phase, in the second half of a run.

    ``step`` is all of it; ``layers``, ``head`` and ``sampling`` are by the compiled kernel's own clock;
    ``noise`` is the noise's seeds, ``drawing`` the rows that torch samples; the rest is what it says.
    """
    ours.run(equal_lengths(batch, 4, num_words))
    at_half: dict[str, float] = {}
    with phase_clock(ours.engine) as read:
        ours.at_half = lambda: at_half.update(read())
        step_s = ours.run(equal_lengths(batch, num_tokens, num_words)).step_s
        spent = read()
    assert step_s is not None
    half = num_tokens // 2
    return {"step": step_s, **{name: (s - at_half.get(name, 0.0)) / half for name, s in spent.items()}}


@contextmanager
def phase_clock(engine: Any) -> Iterator[Callable[[], dict[str, float]]]:
    """Wrap the parts of a step for a while, and yield what reads the seconds spent in each."""
    spent: dict[str, float] = {}
    wrapped = [
        (decoding, "step_words", "noise"),
        (decoding, "_drawing", "drawing"),
        (decoding, "_check", "stops"),
        (decoding, "_stops", "stops"),
        (engine.table, "append", "records"),
        (engine.table, "append_many", "records"),
    ]
    kept = [(place, attribute, getattr(place, attribute)) for place, attribute, _ in wrapped]
    kernel = getattr(engine.forward, "seconds", None)
    before = (0.0, 0.0, 0.0) if kernel is None else tuple(map(float, kernel))

    def read() -> dict[str, float]:
        if kernel is None:
            return dict(spent)
        names = ("layers", "head", "sampling")
        return {name: float(s) - b for name, s, b in zip(names, kernel, before, strict=True)} | spent

    for place, attribute, name in wrapped:
        setattr(place, attribute, partial(_timed, spent, name, getattr(place, attribute)))
    try:
        yield read
    finally:
        for place, attribute, function in kept:
            setattr(place, attribute, function)


def _timed(spent: dict[str, float], name: str, function: Callable[..., Any], *args: Any) -> Any:
    started = perf_counter()
    result = function(*args)
    spent[name] = spent.get(name, 0.0) + perf_counter() - started
    return result
