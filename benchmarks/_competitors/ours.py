"""rollwright's in-process engine as a side: every record on (logprobs and entropies), one engine kept."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from rollwright.engine.inprocess import LocalEngine
from rollwright.engine.model import Decoder
from rollwright.events import Submit
from rollwright.rng import stream_key
from rollwright.tree import Sampling

from . import Timing, Workload, check_count, now


def new_engine(decoder: Decoder, threads: int, **settings: Any) -> LocalEngine:
    """Return an engine; ``threads`` is handed on if this version takes it."""
    if "threads" in inspect.signature(LocalEngine.__init__).parameters:
        settings["threads"] = threads
    return LocalEngine(decoder, **settings)


def submit(
    engine: LocalEngine, ask: str, group: str, prompt: Sequence[int], num: int, chunk: int = 0
) -> None:
    """Ask for ``num`` tokens after a prompt, at temperature 1."""
    command = Submit(
        ask=ask,
        group=group,
        parent="root",
        at=len(prompt),
        stream=stream_key(0, group, "0/0"),
        start=len(prompt),
        max_tokens=num,
        sampling=Sampling(),
        chunk=chunk,
    )
    engine.submit(command, prompt)


class Ours:
    """The engine; each request is a group of its own, so no prompt is shared.

    ``at_half`` is called when half of a workload of equal, even lengths is made, just before the second half.
    """

    name = "rollwright"

    def __init__(self, decoder: Decoder, threads: int, max_batch: int = 256) -> None:
        self.engine = new_engine(decoder, threads, max_batch=max_batch)
        self.num_runs = 0
        self.at_half: Callable[[], object] = lambda: None

    def run(self, workload: Workload) -> Timing:
        """Make the workload; equal lengths are reported in two halves, so that the second can be timed."""
        engine, run = self.engine, self.num_runs
        self.num_runs += 1
        longest, num = max(workload.lengths), len(workload.lengths)
        half = longest // 2 if min(workload.lengths) == longest and longest % 2 == 0 else 0
        made, halfway = 0, None
        started = now()
        for i, (prompt, length) in enumerate(zip(workload.prompts, workload.lengths, strict=True)):
            submit(engine, f"{run}.{i}", f"{run}.{i}", prompt, length, half)
        while engine.num_live:
            made += sum(len(event.tokens) for event in engine.step())
            if halfway is None and half and made >= half * num:
                self.at_half()
                halfway = now()
        ended = now()
        check_count(self.name, made, workload)
        for i in range(num):
            engine.retire(f"{run}.{i}")
        return Timing(ended - started, None if halfway is None else (ended - halfway) / half)

    def close(self) -> None:
        """Nothing to give back."""
