"""What the tests of the Ray driver share: a cluster of several machines, and a crew of toys."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import ray
from ray.cluster_utils import Cluster

from rollwright.drive.placement import Placement
from rollwright.drive.ray.crew import Crew
from rollwright.drive.ray.driver import RayDriver
from rollwright.drive.ray.recipe import Recipe
from rollwright.drive.ray.settings import CrewSettings, Limits
from rollwright.drive.world import World
from rollwright.errors import LearnerError
from rollwright.events import EmitBatch, Published
from rollwright.runner import Runner
from rollwright.testing.fake import EOS, FakeEngine, ToyTask, ToyTokenizer

LIMITS = ("grader_s", "environment_s", "engine_s")
MEMORY = 80 * 2**20  # of each machine's object store; Ray takes no less than 75 MB


def children() -> set[int]:
    """Return the processes that this one started."""
    files = Path("/proc/self/task").glob("*/children")
    return {int(word) for file in files for word in file.read_text().split()}


def add_machine(cluster: Cluster, cpus: int, tries: int = 5, **options: Any) -> Any:
    """Add a machine. Ray gives each 30 s to start, which is not enough where others are at work."""
    before = children()
    try:
        return cluster.add_node(num_cpus=cpus, object_store_memory=MEMORY, **options)
    except Exception:
        for process in children() - before:  # what came too late is no part of the cluster
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        if tries == 1 or cluster.head_node is None:
            raise
        return add_machine(cluster, cpus, tries - 1, **options)


def started(num: int, cpus: int, tries: int = 4) -> Cluster:
    """Start a cluster of so many machines."""
    cluster = Cluster()
    try:
        add_machine(cluster, cpus, include_dashboard=False)
    except Exception:
        cluster.shutdown()
        if tries == 1:
            raise
        return started(num, cpus, tries - 1)
    for _ in range(num - 1):
        add_machine(cluster, cpus)
    return cluster


@contextmanager
def machines(num: int, cpus: int = 2) -> Iterator[Cluster]:
    """Run a cluster of so many machines in this one, and connect to it."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)  # the actors make their parts from this module
    try:
        cluster = started(num, cpus)
        try:
            ray.init(address=cluster.address, log_to_driver=False, logging_level="error")
            yield cluster
        finally:
            ray.shutdown()
            cluster.shutdown()
    finally:
        del os.environ["PYTHONPATH"]
        if before is not None:
            os.environ["PYTHONPATH"] = before


class ToySampler(FakeEngine):
    """A fake engine whose version is that of the weights which it was given, and of nothing else."""

    def load(self, weights: Any) -> None:
        self.loaded = int(weights["version"][0])
        self.seen = weights["version"]

    def publish(self, version: int) -> None:
        assert version == self.loaded, f"published {version} over weights of {self.loaded}"
        self.version = version


class ToyTrainer:
    """A trainer whose whole state is a version and the steps that it was given."""

    def __init__(self) -> None:
        self.version, self.steps = 0, []

    def train(self, batch: EmitBatch) -> Published:
        if batch.version != self.version:
            raise LearnerError(f"given a batch for version {batch.version} at version {self.version}")
        self.version += 1
        self.steps.append(batch.step)
        return Published(step=batch.step, version=self.version, learner_tokens=3)

    def weights(self) -> tuple[int, dict[str, Any]]:
        return self.version, {"version": np.full(200_000, self.version, np.float32)}

    def save(self) -> dict[str, bytes]:
        return {"state.json": json.dumps([self.version, self.steps]).encode()}

    def load(self, files: Any) -> None:
        self.version, self.steps = json.loads(files["state.json"])


def toy_world(task: ToyTask | None = None) -> World:
    return World(task or ToyTask(), ToyTokenizer(), (EOS,))


def first_files() -> dict[str, bytes]:
    """The checkpoint of a run that begins."""
    return ToyTrainer().save()


@contextmanager
def toy_crew(
    recipe: Recipe | None = None,
    clock: Callable[[], float] = time.monotonic,
    placement: Placement | None = None,
    **settings: Any,
) -> Iterator[Crew]:
    """A crew of toys, closed at the end."""
    limits = Limits(**{name: settings.pop(name) for name in list(settings) if name in LIMITS})
    cfg = {"workers": 2, "graders": 1, "worker_cpus": 0.5, **settings}
    recipe = recipe or Recipe(ToySampler, toy_world, ToyTrainer)
    crew = Crew(recipe, CrewSettings(**cfg), first_files, limits, placement, clock)
    try:
        yield crew
    finally:
        crew.close()


class Run:
    """A toy run on a crew: what it trained, and its journal."""

    def __init__(self, crew: Crew, runner: Runner, journal: Any = None, **options: Any) -> None:
        self.batches: list[EmitBatch] = []
        self.driver = RayDriver(runner, crew, journal, clock=crew.clock, **options)
        self.runner, self.execute = runner, self.driver.execute
        self.driver.execute = self._execute  # type: ignore[method-assign]

    def _execute(self, command: Any) -> Any:
        if isinstance(command, EmitBatch):
            self.batches.append(command)
        return self.execute(command)


def outcome(batches: Sequence[EmitBatch]) -> dict[str, Any]:
    """Return what was trained by group and rollout: tokens, logprobs, versions, reward and status.

    How a rollout is cut into nodes is left out: a lost worker ends one.
    """
    found = {}
    for batch in {batch.step: batch for batch in batches}.values():
        for group in batch.groups:
            for t in group.trajectories:
                r = group.response(t)
                old = [x for x, sampled in zip(r.logp_old, r.is_sampled, strict=True) if sampled]
                key = f"{batch.step} {batch.version} {group.id} {t.index}"
                found[key] = (r.tokens, old, r.versions.tolist(), t.reward, t.status)
    return found
