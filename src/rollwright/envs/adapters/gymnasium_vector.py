"""Many environments of Gymnasium at once: the transitions of whole episodes, whatever the autoreset mode.

What a vector environment returns at the end of an episode depends on its mode, and taken as it comes it
trains on steps that nobody made or on the first observation of the next episode:

- next step: the step after the end only resets. Its action was not used; it is no transition;
- same step: the observation at the end belongs to the next episode already; the last one of this
  episode is in ``infos["final_obs"]``;
- disabled: nobody resets unless asked to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rollwright.envs.adapters._need import need
from rollwright.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Transition:
    """One step of one episode.

    Args:
        index: of the environment.
        episode: of this environment, from 0.
        number: of the step in its episode, from 0.
        observation, action, reward: what was seen, done and got.
        next_observation: what followed, of the same episode, also at its end.
        terminated, truncated: how it ended, if it did.
    """

    index: int
    episode: int
    number: int
    observation: Any
    action: Any
    reward: float
    next_observation: Any
    terminated: bool
    truncated: bool


class VectorEpisodes:
    """Steps a vector environment and returns transitions only.

    Args:
        env: of ``gymnasium.vector``, in any autoreset mode.

    Attributes:
        observations: what to act on next, one for each environment.

    Raises:
        ConfigError: the environment does not say its mode.

    Example::

        episodes = VectorEpisodes(gymnasium.make_vec("CartPole-v1", num_envs=4))
        episodes.reset(seed=0)
        for transition in episodes.step(policy(episodes.observations)):
            ...
    """

    def __init__(self, env: Any) -> None:
        modes = need("gymnasium.vector", "gymnasium").AutoresetMode
        mode = env.metadata.get("autoreset_mode")
        if mode not in tuple(modes):
            raise ConfigError(
                f"the vector environment says {mode!r} as its autoreset mode; expected one of {modes}"
            )
        self.env, self.mode, self.modes = env, mode, modes
        self.observations: list[Any] = []
        self._is_over = np.zeros(env.num_envs, dtype=bool)  # ended at the last step, and not yet reset
        self._episode = [0] * env.num_envs
        self._number = [0] * env.num_envs

    def reset(self, seed: int | Sequence[int] | None = None) -> None:
        """Begin the first episodes."""
        seeds = seed if seed is None or isinstance(seed, int) else list(seed)
        observations, _ = self.env.reset(seed=seeds)
        self.observations = self._split(observations)
        self._is_over[:] = False
        self._episode, self._number = [0] * self.env.num_envs, [0] * self.env.num_envs

    def step(self, actions: Sequence[Any]) -> list[Transition]:
        """Act everywhere. An environment that only resets in this step gives no transition."""
        got, rewards, terminated, truncated, infos = self.env.step(np.asarray(actions))
        observations = self._split(got)
        found = []
        for index in range(self.env.num_envs):
            if self._is_over[index]:  # next step: that was the reset
                continue
            last = observations[index]
            is_over = bool(terminated[index] or truncated[index])
            if is_over and self.mode is self.modes.SAME_STEP:
                last = infos["final_obs"][index]
            found.append(self._transition(index, actions[index], rewards[index], last, terminated, truncated))
        self._begin(np.logical_or(terminated, truncated), observations)
        return found

    def _transition(
        self, index: int, action: Any, reward: Any, last: Any, terminated: Any, truncated: Any
    ) -> Transition:
        transition = Transition(
            index,
            self._episode[index],
            self._number[index],
            self.observations[index],
            action,
            float(reward),
            last,
            bool(terminated[index]),
            bool(truncated[index]) and not terminated[index],
        )
        self._number[index] += 1
        return transition

    def _begin(self, over: Any, observations: list[Any]) -> None:
        """Go on to the next episode where one begins."""
        starts = over if self.mode is not self.modes.NEXT_STEP else self._is_over.copy()
        if self.mode is self.modes.DISABLED and over.any():
            observations = self._split(
                self.env.reset(options={"reset_mask": np.asarray(over, dtype=bool)})[0]
            )
        for index in np.flatnonzero(starts):
            self._episode[index] += 1
            self._number[index] = 0
        self._is_over = over & ~self._is_over if self.mode is self.modes.NEXT_STEP else np.zeros_like(over)
        self.observations = observations

    def _split(self, observations: Any) -> list[Any]:
        """Return the observations one by one, as copies: environments may reuse their memory."""
        from gymnasium.vector.utils import iterate

        return [_copied(part) for part in iterate(self.env.observation_space, observations)]


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(part) for key, part in value.items()}
    if isinstance(value, tuple):
        return tuple(_copied(part) for part in value)
    return np.copy(value) if isinstance(value, np.ndarray) else value
