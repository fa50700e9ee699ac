"""Fold a run's journal again and prove that every decision comes out the same, byte for byte."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rollwright.config import RunConfig
from rollwright.events import AnyCommand, AnyEvent
from rollwright.runner import Runner
from rollwright.store.journal import check_replay
from rollwright.store.run import RunFolder
from rollwright.training.parts import plan_of


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay found.

    Args:
        num_records: events whose decisions came out the same.
        num_commands: decisions in all.
        runner: the runner behind the last event.
    """

    num_records: int
    num_commands: int
    runner: Runner


def fresh_runner(config: RunConfig) -> Runner:
    """Return the runner that a run of this config starts with. No model is needed for it.

    Raises:
        ConfigError, DataError: its method or task cannot be had.
    """
    method, _, settings = plan_of(config)
    return Runner(method, settings)


def replay(folder: RunFolder, progress: Callable[[int], None] | None = None) -> Replayed:
    """Fold the journal of a run through a fresh runner.

    Args:
        folder: the run.
        progress: called with the number of records folded so far.

    Raises:
        LawBroken: a decision differs; its record and the first difference are named.
        StoreError, JournalCorrupt, ConfigError: the run cannot be read.
    """
    runner = fresh_runner(folder.config())
    num_records = num_commands = 0

    def step(event: AnyEvent) -> Sequence[AnyCommand]:
        nonlocal num_records, num_commands
        commands = runner.step(event)
        num_records += 1
        num_commands += len(commands)
        runner.take_closed()  # not needed here: keep memory flat
        if progress is not None and num_records % 1000 == 0:
            progress(num_records)
        return commands

    return Replayed(check_replay(folder.journal_path, step), num_commands, runner)
