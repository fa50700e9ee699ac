"""What a crew is made of and where its limits are. Imports no Ray, so that a config can hold it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CrewSettings:
    """Actors, their share of the machines, and limits on what is sent to them.

    Args:
        workers: rollout workers, ≥ 0; 0 is as many as the cluster's CPUs and GPUs have room for, also
            after machines came or went.
        graders: actors for prompts, environments and grades, ≥ 1.
        worker_cpus, worker_gpus: what Ray reserves for a rollout worker, ≥ 0.
        grader_cpus: what Ray reserves for a grader, ≥ 0.
        learner_cpus, learner_gpus: what Ray reserves for the learner, ≥ 0.
        worker_asks: asks that a worker holds at once, ≥ 1; the rest waits with the driver.
        grader_asks: prompts, environment steps and grades that are sent in one call at most, ≥ 1.
        start_s: seconds without any worker, or any grader, until the run ends with an error, > 0.
        setup_s: seconds that starting, saving or restoring the learner may take, > 0.
        losses: workers in a row that may end before any of them answered, ≥ 1; also how many graders may
            end over one ask, which they had alone, before it counts as failed.
    """

    workers: int = 0
    graders: int = 1
    worker_cpus: float = 1.0
    worker_gpus: float = 0.0
    grader_cpus: float = 0.0
    learner_cpus: float = 0.0
    learner_gpus: float = 0.0
    worker_asks: int = 256
    grader_asks: int = 32
    start_s: float = 300.0
    setup_s: float = 600.0
    losses: int = 5


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds after which a call is given up, and its actor replaced.

    Args:
        grader_s: one grade; it has failed then.
        environment_s: one prompt or environment step, likewise.
        engine_s: a worker's next chunk, or a change of its weights; its asks go to others.
    """

    grader_s: float = 600.0
    environment_s: float = 600.0
    engine_s: float = 600.0
