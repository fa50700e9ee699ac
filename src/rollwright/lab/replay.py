"""Fold a run's journal again, with the method and the settings that its config names."""

from __future__ import annotations

from collections.abc import Callable

from rollwright.config import RunConfig
from rollwright.runner import Runner
from rollwright.store.replay import ReplayReport
from rollwright.store.replay import replay as fold
from rollwright.store.run import RunFolder
from rollwright.training.parts import plan_of


def fresh_runner(config: RunConfig) -> Runner:
    """Return the runner that a run of this config starts with. No model is needed for it.

    Raises:
        ConfigError, DataError: its method or task cannot be had.
    """
    method, _, settings = plan_of(config)
    return Runner(method, settings)


def replay(
    folder: RunFolder, progress: Callable[[int], None] | None = None, until: int | None = None
) -> ReplayReport:
    """Fold the journal of a run through a fresh runner and compare every decision, byte for byte.

    Args:
        folder: the run.
        progress, until: as in `rollwright.store.replay.replay`.

    Raises:
        StoreError, JournalCorrupt, ConfigError, DataError: the run cannot be read, or its method or task
            cannot be had.
    """
    method, _, settings = plan_of(folder.config())
    return fold(folder.journal_path, method, settings, progress=progress, until=until)
