"""How many events a second the runner takes, and whether its memory stays flat.

python benchmarks/runner_events.py [NUM_EVENTS]

The events are those of real runs: prompts, chunks, ends, grades and updates of GRPO in groups of eight, of
64 tasks a step, with the next step open (num_ahead 1). No engine, no journal: the state machine alone, on
one core. Answers are prepared in batches outside the time that is measured.
"""

from __future__ import annotations

import resource
import sys
import time
from collections import deque
from pathlib import Path

from _report import print_report

from rollwright.discovery import load_method
from rollwright.events import (
    AnyCommand,
    AnyEvent,
    EmitBatch,
    Observed,
    Published,
    Reset,
    Sampled,
    Score,
    Scored,
    Started,
    Submit,
)
from rollwright.runner import Runner, Settings
from rollwright.tree import StopReason

CHUNK, NUM_CHUNKS = 64, 4  # a rollout: three chunks that are not the last, and one that is
TOKENS, LOGPROBS = tuple(range(CHUNK)), tuple(-0.01 * t for t in range(CHUNK))


def answers(command: AnyCommand) -> list[AnyEvent]:
    """Return the events that answer a command in the end, in order."""
    if isinstance(command, Reset):
        return [Observed(ask=command.ask, tokens=TOKENS)]
    if isinstance(command, Submit):
        stops = [None] * (NUM_CHUNKS - 1) + [StopReason.EOS]
        return [Sampled(ask=command.ask, tokens=TOKENS, logprobs=LOGPROBS, stop=stop) for stop in stops]
    if isinstance(command, Score):
        return [Scored(ask=command.ask, reward=float(len(command.ask) % 2), status="right")]
    if isinstance(command, EmitBatch):
        return [Published(step=command.step, version=command.version + 1, learner_tokens=1)]
    return []


def resident() -> float:
    """Return the memory of this process now, in MiB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


def main() -> None:
    """Print the figures, one JSON object as the last line."""
    num_events = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    settings = Settings(
        seed=0,
        tasks=tuple(f"t/train/{i}" for i in range(1000)),
        num_steps=10**9,
        num_tasks=64,
        context=4096,
        max_tokens=1024,
        num_ahead=1,
    )
    runner = Runner(load_method("grpo"), settings)
    waiting: deque[deque[AnyEvent]] = deque([deque([Started()])])
    num, seconds, memory = 0, 0.0, []
    while num < num_events:
        some = waiting.popleft()
        event = some.popleft()
        if some:
            waiting.append(
                some
            )  # the asks' chunks come in turn, as from an engine that decodes them together
        start = time.process_time()
        commands = runner.step(event)
        seconds += time.process_time() - start
        num += 1
        waiting += [deque(some) for command in commands if (some := answers(command))]
        if isinstance(event, Published):
            runner.take_closed()
        if num % (num_events // 10) == 0:
            memory.append(resident())
    assert runner.step_number > 0
    figures = {
        "num_events": num,
        "num_steps": runner.step_number,
        "runner_s": seconds,
        "events_per_s": num / seconds,
        "resident_mib_after_a_tenth": memory[0],
        "resident_mib_half_way": memory[4],
        "resident_mib_at_the_end": memory[-1],
    }
    print_report("runner_events", figures, ("msgspec",))


if __name__ == "__main__":
    main()
