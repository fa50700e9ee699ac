"""Distributions by their inverse, and the counter-based numbers that they are drawn with."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Protocol

from rollwright import rng as randomness
from rollwright.errors import ConfigError

_NORMAL = NormalDist()
_UNIT = 2.0**-52
LEAST_SHARE = 2.0**-53  # shares keep this distance from 0 and 1


class Distribution(Protocol):
    """A distribution by its inverse: the value at a share of the mass."""

    def at(self, share: float) -> float:
        """Return the value below which ``share`` of the mass lies, share in (0, 1)."""
        ...


def check(owner: object, name: str, value: float, is_good: bool, expected: str) -> None:
    """Refuse a value that is not finite or not good.

    Raises:
        ConfigError: with the owner, the name, the value and what was expected.
    """
    if not (is_good and math.isfinite(value)):
        raise ConfigError(f"{type(owner).__name__}: {name} = {value!r}; expected a number {expected}")


@dataclass(frozen=True, slots=True)
class Constant:
    """Always ``value``, ≥ 0."""

    value: float

    def __post_init__(self) -> None:
        check(self, "value", self.value, self.value >= 0, "≥ 0")

    def at(self, share: float) -> float:
        return self.value


@dataclass(frozen=True, slots=True)
class LogNormal:
    """median · exp(sigma · z) with z standard normal: long-tailed; its mean is median · exp(sigma²/2)."""

    median: float
    sigma: float

    def __post_init__(self) -> None:
        check(self, "median", self.median, self.median > 0, "> 0")
        check(self, "sigma", self.sigma, self.sigma >= 0, "≥ 0")

    def at(self, share: float) -> float:
        return self.median * math.exp(self.sigma * normal_at(share))


@dataclass(frozen=True, slots=True)
class Pareto:
    """least · (1 − share)^(−1/tail): a power law from ``least`` on; its mean is least · tail / (tail − 1).

    Args:
        least: the smallest value, > 0.
        tail: the exponent, > 1 so that there is a mean; the smaller, the heavier the tail.
    """

    least: float
    tail: float

    def __post_init__(self) -> None:
        check(self, "least", self.least, self.least > 0, "> 0")
        check(self, "tail", self.tail, self.tail > 1, "> 1")

    def at(self, share: float) -> float:
        return float(self.least * (1 - share) ** (-1 / self.tail))


@dataclass(frozen=True, slots=True)
class Empirical:
    """Each of ``values`` (a measured sample, any order) with the same probability."""

    values: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.values:
            raise ConfigError("Empirical: no values; give the measured lengths or seconds")
        check(self, "values", min(self.values), min(self.values) >= 0, "all ≥ 0")

    def at(self, share: float) -> float:
        return self.values[int(share * len(self.values))]


def normal_at(share: float) -> float:
    """Return the standard normal's value below which ``share`` of the mass lies."""
    return _NORMAL.inv_cdf(share)


def normal_share(value: float) -> float:
    """Return the share of the standard normal's mass below ``value``."""
    return _NORMAL.cdf(value)


def share_of(key: int, t: int, purpose: int = 0) -> float:
    """Return a number in (0, 1) that depends on the key, the position and the purpose alone."""
    high, low = randomness.step_words(key ^ purpose, t)
    return ((high << 20 | low >> 12) + 0.5) * _UNIT
