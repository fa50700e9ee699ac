"""How reward functions are run: a table ``[rewards]`` of a run's config."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from rollwright.errors import ConfigError


@dataclass(frozen=True, slots=True)
class RewardSettings:
    """How reward functions are run.

    Args:
        timeout_s: seconds that one call may take, > 0; then it has failed.
        isolation: ``"process"`` calls functions in worker processes, where one that hangs, exits or crashes
            is killed and replaced; ``"thread"`` calls them in this process; ``"auto"`` uses processes for
            whatever a fresh process can import.
        workers: worker processes, ≥ 0; 0 is one for each core. They start when first needed.
        memory_mb: the address space of each worker, MiB, ≥ 1; a function that uses a GPU needs far more.
        conversational: give TRL's functions lists of messages instead of text.
        weights: factor of a function's score in the sum, by the function's name; others have 1.

    Raises:
        ConfigError: a number out of range.
    """

    timeout_s: float = 60.0
    isolation: Literal["auto", "process", "thread"] = "auto"
    workers: int = 0
    memory_mb: int = 16384
    conversational: bool = False
    weights: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for key, value, is_right in (
            ("timeout_s", self.timeout_s, self.timeout_s > 0),
            ("workers", self.workers, self.workers >= 0),
            ("memory_mb", self.memory_mb, self.memory_mb >= 1),
        ):
            if not is_right:
                raise ConfigError(f"rewards.{key}: given {value!r}, expected a larger number")
        if self.isolation not in ("auto", "process", "thread"):
            raise ConfigError(
                f"rewards.isolation: given {self.isolation!r}, expected 'auto', 'process' or 'thread'"
            )
