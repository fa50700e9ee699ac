"""What a simulation assumes: plain values with units. docs/simulator.md has the equations."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from statistics import NormalDist
from typing import Protocol

from rollwright import rng as randomness
from rollwright.errors import ConfigError

_NORMAL = NormalDist()
_UNIT = 2.0**-52


class Distribution(Protocol):
    """A distribution by its inverse: the value at a share of the mass."""

    def at(self, share: float) -> float:
        """Return the value below which ``share`` of the mass lies, share in (0, 1)."""
        ...


@dataclass(frozen=True, slots=True)
class Constant:
    """Always ``value``, ≥ 0."""

    value: float

    def __post_init__(self) -> None:
        _check(self, "value", self.value, self.value >= 0, "≥ 0")

    def at(self, share: float) -> float:
        return self.value


@dataclass(frozen=True, slots=True)
class LogNormal:
    """median · exp(sigma · z) with z standard normal: long-tailed; its mean is median · exp(sigma²/2)."""

    median: float
    sigma: float

    def __post_init__(self) -> None:
        _check(self, "median", self.median, self.median > 0, "> 0")
        _check(self, "sigma", self.sigma, self.sigma >= 0, "≥ 0")

    def at(self, share: float) -> float:
        return self.median * math.exp(self.sigma * normal_at(share))


@dataclass(frozen=True, slots=True)
class Empirical:
    """Each of ``values`` (a measured sample, any order) with the same probability."""

    values: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.values:
            raise ConfigError("Empirical: no values; give the measured lengths or seconds")
        _check(self, "values", min(self.values), min(self.values) >= 0, "all ≥ 0")

    def at(self, share: float) -> float:
        return self.values[int(share * len(self.values))]


def normal_at(share: float) -> float:
    """Return the standard normal's value below which ``share`` of the mass lies."""
    return _NORMAL.inv_cdf(share)


def _check(owner: object, name: str, value: float, is_good: bool, expected: str) -> None:
    if not (is_good and math.isfinite(value)):
        raise ConfigError(f"{type(owner).__name__}: {name} = {value!r}; expected a number {expected}")


def share_of(key: int, t: int, purpose: int = 0) -> float:
    """Return a number in (0, 1) that depends on the key, the position and the purpose alone."""
    high, low = randomness.step_words(key ^ purpose, t)
    return ((high << 20 | low >> 12) + 0.5) * _UNIT


@dataclass(frozen=True, slots=True)
class EngineModel:
    """Decode workers with continuous batching.

    A decode step of a worker with b live sequences takes ``step_seconds + sequence_seconds · b``; before
    it, sequences that join cost ``prefill_seconds`` for each token of their prefix that is not cached.

    Args:
        num_workers: engines that decode side by side.
        num_slots: sequences that one worker decodes at once; more wait in one queue, first come first
            served.
        step_seconds: seconds of a decode step that do not depend on the batch.
        sequence_seconds: seconds that each live sequence adds to a decode step.
        prefill_seconds: seconds per prefilled token.
        failure_seconds: mean seconds until a running worker fails (exponential); None is never.
        restart_seconds: seconds until a failed worker takes work again.
    """

    num_workers: int = 8
    num_slots: int = 64
    step_seconds: float = 0.02
    sequence_seconds: float = 0.0002
    prefill_seconds: float = 0.00005
    failure_seconds: float | None = None
    restart_seconds: float = 60.0

    def __post_init__(self) -> None:
        for name in ("num_workers", "num_slots"):
            _check(self, name, getattr(self, name), getattr(self, name) >= 1, "≥ 1")
        for name in ("sequence_seconds", "prefill_seconds", "restart_seconds"):
            _check(self, name, getattr(self, name), getattr(self, name) >= 0, "≥ 0")
        # A step must take time: with none of it nothing would order the tokens.
        _check(self, "step_seconds", self.step_seconds, self.step_seconds > 0, "> 0")
        if self.failure_seconds is not None:
            _check(self, "failure_seconds", self.failure_seconds, self.failure_seconds > 0, "> 0")

    def decode_seconds(self, num_live: int) -> float:
        """Return the seconds of one decode step with ``num_live`` sequences."""
        return self.step_seconds + self.sequence_seconds * num_live


@dataclass(frozen=True, slots=True)
class TaskModel:
    """Prompts, environments and rewards.

    A rollout of task k sampled by version v is right with probability
    sigmoid(``logit`` + ``logit_spread`` · z_k + ``logit_gain`` · v), z_k standard normal and fixed by the
    task's id; one that was cut by its length or its context is wrong.

    Args:
        prompt: tokens of a prompt.
        response: tokens that a turn would have without limits; the end token counts.
        observation: tokens that an environment says after a turn.
        end_share: probability that the environment ends the episode after a turn.
        logit, logit_spread, logit_gain: see above.
    """

    prompt: Distribution = field(default_factory=lambda: Constant(128))
    response: Distribution = field(default_factory=lambda: LogNormal(400.0, 1.0))
    observation: Distribution = field(default_factory=lambda: Constant(32))
    end_share: float = 0.25
    logit: float = 0.0
    logit_spread: float = 1.5
    logit_gain: float = 0.0

    def __post_init__(self) -> None:
        _check(self, "end_share", self.end_share, 0 <= self.end_share <= 1, "in [0, 1]")
        _check(self, "logit_spread", self.logit_spread, self.logit_spread >= 0, "≥ 0")


@dataclass(frozen=True, slots=True)
class ServiceModel:
    """How long prompts, environment steps and grades take.

    Args:
        reset, env_step, grade: seconds of one call.
        num_envs, num_graders: calls that run at once, the others wait in line; None is any number.
    """

    reset: Distribution = field(default_factory=lambda: Constant(0.0))
    env_step: Distribution = field(default_factory=lambda: Constant(0.1))
    grade: Distribution = field(default_factory=lambda: Constant(0.05))
    num_envs: int | None = None
    num_graders: int | None = None

    def __post_init__(self) -> None:
        for name in ("num_envs", "num_graders"):
            num = getattr(self, name)
            if num is not None:
                _check(self, name, num, num >= 1, "≥ 1, or None")


@dataclass(frozen=True, slots=True)
class LearnerModel:
    """An update takes ``step_seconds + token_seconds · tokens`` (prompt and response of each trajectory)."""

    step_seconds: float = 1.0
    token_seconds: float = 0.00002

    def __post_init__(self) -> None:
        for item in fields(self):
            _check(self, item.name, getattr(self, item.name), getattr(self, item.name) >= 0, "≥ 0")


@dataclass(frozen=True, slots=True)
class Model:
    """Everything that a simulation assumes about the world around the runner."""

    engine: EngineModel = field(default_factory=EngineModel)
    tasks: TaskModel = field(default_factory=TaskModel)
    services: ServiceModel = field(default_factory=ServiceModel)
    learner: LearnerModel = field(default_factory=LearnerModel)
