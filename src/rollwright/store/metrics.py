"""How metrics are taken together: what is missing is left out and counted, never read as zero.

One value per rollout, never per row; a rate has all rollouts below its line, not the hits.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rollwright.errors import DataError, LawBroken


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean with what it was taken over.

    Args:
        mean: the mean of the values there were; None without any.
        count: values it was taken over.
        num_missing: values that were None.
        num_non_finite: values that were NaN or infinite; they are left out too.
    """

    mean: float | None
    count: int
    num_missing: int = 0
    num_non_finite: int = 0


@dataclass(frozen=True, slots=True)
class Spread:
    """Least, mean and largest value; None each without any value."""

    min: float | None
    mean: float | None
    max: float | None
    count: int


def mean(values: Iterable[float | None]) -> Mean:
    """Return the mean of the values that are there, with its count.

    Example:
        >>> mean([0.5, None, 1.5])
        Mean(mean=1.0, count=2, num_missing=1, num_non_finite=0)
    """
    all_values = list(values)
    there = [float(value) for value in all_values if value is not None]
    finite = [value for value in there if math.isfinite(value)]
    return Mean(
        mean=math.fsum(finite) / len(finite) if finite else None,
        count=len(finite),
        num_missing=len(all_values) - len(there),
        num_non_finite=len(there) - len(finite),
    )


def spread(values: Iterable[float]) -> Spread:
    """Return least, mean and largest value.

    For lengths, give the numbers of sampled tokens of every rollout, those that a filter took out of
    the loss included: a loss mask measures what was trained, not what was made.
    """
    numbers = [float(value) for value in values]
    if not numbers:
        return Spread(None, None, None, 0)
    return Spread(min(numbers), math.fsum(numbers) / len(numbers), max(numbers), len(numbers))


def rate(num_hits: int, num_all: int) -> float | None:
    """Return hits / all; None when there was nothing to hit.

    Args:
        num_hits: how often it happened.
        num_all: how often it could have: every rollout for a flag, the completed groups (not those
            still running) for a share of accepted groups.

    Raises:
        DataError: a negative number, or more hits than chances.
    """
    if not 0 <= num_hits <= num_all:
        raise DataError(f"rate: {num_hits} hits of {num_all}; expected 0 ≤ hits ≤ all")
    return num_hits / num_all if num_all else None


def share_right(rewards: Iterable[float | None], right: float = 1.0) -> Mean:
    """Return pass@1: the share of scored rollouts with a reward of at least ``right``."""
    return mean(None if reward is None else float(reward >= right) for reward in rewards)


def per_rollout(rows: Iterable[Mapping[str, Any]], rollout: str, value: str) -> dict[Hashable, Any]:
    """Return one value per rollout from rows of which a rollout may have many (one per turn).

    Args:
        rows: mappings that hold both keys.
        rollout: the key that names the rollout.
        value: the key of the value; the rows of one rollout must agree on it.

    Raises:
        DataError: a row lacks a key, or two rows of one rollout disagree.
    """
    values: dict[Hashable, Any] = {}
    for number, row in enumerate(rows):
        if rollout not in row or value not in row:
            raise DataError(f"row {number} lacks {rollout!r} or {value!r}; it has {sorted(row)}")
        name, given = row[rollout], row[value]
        if name in values and values[name] != given and not (_is_nan(values[name]) and _is_nan(given)):
            raise DataError(
                f"rollout {name!r} has {value} {values[name]!r} in one row and {given!r} in another; "
                "expected one value per rollout"
            )
        values[name] = given
    return values


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


def check_books(
    finished: Sequence[Hashable],
    returned: Sequence[Hashable],
    queued: Sequence[Hashable],
    rejected: Mapping[Hashable, str],
) -> dict[str, int]:
    """Check that every finished group is returned, queued, or rejected with a reason: exactly one.

    Returns:
        The number of each, which add up to the number finished.

    Raises:
        LawBroken: a group is lost, is in two places, was never finished, or was rejected without a
            reason; it is named.
    """
    places: dict[Hashable, list[str]] = {group: [] for group in finished}
    for place, groups in (("returned", returned), ("queued", queued), ("rejected", rejected)):
        for group in groups:
            if group not in places:
                raise LawBroken(f"books: {group!r} is {place} but never finished")
            places[group].append(place)
    lost = [group for group, found in places.items() if not found]
    twice = {group: found for group, found in places.items() if len(found) > 1}
    unnamed = [group for group, why in rejected.items() if not why]
    if lost or twice or unnamed or len(places) != len(finished):
        raise LawBroken(
            f"books: of {len(finished)} finished groups, lost: {lost}, in two places: {twice}, rejected "
            f"without a reason: {unnamed}"
        )
    return {"returned": len(returned), "queued": len(queued), "rejected": len(rejected)}
