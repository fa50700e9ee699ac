"""Budgets as words: ``200k-tokens``, ``500-rollouts``, ``1e6-learner-tokens``, ``90-seconds``."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from rollwright.errors import ConfigError
from rollwright.ledger import Unit

# The units that a comparison can be held to, and the axes of its curves.
AXES = {
    Unit.SAMPLED.value: "tokens",
    Unit.ROLLOUTS.value: "rollouts",
    Unit.LEARNER_TOKENS.value: "learner-tokens",
    Unit.SECONDS.value: "seconds",
}
_WORDS = {
    **{word: (unit, 1.0) for unit, word in AXES.items()},
    **{unit.replace("_", "-"): (unit, 1.0) for unit in AXES},
    "s": (Unit.SECONDS.value, 1.0),
    "minutes": (Unit.SECONDS.value, 60.0),
    "min": (Unit.SECONDS.value, 60.0),
    "hours": (Unit.SECONDS.value, 3600.0),
}
_FACTORS = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9}


@dataclass(frozen=True, slots=True)
class Budget:
    """An amount of one unit, the same for every run of a comparison.

    Args:
        unit: a unit of the ledger; one of `AXES`.
        amount: > 0.

    Raises:
        ConfigError: another unit, or an amount that is not positive.
    """

    unit: str
    amount: float

    def __post_init__(self) -> None:
        if self.unit not in AXES:
            raise ConfigError(f"budget: unit {self.unit!r}; expected one of {', '.join(AXES)}")
        if not 0 < self.amount < math.inf:
            raise ConfigError(f"budget: {self.amount!r} {self.unit}; expected an amount > 0")

    def __str__(self) -> str:
        return f"{short(self.amount)} {AXES[self.unit]}"


def parse_budget(text: str) -> Budget:
    """Return the budget of a text such as ``200k-tokens``.

    Raises:
        ConfigError: no number, or no unit that a comparison can be held to.
    """
    match = re.fullmatch(r"\s*([\d.,_]+(?:e\+?\d+)?)\s*([kmg]?)[\s-]+([a-z_ -]+)\s*", text.lower())
    word = match[3].strip().replace("_", "-").replace(" ", "-") if match else ""
    if match is None or word not in _WORDS:
        raise ConfigError(
            f"budget {text!r}; expected an amount and a unit, such as 200k-tokens, 500-rollouts, "
            "1e6-learner-tokens or 90-seconds"
        )
    unit, factor = _WORDS[word]
    try:
        amount = float(match[1].replace(",", "").replace("_", ""))
    except ValueError:
        raise ConfigError(f"budget {text!r}: {match[1]!r} is no number") from None
    return Budget(unit, amount * _FACTORS[match[2]] * factor)


def short(amount: float) -> str:
    """Return an amount in few characters: ``950``, ``42.1k``, ``1.2M``."""
    for factor, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(amount) >= 0.9995 * factor:
            return f"{amount / factor:.3g}{letter}"
    return f"{amount:.3g}"
