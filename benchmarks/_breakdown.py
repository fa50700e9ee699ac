"""What of a decode step is not the model: sampling, noise, logprobs, entropies, records and stop checks."""

from __future__ import annotations

import argparse
import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from _competitors import equal_lengths, now
from _competitors.ours import Ours
from _models import build
from _report import Figure, print_report

LIMIT = 0.10
SIZES = ("1M", "135M")  # 512 and 49,152 words
MODEL_PHASES = frozenset({"forward", "schedule", "admit", "prefill", "report"})  # what is not the sampler


def print_breakdown(folder: Path, arguments: argparse.Namespace) -> None:
    """Print the share of a step, by size and batch, that is spent on everything but the model."""
    figures: dict[str, Figure] = {"threads": arguments.threads}
    gc.freeze()
    for size in SIZES:
        model = build(size, folder)
        print(f"{size}: {model.note}")
        ours = Ours(model.decoder, arguments.threads, max(arguments.batches))
        for batch in arguments.batches:
            share, phases = measure(ours, batch, arguments.tokens, model.cfg.vocab_size)
            words = f"words{model.cfg.vocab_size}_b{batch}"
            figures |= {f"{words}_sampling_share": share}
            figures |= {f"{words}_{name}_s": s for name, s in phases.items()}
            verdict = "" if share < LIMIT else f"; above the limit of {LIMIT:.0%}"
            parts = ", ".join(f"{name} {s * 1e3:.3f}" for name, s in phases.items())
            print(f"batch {batch:>3}: {share:>6.1%} of a step (ms: {parts}){verdict}", flush=True)
    print_report("decode_breakdown", figures, ("torch",))


def measure(ours: Ours, batch: int, num_tokens: int, num_words: int) -> tuple[float, dict[str, float]]:
    """Return the sampler's share of a step and the seconds of each phase, in the second half of a run."""
    ours.run(equal_lengths(batch, 4, num_words))
    at_half: dict[str, float] = {}
    with phase_clock(ours.engine) as read:
        ours.at_half = lambda: at_half.update(read())
        step_s = ours.run(equal_lengths(batch, num_tokens, num_words)).step_s
        phases = {name: (s - at_half.get(name, 0.0)) / (num_tokens // 2) for name, s in read().items()}
    assert step_s is not None
    return sampling_share(phases, step_s), phases


def sampling_share(phases: Mapping[str, float], seconds: float) -> float:
    """Return the seconds of the phases outside `MODEL_PHASES` over all."""
    return sum(spent for name, spent in phases.items() if name not in MODEL_PHASES) / seconds


@contextmanager
def phase_clock(engine: Any) -> Iterator[Callable[[], dict[str, float]]]:
    """Yield what reads the seconds by phase since then.

    An engine that keeps ``timings`` is asked; of one that does not, the calls of a step are wrapped.
    """
    if hasattr(engine, "timings"):
        before = dict(engine.timings)
        yield lambda: {name: s - before.get(name, 0.0) for name, s in engine.timings.items()}
        return
    import rollwright.engine.decoding as decoding

    spent: dict[str, float] = {}
    places = [(decoding, "draw"), (decoding, "step_words"), (decoding, "_stops"), (engine.table, "record")]
    kept = [(place, name, getattr(place, name)) for place, name in places]
    for place, name, function in kept:
        setattr(place, name, partial(_timed, spent, name.strip("_"), function))
    try:
        yield lambda: dict(spent)
    finally:
        for place, name, function in kept:
            setattr(place, name, function)


def _timed(spent: dict[str, float], name: str, function: Callable[..., Any], *args: Any) -> Any:
    started = now()
    result = function(*args)
    spent[name] = spent.get(name, 0.0) + now() - started
    return result
