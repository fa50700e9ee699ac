"""EnvSched: batches spread over environments, of the tasks whose rewards should differ most."""

from __future__ import annotations

import dataclasses

from rollwright.method import Method
from rollwright.methods.grpo import grpo
from rollwright.stages.select.env_quotas import EnvQuotas


def envsched(
    each: int = 8,
    quota: float = 0.5,
    coverage: float = 0.1,
    similarity: float = 0.05,
    strength: float = 8.0,
    depth: int = 1,
    tags: dict[str, list[str]] | None = None,
    clip_high: float = 0.2,
    reduce: str = "sequence_mean",
) -> Method:
    """Pick the batch by predicted reward variance and coverage, with a quota for each environment.

    Variances that training has seen spread along a graph of tasks: through their environment, through tags
    that they share in it, and through tags that begin with ``~`` into other environments. No rollout is spent
    on finding out.

    Args:
        each: rollouts per prompt, ≥ 1.
        quota: share of a batch that one environment may have, in (0, 1].
        coverage: weight of the bonus for tasks and environments that were seen little, ≥ 0.
        similarity: weight of the penalty for tasks like those that the batch has, ≥ 0.
        strength: rewards that the neighbours' word counts for, > 0.
        depth: parts of a task's id, between slashes, that name its environment, ≥ 1.
        tags: what tasks share, by task id.
        clip_high, reduce: as in `grpo`.

    Raises:
        ConfigError: a number outside its range.

    Source: EnvSched (2026), abstract. What differs: docs/methods/envsched.md.
    """
    by_task = tuple((task, tuple(some)) for task, some in sorted((tags or {}).items()))
    return dataclasses.replace(
        grpo(each, clip_high=clip_high, reduce=reduce),
        name="envsched",
        select=EnvQuotas(quota, coverage, similarity, strength, depth, by_task),
    )
