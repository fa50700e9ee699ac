"""Any environment of Gymnasium, by name."""

from __future__ import annotations

from typing import Any

from rollwright.envs.adapters.gymnasium import gymnasium_task
from rollwright.envs.task import EnvTask


def gymnasium(env_id: str, *, actions: str = "", **config: Any) -> EnvTask:
    """Take any environment of Gymnasium by name, for example ``gymnasium:FrozenLake-v1``.

    Args:
        env_id: the environment's name there.
        actions: names for its actions 0, 1, ..., with commas between them.
        config: max_turns, max_tokens, context, success, num_train, num_test; others go to the environment.
    """
    names = tuple(name.strip() for name in actions.split(",") if name.strip())
    task: EnvTask = gymnasium_task(env_id, names, **config)
    return task
