"""Make actors of plain classes, each with its share of a machine."""

from __future__ import annotations

import contextlib
from typing import Any

import ray
from ray.exceptions import RayError

from rollwright.drive.ray.actors import Grader, Learner, RolloutWorker
from rollwright.drive.ray.settings import CrewSettings

Actor = Any  # a handle; Ray gives it no type of its own


def _hire(kind: type, cpus: float, gpus: float = 0.0) -> Actor:
    # Ray never restarts it: a new one must be given the weights before it may serve.
    options = {"num_cpus": cpus, "num_gpus": gpus, "max_restarts": 0, "max_task_retries": 0}
    return ray.remote(kind).options(scheduling_strategy="SPREAD", **options).remote()


def hire_worker(cfg: CrewSettings) -> Actor:
    """Return a new rollout worker; it may have to wait for a machine."""
    return _hire(RolloutWorker, cfg.worker_cpus, cfg.worker_gpus)


def hire_grader(cfg: CrewSettings) -> Actor:
    """Return a new grader."""
    return _hire(Grader, cfg.grader_cpus)


def hire_learner(cfg: CrewSettings) -> Actor:
    """Return a new learner."""
    return _hire(Learner, cfg.learner_cpus, cfg.learner_gpus)


def dismiss(actor: Actor) -> None:
    """End an actor at once, be it alive or not."""
    with contextlib.suppress(RayError, ValueError):
        ray.kill(actor, no_restart=True)


def room_for_workers(cfg: CrewSettings) -> int:
    """Return how many rollout workers the machines that are there have room for."""
    room = 0
    for node in ray.nodes():
        if not node["Alive"]:
            continue
        needs = {"CPU": cfg.worker_cpus, "GPU": cfg.worker_gpus}
        fits = [int(node["Resources"].get(name, 0.0) / need) for name, need in needs.items() if need > 0]
        room += min(fits, default=1)
    return max(1, room)
