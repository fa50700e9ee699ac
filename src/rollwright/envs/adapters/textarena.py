"""Games of TextArena."""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from rollwright.envs.adapters._need import need
from rollwright.envs.api import Observation
from rollwright.errors import ConfigError, EnvironmentFault, UnknownName

Opponent = Callable[[str], str]
_DICE = threading.RLock()
_LIMIT = re.compile(r"\b(turn|move) limit\b", re.IGNORECASE)
_MOST_REPLIES = 1000  # moves of other players in a row; then the game is stuck


class TextArenaEnv:
    """One game of TextArena, as one of its players sees it.

    The games draw from Python's and numpy's global generators. Here each game has a state of its own for
    them, which is put in place while the game moves; so games do not disturb each other, and a replay
    sees the same dice.

    What a player is told is the game's new messages, its own moves left out. A game that ends by its turn
    limit is truncated. The reward comes at the end: the game's own, from -1 to 1.

    Args:
        env_id: the game's name; the raw game is taken, without wrappers.
        opponent: text -> move, for the other players; it must be a function of the text.
        player: which one the model is.
        num_players: how many there are; 1 without an opponent, 2 with one.
        settings: for ``textarena.make``.

    Raises:
        ConfigError: TextArena is missing, or does not know the name.
    """

    forking = "replay"

    def __init__(
        self,
        env_id: str,
        opponent: Opponent | None = None,
        player: int = 0,
        num_players: int | None = None,
        **settings: Any,
    ) -> None:
        self.env_id, self.opponent, self.player = env_id, opponent, player
        self.num_players = num_players or (1 if opponent is None else 2)
        arena = need("textarena", "textarena")
        known = need("textarena.envs.registration", "textarena").ENV_REGISTRY
        raw = env_id if env_id.endswith("-raw") else f"{env_id}-raw"
        if raw not in known:
            raise UnknownName(
                "game of TextArena", env_id, [name for name in known if not name.endswith("-raw")]
            )
        self._dice = (random.getstate(), np.random.get_state())
        with self._own_dice():
            try:
                self.game = arena.make(raw, **settings)
            except (TypeError, ValueError, LookupError, OSError) as error:
                raise ConfigError(
                    f"TextArena does not make {env_id!r}: {type(error).__name__}: {error}"
                ) from error

    def reset(self, seed: int) -> str:
        with self._own_dice():
            np.random.seed(seed % 2**32)
            random.seed(seed)
            self.game.reset(num_players=self.num_players, seed=seed)
            done = self._others_move()
        if done:
            raise EnvironmentFault(f"{self.env_id}: the game of seed {seed} is over before the first move")
        return self._news()

    def step(self, turn: str) -> Observation:
        with self._own_dice():
            done, _ = self.game.step(action=turn)
            done = done or self._others_move()
        if not done:
            return Observation(self._news())
        rewards, facts = self.game.close()
        reason = str((facts or {}).get(self.player, {}).get("reason", ""))
        is_limit = bool(_LIMIT.search(reason))
        reward = None if rewards is None else rewards.get(self.player)
        text = self._news() + (f"[GAME] {reason}\n" if reason else "")
        return Observation(text, not is_limit, is_limit, None if reward is None else float(reward))

    def _others_move(self) -> bool:
        """Let the other players move; return whether the game is over."""
        for _ in range(_MOST_REPLIES):
            if self.game.state.done or self.game.state.current_player_id == self.player:
                return bool(self.game.state.done)
            if self.opponent is None:
                raise EnvironmentFault(f"{self.env_id}: another player is to move; give an opponent")
            self.game.step(action=self.opponent(self._text(self.game.state.current_player_id)))
        raise EnvironmentFault(f"{self.env_id}: the others have made {_MOST_REPLIES} moves in a row")

    def _news(self) -> str:
        return self._text(self.player)

    def _text(self, player: int) -> str:
        """Return what is new to a player, and take it from the game."""
        messages = self.game.state.observations[player]
        self.game.state.observations[player] = []
        names = self.game.state.role_mapping
        lines = [f"[{names.get(who, f'Player {who}')}] {text}" for who, text, *_ in messages if who != player]
        return "\n".join(lines) + "\n"

    @contextmanager
    def _own_dice(self) -> Iterator[None]:
        """Put this game's dice in the place of the process's, and back."""
        with _DICE:
            outside = (random.getstate(), np.random.get_state())
            random.setstate(self._dice[0])
            np.random.set_state(self._dice[1])
            try:
                yield
            finally:
                self._dice = (random.getstate(), np.random.get_state())
                random.setstate(outside[0])
                np.random.set_state(outside[1])
