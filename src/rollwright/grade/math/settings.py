"""The settings of math equality: each can change a verdict, so each verdict names those it was made with."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Literal

from rollwright.errors import ConfigError


@dataclass(frozen=True, slots=True)
class MathSettings:
    """What counts as equal.

    Args:
        percent: ``"value"``: 50% is 1/2 and nothing else; ``"number"``: 50% is 50 and nothing else;
            ``"either"``: both.
        units: ``"optional"``: a number without a unit may stand for one with; ``"required"``: it may not.
            Two different units are never equal unless one converts into the other.
        rel_tol: how far a decimal may lie from an exact value, relative to the larger of the two. Two
            numbers that are both written out as digits are compared exactly. There is no absolute tolerance.
        guess: a response without any mark is graded by its last line.

    Raises:
        ConfigError: a value outside of the above.
    """

    percent: Literal["value", "number", "either"] = "value"
    units: Literal["optional", "required"] = "optional"
    rel_tol: float = 1e-6
    guess: bool = False

    def __post_init__(self) -> None:
        if self.percent not in ("value", "number", "either"):
            raise ConfigError(f"percent is {self.percent!r}; expected 'value', 'number' or 'either'")
        if self.units not in ("optional", "required"):
            raise ConfigError(f"units is {self.units!r}; expected 'optional' or 'required'")
        if not 0 <= self.rel_tol < 0.1:
            raise ConfigError(f"rel_tol is {self.rel_tol}; expected at least 0 and below 0.1")

    @property
    def tolerance(self) -> Fraction:
        """The relative tolerance as the decimal that was written: 1e-6 is exactly 1/1000000."""
        return Fraction(repr(self.rel_tol))

    def as_text(self) -> dict[str, str]:
        """Return the settings as text, for verdicts."""
        return {name: str(value) for name, value in asdict(self).items()}
