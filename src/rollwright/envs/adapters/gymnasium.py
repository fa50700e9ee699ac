"""Environments of Gymnasium as environments of texts."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from rollwright.envs.adapters._need import need
from rollwright.envs.answers import answer
from rollwright.envs.api import Observation
from rollwright.envs.keepers import close
from rollwright.envs.signature import signature
from rollwright.errors import ConfigError, DataError, RollwrightError

_COLOURS = re.compile(r"\x1b\[0m|(\x1b\[[\d;]*m)")
Describe = Callable[[Any, Any], str]


class GymnasiumEnv:
    """One environment of Gymnasium.

    A turn is an action: a whole number, one of ``actions``, or JSON for spaces of several numbers. A turn
    that is no action is answered in words and is no step of the environment.

    Args:
        env_id: its name there.
        actions: names of the actions 0, 1, ...
        describe: turns (environment, observation) into text. Without it: what the environment draws in
            text, where it does, and the observation's values.
        settings: for ``gymnasium.make``.

    Raises:
        ConfigError: Gymnasium is missing or does not know the name or a setting.
    """

    forking = "copy"
    max_tokens = 16

    def __init__(
        self,
        env_id: str,
        actions: Sequence[str] = (),
        describe: Describe | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.env = _make(env_id, dict(settings or {}))
        self.env_id, self.actions, self.describe = env_id, tuple(actions), describe
        self._way: tuple[Any, ...] = ()  # the seed and the turns since
        self.max_turns = (self.env.spec and self.env.spec.max_episode_steps) or 64
        num = getattr(self.env.action_space, "n", None)
        if actions and len(actions) != num:
            raise ConfigError(
                f"{env_id} has the actions {self.env.action_space}; {len(actions)} names were given"
            )

    def reset(self, seed: int) -> str:
        self._way = (seed,)
        observation, _ = self.env.reset(seed=seed)
        return f"{self.env_id}. A turn is {self._expected()}.\n{self._text(observation)}\n"

    def step(self, turn: str) -> Observation:
        action = self._action(turn.strip())
        if action is None:
            return Observation(f"no action; expected {self._expected()}\n")
        self._way = (*self._way, turn)
        observation, reward, terminated, truncated, _ = self.env.step(action)
        text = self._text(observation) + "\n"
        return Observation(text, bool(terminated), bool(truncated) and not terminated, float(reward))

    def signature(self) -> str:
        """Return the signature of all that the environment holds, its generator and its clock included.

        One that holds what has no content, such as a lock, is named by its seed and turns.
        """
        try:
            return signature(vars(self.env))
        except DataError:
            return signature(self._way)

    def sample_turn(self, rng: Any) -> str:
        space = self.env.action_space
        if hasattr(space, "n"):
            number = int(rng.integers(space.n))
            return self.actions[number] if self.actions else str(number + int(space.start))
        space.seed(int(rng.integers(2**31)))
        return json.dumps(np.asarray(space.sample()).tolist())

    def close(self) -> None:
        self.env.close()

    def _expected(self) -> str:
        space = self.env.action_space
        if self.actions:
            return f"one of {', '.join(self.actions)}"
        if hasattr(space, "n"):
            return f"a whole number from {space.start} to {space.start + space.n - 1}"
        return f"JSON with an action of {space}"

    def _action(self, text: str) -> Any:
        """Return the action that a text names, or None."""
        space = self.env.action_space
        if text in self.actions:
            return self.actions.index(text) + int(space.start)
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return None
        if hasattr(space, "n"):
            return value if type(value) is int and space.contains(value) else None
        try:
            array = np.asarray(value, dtype=space.dtype)
        except (ValueError, TypeError, OverflowError):
            return None
        return array if space.contains(array) else None

    def _text(self, observation: Any) -> str:
        if self.describe is not None:
            return self.describe(self.env, observation)
        values = _values(observation)
        if self.env.render_mode != "ansi":
            return values
        drawn = _COLOURS.sub(lambda found: "[" if found[1] else "]", str(self.env.render()))
        return f"{drawn.strip()}\nobservation {values}"


def forking_of(make: Callable[[], GymnasiumEnv]) -> str:
    """Return ``"copy"`` where a copy of an environment answers as the environment does, else ``"replay"``."""
    env = make()
    try:
        env.reset(0)
        twin = copy.deepcopy(env)
        turn = env.sample_turn(np.random.default_rng(0))
        return "copy" if answer(env, turn) == answer(twin, turn) else "replay"
    except RollwrightError:
        raise
    except Exception:  # what cannot be copied, such as a window or a C library's handle, raises anything
        return "replay"
    finally:
        close(env)


def gymnasium_task(
    env_id: str, actions: Sequence[str] = (), describe: Describe | None = None, **options: Any
) -> Any:
    """Return a task of one of Gymnasium's environments.

    Args:
        env_id, actions, describe: as of `GymnasiumEnv`.
        options: those of `rollwright.envs.env_task`; others go to ``gymnasium.make``.
    """
    from rollwright.envs.task import OPTIONS, env_task

    ours = {key: value for key, value in options.items() if key in OPTIONS}
    theirs = {key: value for key, value in options.items() if key not in OPTIONS}
    make = partial(GymnasiumEnv, env_id, actions, describe, theirs)
    return env_task(make, f"gymnasium:{env_id}", **{"forking": forking_of(make), **ours})


def _make(env_id: str, settings: dict[str, Any]) -> Any:
    gym = need("gymnasium", "gymnasium")
    try:
        spec = gym.spec(env_id)
        entry = spec.entry_point
        kind = entry if callable(entry) else gym.envs.registration.load_env_creator(entry)
        drawn = getattr(kind, "metadata", {})
        modes = {"render_mode": "ansi"} if "ansi" in drawn.get("render_modes", ()) else {}
        return gym.make(env_id, **{**modes, **settings})
    except gym.error.Error as error:
        raise ConfigError(f"Gymnasium does not make {env_id!r}: {error}") from error
    except TypeError as error:
        raise ConfigError(f"{env_id} refuses the settings {settings}: {error}") from error


def _values(observation: Any) -> str:
    """Return an observation as JSON; numbers of six digits are more than a model reads."""
    if isinstance(observation, Mapping):
        return "{" + ", ".join(f"{json.dumps(k)}: {_values(v)}" for k, v in observation.items()) + "}"
    if isinstance(observation, tuple):
        return "[" + ", ".join(_values(value) for value in observation) + "]"
    array = np.asarray(observation)
    if array.dtype.kind == "f":
        array = np.array([float(f"{x:.6g}") for x in array.ravel()]).reshape(array.shape)
    return json.dumps(array.tolist())
