"""What the six methods need of the runner beside its Protocols."""

from __future__ import annotations

from collections import Counter
from typing import Any

from methods_help import run

from rollwright.drive.inline import InlineDriver
from rollwright.drive.world import World
from rollwright.events import EmitBatch, Published, Reset, Retire
from rollwright.methods.april import april
from rollwright.methods.dapo import dapo
from rollwright.runner import Runner, Settings
from rollwright.testing.fake import FakeEngine, ToyTask, ToyTokenizer


class Commands:
    """A journal that keeps the commands."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def append(self, event: Any, commands: Any) -> None:
        self.seen += commands

    def flush(self) -> None:
        pass


def test_groups_dropped_by_a_filter_are_retired_too() -> None:
    """Oracle: closed form. Every group that was opened and is closed is retired exactly once."""
    task, journal = ToyTask(), Commands()
    settings = Settings(1, tuple(task.ids("train")), 3, 2, task.context, task.max_tokens)
    runner = Runner(dapo(each=2), settings)

    def train(batch: EmitBatch) -> Published:
        return Published(step=batch.step, version=batch.version + 1)

    world = World(task, ToyTokenizer(), (0,))
    InlineDriver(runner, FakeEngine(), world, train, journal=journal).run()
    opened = Counter(c.group for c in journal.seen if isinstance(c, Reset))
    retired = Counter(c.group for c in journal.seen if isinstance(c, Retire))
    assert runner.ledger.fates["filtered"] > 0
    assert retired == opened


def test_close_on_the_event_that_resumes_carried_work() -> None:
    """Oracle: ledger law. A step that is full from held groups alone interrupts nothing it never started.

    Twelve groups of one for a batch of two: more than two finish at once, so the next step begins with
    enough held groups and closes on the very event that asks for the carried ones again.
    """
    result = run(april(each=1, oversample=6.0), num_tasks=2, num_steps=5, chunk=5)
    assert [len(batch.groups) for batch in result.batches] == [2] * 5
    assert any(view.metrics["num_groups"] == 0 for view in result.reports), "no step was full from the start"
