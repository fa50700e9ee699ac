"""Carry a comparison out: which run is next, when it is decided, and what is written."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from rollwright.compare.contrast import contrasts
from rollwright.compare.plan import Arm, Plan
from rollwright.compare.pool import COMMAND, Job, Pool, Row
from rollwright.compare.reading import Run, read_run
from rollwright.compare.result import floor_of, outcomes
from rollwright.compare.sequential import SequentialTest
from rollwright.config import dump_config

Key = tuple[str, int]  # (label, seed)
LOGS = "logs"


class Comparison:
    """The runs of a plan in one folder. Runs that are done are not made again.

    Args:
        plan, out: what, and where.
        test: decides.
        is_early: begin no new seed of an arm once it is told from the baseline.
        on_row: called with (label, seed, row) as runs go on.
        on_end: called with (label, seed, end) as runs end.
    """

    command = COMMAND  # starts a worker

    def __init__(
        self,
        plan: Plan,
        out: Path,
        test: SequentialTest,
        is_early: bool = False,
        on_row: Callable[[str, int, Row], None] = lambda label, seed, row: None,
        on_end: Callable[[str, int, Row], None] = lambda label, seed, end: None,
    ) -> None:
        self.plan, self.out, self.test, self.is_early = plan, out, test, is_early
        self.on_row, self.on_end = on_row, on_end
        self.runs: dict[Key, Run] = {}
        self.failed: dict[Key, str] = {}
        self.flying: set[Key] = set()
        # Seed by seed, so that pairs are complete as early as they can be.
        self.keys = [(arm.label, seed) for seed in plan.seeds for arm in plan.arms]
        self._arms = {arm.label: arm for arm in plan.arms}
        for key in self.keys:
            self._read(key)
        self._waiting = [key for key in self.keys if self.runs[key].state not in ("done", "short")]

    @property
    def num_cores(self) -> int:
        """Cores that one run uses."""
        return self.plan.config(self.plan.arms[0], self.plan.seeds[0]).threads or 1

    def run(self, num_at_once: int | None = None, silent_s: float = 3600.0) -> None:
        """Make the runs that are missing.

        Args:
            num_at_once: runs side by side; None is as many as there are cores for.
            silent_s: seconds without a word after which a run is given up.
        """
        num = num_at_once or max(1, len(os.sched_getaffinity(0)) // self.num_cores)
        by_name = {f"{label} seed {seed}": (label, seed) for label, seed in self.keys}

        def row(job: Job, values: Row) -> None:
            self.on_row(*by_name[job.name], values)

        def end(job: Job, values: Row) -> None:
            key = by_name[job.name]
            self.flying.discard(key)
            if "failed" in values:
                self.failed[key] = str(values["failed"])
            self._read(key)
            self.on_end(*key, values)

        Pool(num, self.next_job, row, end, silent_s, self.command).run()

    def next_job(self) -> Job | None:
        """Return the next run to make, or None."""
        decided = self.decided() if self.is_early else frozenset()
        while self._waiting:
            label, seed = self._waiting[0]
            if self._is_needed(label, decided):
                self._waiting.pop(0)
                self.flying.add((label, seed))
                self.failed.pop((label, seed), None)
                return self._job(self._arms[label], seed)
            self._waiting.pop(0)
        return None

    def decided(self) -> frozenset[str]:
        """Return the arms that are told from the baseline."""
        runs = list(self.runs.values())
        is_open: dict[str, frozenset[int]] = {}
        for label, seed in (*self.flying, *self._waiting):  # what failed is over
            is_open[label] = is_open.get(label, frozenset()) | {seed}
        found = contrasts(
            outcomes(self.plan, runs),
            self.plan.arms[0].label,
            self.plan.seeds,
            self.test,
            floor_of(runs),
            is_open,
            has_power=False,
        )
        return frozenset(one.label for one in found if one.is_found)

    def _is_needed(self, label: str, decided: frozenset[str]) -> bool:
        others = {arm.label for arm in self.plan.arms[1:]}
        if not others or not decided:
            return True
        return label not in decided if label in others else bool(others - decided)

    def _read(self, key: Key) -> None:
        label, seed = key
        folder = self.plan.folder(self.out, self._arms[label], seed)
        self.runs[key] = read_run(folder, label, seed, self.plan.budget.unit, self.plan.points())

    def _job(self, arm: Arm, seed: int) -> Job:
        config = self.plan.config(arm, seed)
        folder = self.plan.folder(self.out, arm, seed)
        return Job(
            name=f"{arm.label} seed {seed}",
            values={
                "folder": str(folder),
                "config": dump_config(config),
                "unit": self.plan.budget.unit,
                "points": self.plan.points(),
            },
            log=self.out / LOGS / f"{arm.slug}-seed-{seed}.txt",
            threads=config.threads or 1,
        )
