"""Any game of TextArena for one player, by name."""

from __future__ import annotations

from functools import partial
from typing import Any

from rollwright.envs.adapters.textarena import TextArenaEnv
from rollwright.envs.task import OPTIONS, EnvTask, env_task


def textarena(game: str, **config: Any) -> EnvTask:
    """Take any game of TextArena for one player by name, for example ``textarena:GuessTheNumber-v0``.

    Args:
        game: the game's name there.
        config: max_turns, max_tokens, context, success, num_train, num_test; others go to the game.
    """
    ours = {key: value for key, value in config.items() if key in OPTIONS}
    theirs = {key: value for key, value in config.items() if key not in OPTIONS}
    return env_task(partial(TextArenaEnv, game, **theirs), f"textarena:{game}", **ours)
