"""How many wide-area workers keep a learner busy, and which ones are cheapest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rollwright.drive.virtual.engine_model import EngineModel
from rollwright.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Demand:
    """What a learner asks of its workers.

    Args:
        num_rollouts: B, rollouts of a batch.
        train_seconds: T_train, seconds of an update.
        mean_tokens: sampled tokens of a rollout on average.
        mean_context: tokens that a sequence attends to on average while it is decoded.
        longest_seconds: T_rollout, seconds of the longest rollout.
        broadcast_seconds: T_broadcast, until the last worker has new weights.
        staleness: S, versions that a token may lag behind.
    """

    num_rollouts: int
    train_seconds: float
    mean_tokens: float
    mean_context: float = 0.0
    longest_seconds: float = 0.0
    broadcast_seconds: float = 0.0
    staleness: int = 1

    def __post_init__(self) -> None:
        if not (self.num_rollouts >= 1 and self.train_seconds > 0 and self.mean_tokens > 0):
            raise ConfigError(
                f"Demand: num_rollouts = {self.num_rollouts}, train_seconds = {self.train_seconds},"
                f" mean_tokens = {self.mean_tokens}; expected all of them > 0"
            )

    @property
    def rate(self) -> float:
        """Rollouts a second that keep the learner busy: B / T_train."""
        return self.num_rollouts / self.train_seconds

    @property
    def versions_on_the_way(self) -> int:
        """Versions that are made while weights travel: ⌈T_broadcast / T_train⌉."""
        return math.ceil(self.broadcast_seconds / self.train_seconds)

    @property
    def num_ahead(self) -> int:
        """`Settings.num_ahead` with which no token is older than S: what the way takes is taken off.

        Raises:
            ConfigError: the weights are on the way for longer than S allows.
        """
        left = self.staleness - self.versions_on_the_way
        if left < 0:
            raise ConfigError(
                f"weights take {self.broadcast_seconds:g} s, {self.versions_on_the_way} updates; expected at"
                f" most {self.staleness}: allow more staleness, or a quicker broadcast"
            )
        return left

    @property
    def is_covered(self) -> bool:
        """Whether overlap hides the way of weights and rollouts: T_broadcast + T_rollout ≤ S · T_train."""
        return self.broadcast_seconds + self.longest_seconds <= self.staleness * self.train_seconds


def rate_of(engine: EngineModel, demand: Demand) -> float:
    """Return the rollouts a second of one worker whose slots are full: c / (mean tokens · step(c))."""
    num = engine.num_slots
    step = engine.decode_seconds(num, round(num * demand.mean_context))
    return num / (demand.mean_tokens * step)


def num_needed(engine: EngineModel, demand: Demand) -> int:
    """Return N* = ⌈(B / T_train) / rate⌉: with fewer workers of this kind the learner waits.

    Source: the overlap-based capacity model of ECHO-2 (2026), its form as far as the abstract tells.
    """
    return math.ceil(round(demand.rate / rate_of(engine, demand), 9))


def provision(kinds: Sequence[EngineModel], demand: Demand) -> tuple[int, ...]:
    """Return how many workers of each kind to activate: the cheapest that reach the rate.

    ``num_workers`` of a kind is how many there are of it. Exact: kinds are few, so every count of all but
    the last kind is tried, in order of price per rollout, cut where it is dearer than the best so far.

    Raises:
        ConfigError: all of them together are too slow.
    """
    order = sorted(range(len(kinds)), key=lambda i: kinds[i].price / rate_of(kinds[i], demand))
    rates = [rate_of(kinds[i], demand) for i in order]
    most = sum(rates[k] * kinds[i].num_workers for k, i in enumerate(order))
    if most < demand.rate * (1 - 1e-9):
        raise ConfigError(
            f"all workers together make {most:.3g} rollouts a second; expected {demand.rate:.3g}: add workers"
        )
    best: tuple[float, list[int]] = (math.inf, [])

    def search(k: int, missing: float, price: float, chosen: list[int]) -> None:
        nonlocal best
        if price >= best[0]:
            return
        if missing <= 1e-9:
            best = (price, chosen + [0] * (len(order) - k))
            return
        if k == len(order):
            return
        kind = kinds[order[k]]
        # What is left costs at least the price per rollout of this kind: it is the cheapest of the rest.
        if price + missing * kind.price / rates[k] >= best[0]:
            return
        for num in range(min(kind.num_workers, math.ceil(missing / rates[k] - 1e-9)), -1, -1):
            search(k + 1, missing - num * rates[k], price + num * kind.price, [*chosen, num])

    search(0, demand.rate, 0.0, [])
    found = [0] * len(kinds)
    for i, num in zip(order, best[1], strict=True):
        found[i] = num
    return tuple(found)
