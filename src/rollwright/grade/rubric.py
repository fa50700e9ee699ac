"""Rubrics: weighted criteria in levels, of which the lower ones count only once the higher ones hold."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from rollwright.errors import ConfigError
from rollwright.grade.verdict import Status, Verdict

GRADER = "rubric/1"
Part = float | Verdict | None
Scale = Literal["sum", "mean", "points"]


@dataclass(frozen=True, slots=True)
class Criterion:
    """One thing that an answer is judged by.

    Args:
        name: of its part.
        weight: factor of its part, finite; negative for a penalty.
        text: what it asks for, for a judge.
        low, high: what its part may be; one outside is the grader's error.
        optional: where its part is missing, the others of its level take its weight's place.
    """

    name: str
    weight: float = 1.0
    text: str = ""
    low: float = -math.inf
    high: float = math.inf
    optional: bool = False

    def __post_init__(self) -> None:
        if not self.name or not math.isfinite(self.weight) or not self.low <= self.high:
            raise ConfigError(
                f"criterion {self.name!r} with weight {self.weight} and range [{self.low}, {self.high}];"
                " expected a name, a finite weight and low ≤ high"
            )


@dataclass(frozen=True, slots=True)
class Level:
    """Criteria of one rank. What stands below counts if this level's sum is at least ``threshold``."""

    criteria: tuple[Criterion, ...]
    threshold: float = -math.inf


@dataclass(frozen=True, slots=True)
class Rubric:
    """A score from parts.

    R = Σ_k S_k · Π_{j<k} 1[S_j ≥ τ_j],  S_k = Σ_i w_i r_i over the level's parts

    With one level it is a weighted sum; with an outcome above step rewards it is G-RA's gated accumulation:
    a step's reward counts only where the outcome passes its threshold.

    Args:
        levels: the most important first.
        scale: ``"sum"``; ``"mean"`` divides S_k by the level's Σ|w_i|; ``"points"`` divides by its
            Σ max(w_i, 0) and cuts at 0 and 1 (penalties have negative weights).
        passes: the least score that counts as right.

    Edge cases: a part of None is missing, never 0. In a level that counts, a missing part leaves the answer
    unscored, unless its criterion is optional: then S_k is taken over the others and multiplied by
    Σ|w| / Σ|w of the others|; if none is there, the answer is unscored. Behind a closed gate nothing is
    needed. With rewards ≥ 0 below it, nothing that fails a gate outranks what passes it.

    Source: G-RA (2025), abstract. Missing parts, scales and optional criteria are ours.

    Raises:
        ConfigError: no criterion, or two of one name.
    """

    levels: tuple[Level, ...]
    scale: Scale = "sum"
    passes: float = 1.0

    def __post_init__(self) -> None:
        names = [criterion.name for criterion in self.criteria]
        if not names or not all(level.criteria for level in self.levels) or len(set(names)) < len(names):
            raise ConfigError(
                f"a rubric of {names}; expected criteria in every level, each with its own name"
            )
        if self.scale not in ("sum", "mean", "points"):
            raise ConfigError(f"rubric: scale = {self.scale!r}; expected 'sum', 'mean' or 'points'")

    @property
    def criteria(self) -> tuple[Criterion, ...]:
        """All of them, in the order of the levels."""
        return tuple(criterion for level in self.levels for criterion in level.criteria)

    def score(self, parts: Mapping[str, Part]) -> Verdict:
        """Return the verdict on parts that are known already.

        Args:
            parts: numbers, verdicts, or None by the criteria's names; a name that is not there is missing.

        Raises:
            ConfigError: a name of no criterion.
        """
        unknown = sorted(set(parts) - {criterion.name for criterion in self.criteria})
        if unknown:
            raise ConfigError(
                f"rubric: parts {unknown} belong to no criterion; expected names of the rubric's"
            )
        return self.grade({name: lambda name=name: parts[name] for name in parts})  # type: ignore[misc]

    def grade(self, graders: Mapping[str, Callable[[], Part]]) -> Verdict:
        """Return the verdict on parts that are asked for, level by level; none behind a closed gate.

        Args:
            graders: by the criteria's names. One that raises leaves the answer unscored (``grader_error``).
        """
        asked = _Asked()
        total, gates = 0.0, list[bool]()
        for level in self.levels:
            for criterion in level.criteria:
                asked.ask(criterion, graders.get(criterion.name))
            value = self._sum(level, asked.values)
            if value is None:
                return asked.verdict(None, self, gates)
            total += value
            gates.append(value >= level.threshold)
            if not gates[-1]:
                break
        return asked.verdict(total, self, gates)

    def _sum(self, level: Level, values: Mapping[str, float]) -> float | None:
        """Return S_k, or None where a part that is needed is missing."""
        there = [c for c in level.criteria if c.name in values]
        if any(not c.optional for c in level.criteria if c.name not in values) or not there:
            return None
        value = math.fsum(c.weight * values[c.name] for c in there)
        if len(there) < len(level.criteria):
            weight = math.fsum(abs(c.weight) for c in there)
            value *= math.fsum(abs(c.weight) for c in level.criteria) / weight if weight else 1.0
        if self.scale == "mean":
            return value / (math.fsum(abs(c.weight) for c in level.criteria) or 1.0)
        if self.scale == "points":
            return min(1.0, max(0.0, value / (math.fsum(max(c.weight, 0.0) for c in level.criteria) or 1.0)))
        return value


@dataclass(slots=True)
class _Asked:
    """What the parts were, as they came in."""

    values: dict[str, float] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    status: str = Status.NOT_SCORED

    def ask(self, criterion: Criterion, grader: Callable[[], Part] | None) -> None:
        name = criterion.name
        try:
            part = None if grader is None else grader()
        except Exception as error:  # a grader's failure is never a zero
            self._fails(name, Status.GRADER_ERROR, f"raised {type(error).__name__}: {error}")
            return
        status, detail = (part.status, part.detail) if isinstance(part, Verdict) else (Status.NOT_SCORED, "")
        value = part.score if isinstance(part, Verdict) else part
        if value is None:
            self._fails(name, status, detail or "is missing")
        elif not math.isfinite(value) or not criterion.low <= value <= criterion.high:
            why = f"is {value}, expected a number in [{criterion.low:g}, {criterion.high:g}]"
            self._fails(name, Status.GRADER_ERROR, why)
        else:
            self.values[name] = float(value)

    def _fails(self, name: str, status: str, why: str) -> None:
        self.problems.append(f"{name} {why}")
        if self.status == Status.NOT_SCORED:
            self.status = status

    def verdict(self, total: float | None, rubric: Rubric, gates: Sequence[bool]) -> Verdict:
        status = self.status if total is None else Status.RIGHT if total >= rubric.passes else Status.WRONG
        shut = [] if not gates or gates[-1] else [f"gate {len(gates)} of {len(rubric.levels)} is closed"]
        detail = "; ".join(self.problems + (shut if len(gates) < len(rubric.levels) else []))
        settings = {"scale": rubric.scale, "gates": " ".join("open" if gate else "closed" for gate in gates)}
        return Verdict(total, status, None, detail, dict(self.values), None, GRADER, settings)


def flat(*criteria: Criterion, scale: Scale = "mean", passes: float = 1.0) -> Rubric:
    """Return a rubric of one level."""
    return Rubric((Level(criteria),), scale, passes)


def gated_return(outcome: float | None, steps: Sequence[float | None], threshold: float) -> float | None:
    """Return G-RA's return of a trajectory: outcome + 1[outcome ≥ threshold] · Σ_t steps_t.

    Args:
        outcome: the long-term reward; None is not scored.
        steps: the immediate reward of each turn; None is not scored.
        threshold: what the outcome must reach for the steps to count.

    Returns:
        None where the outcome, or a step that counts, is not scored.
    """
    if outcome is None or (outcome >= threshold and any(step is None for step in steps)):
        return None
    counted = [step for step in steps if step is not None] if outcome >= threshold else []
    return outcome + math.fsum(counted)
