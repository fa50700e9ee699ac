"""The ledger: units granted, spent and left, and exactly one fate for each sampled token.

Laws: for each unit, spent + left = granted; the tokens by fate add up to the tokens sampled.
"""

from __future__ import annotations

import math
from enum import Enum

import msgspec

from rollwright.errors import ConfigError, LawBroken


class Unit(str, Enum):
    """What a run spends."""

    SAMPLED = "sampled_tokens"
    PREFILLED = "prefilled_tokens"
    SCORED = "scored_tokens"
    ROLLOUTS = "rollouts"
    GRADER_CALLS = "grader_calls"
    ENV_STEPS = "env_steps"
    LEARNER_TOKENS = "learner_tokens"
    SECONDS = "seconds"


class Fate(str, Enum):
    """Where a sampled token ended. Every sampled token has exactly one at any time."""

    HELD = "held"  # in flight or buffered
    TRAINED = "trained"
    STALE = "stale"
    FILTERED = "filtered"
    PRUNED = "pruned"
    FAILED = "failed"
    EVALUATION = "evaluation"


class Ledger(msgspec.Struct):
    """Units spent against units granted, and tokens by fate.

    Args:
        granted: limit per unit; a unit without one has no limit.
        spent: what was spent per unit.
        fates: sampled tokens by fate.
        reasons: tokens that left ``held`` without being trained, by ``"fate:reason"``.
    """

    granted: dict[str, float] = msgspec.field(default_factory=dict)
    spent: dict[str, float] = msgspec.field(default_factory=lambda: {u.value: 0 for u in Unit})
    fates: dict[str, int] = msgspec.field(default_factory=lambda: {f.value: 0 for f in Fate})
    reasons: dict[str, int] = msgspec.field(default_factory=dict)

    def grant(self, granted: dict[str, float]) -> None:
        """Set the limits.

        Raises:
            ConfigError: an unknown unit, or a limit that is negative or not a number.
        """
        known = {unit.value for unit in Unit}
        for unit, amount in granted.items():
            if unit not in known:
                raise ConfigError(f"budget: unit {unit!r} is unknown; expected one of {sorted(known)}")
            if not amount >= 0:
                raise ConfigError(f"budget: {unit} = {amount!r}; expected a number ≥ 0")
        self.granted = dict(granted)

    def spend(self, unit: Unit, amount: float) -> None:
        self.spent[unit.value] += amount

    def left(self, unit: Unit) -> float:
        """Return granted - spent; negative when the last unit of work overran; inf without a limit."""
        return self.granted.get(unit.value, math.inf) - self.spent[unit.value]

    @property
    def exhausted(self) -> str | None:
        """The first unit with nothing left, or None."""
        return next((u for u, g in self.granted.items() if g - self.spent[u] <= 0), None)

    def sample(self, num_tokens: int) -> None:
        """Book freshly sampled tokens: spent, and held until a fate is known."""
        self.spent[Unit.SAMPLED.value] += num_tokens
        self.fates[Fate.HELD.value] += num_tokens

    def settle(self, num_tokens: int, fate: Fate, reason: str = "") -> None:
        """Move held tokens to their fate.

        Raises:
            LawBroken: more tokens than are held.
        """
        held = self.fates[Fate.HELD.value]
        if num_tokens > held:
            raise LawBroken(f"ledger: {num_tokens} tokens to settle as {fate.value}, only {held} are held")
        self.fates[Fate.HELD.value] = held - num_tokens
        self.fates[fate.value] += num_tokens
        if fate is not Fate.TRAINED and num_tokens:
            key = f"{fate.value}:{reason or 'unnamed'}"
            self.reasons[key] = self.reasons.get(key, 0) + num_tokens

    def check(self) -> None:
        """Raise `LawBroken` unless the fates add up to the tokens sampled."""
        total, sampled = sum(self.fates.values()), self.spent[Unit.SAMPLED.value]
        if total != sampled:
            raise LawBroken(f"ledger: fates add up to {total}, sampled were {sampled}: {self.fates}")
