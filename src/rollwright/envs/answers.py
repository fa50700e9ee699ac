"""What an environment answers, held to what it must be."""

from __future__ import annotations

import math
from typing import Any

from rollwright.envs.api import Environment, Observation, Turn
from rollwright.errors import EnvironmentFault


def answer(env: Environment, turn: Turn) -> Observation:
    """Take one turn and return what the environment says, with plain flags and a plain reward.

    Raises:
        EnvironmentFault: that is no `Observation` of a text, two flags and a finite number or None.
    """
    return as_observation(type(env).__name__, env.step(turn))


def as_observation(name: str, seen: Any) -> Observation:
    """Return ``seen`` with plain flags and a plain reward.

    Raises:
        EnvironmentFault: it is no `Observation` of a text, two flags and a finite number or None.
    """
    if not isinstance(seen, Observation):
        raise EnvironmentFault(
            f"{name}: step returned {type(seen).__name__}; expected an Observation. Environments of other"
            " packages go through an adapter of rollwright.envs.adapters"
        )
    return Observation(
        checked_text(seen.text, f"{name}: step, as its text,"),
        _flag(name, "terminated", seen.terminated),
        _flag(name, "truncated", seen.truncated),
        _reward(name, seen.reward),
        _tokens(name, seen.tokens),
    )


def checked_text(text: Any, where: str) -> str:
    """Return ``text`` if it is one.

    Raises:
        EnvironmentFault: it is something else.
    """
    if not isinstance(text, str):
        raise EnvironmentFault(f"{where} returned {type(text).__name__}; expected text (str)")
    return text


def _flag(name: str, flag: str, value: Any) -> bool:
    if type(value).__name__ not in ("bool", "bool_"):  # numpy's is named so
        raise EnvironmentFault(f"{name}: {flag} is {value!r}; expected True or False")
    return bool(value)


def _tokens(name: str, value: Any) -> tuple[int, ...] | None:
    if value is None:
        return None
    tokens = tuple(value)
    if not all(type(token) is int and token >= 0 for token in tokens):
        raise EnvironmentFault(f"{name}: its tokens are {value!r}; expected whole numbers from 0 on")
    return tokens


def _reward(name: str, reward: Any) -> float | None:
    """Return a reward as a float, None as None: truth values, texts and NaN are no rewards."""
    if reward is None:
        return None
    is_number = not isinstance(reward, str | bytes | bool) and type(reward).__name__ != "bool_"
    try:
        value = float(reward) if is_number else math.nan
    except (TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value):
        raise EnvironmentFault(f"{name}: the reward is {reward!r}; expected a finite number or None")
    return value
