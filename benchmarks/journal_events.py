"""How many events a second the journal takes and gives back.

python benchmarks/journal_events.py [NUM_EVENTS]
"""

from __future__ import annotations

import json
import platform
import random
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

from rollwright.events import AnyEvent, Sampled, Score, Scored, TimerFired
from rollwright.store.journal import Journal, read
from rollwright.tree import StopReason

GROUP = "countdown/train/00012#0"


def write(path: Path, events: list[AnyEvent], events_per_flush: int) -> float:
    """Return the events written a second, each answered by one command, all of them synced."""
    answer = [Score(ask=f"{GROUP}/0.1:s", group=GROUP, leaf=f"{GROUP}/0.1")]
    with Journal.open(path) as journal:
        start = time.perf_counter()
        for number, event in enumerate(events, 1):
            journal.append(event, answer)
            if number % events_per_flush == 0:
                journal.flush()
        journal.sync()
        return len(events) / (time.perf_counter() - start)


def read_back(path: Path) -> float:
    """Return the events read a second."""
    start = time.perf_counter()
    return sum(1 for _ in read(path)) / (time.perf_counter() - start)


def main() -> None:
    """Print the figures, one JSON object as the last line."""
    num = int(sys.argv[1]) if len(sys.argv) > 1 else 50_000
    rng = random.Random(0)

    def sampled(number: int) -> Sampled:
        logprobs = tuple(-rng.random() for _ in range(64))
        return Sampled(
            ask=f"{GROUP}/{number}", tokens=tuple(range(64)), logprobs=logprobs, stop=StopReason.EOS
        )

    kinds: dict[str, list[AnyEvent]] = {
        "timer": [TimerFired(timer=f"rollouts:{number}", at=number / 7) for number in range(num)],
        "scored": [Scored(ask=f"{GROUP}/{number}", reward=1.0, status="right") for number in range(num)],
        "sampled_64": [sampled(number) for number in range(num // 10)],
    }
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        for kind, events in kinds.items():
            for events_per_flush in (1, 16):
                path = Path(folder) / f"{kind}-{events_per_flush}.jsonl"
                figures[f"{kind}_written_s_flush_{events_per_flush}"] = round(
                    write(path, events, events_per_flush)
                )
            figures[f"{kind}_read_s"] = round(read_back(path))
            figures[f"{kind}_bytes"] = round(path.stat().st_size / len(events))
    for name, figure in figures.items():
        print(f"{name:32} {figure:>12,}")
    versions = {"python": platform.python_version(), "msgspec": version("msgspec")}
    print(json.dumps({"name": "journal_events", **figures, "versions": versions}))


if __name__ == "__main__":
    main()
