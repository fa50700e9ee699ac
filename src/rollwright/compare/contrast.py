"""Two arms against each other: the pairs, what they show, and what more pairs would show."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rollwright.compare.power import MOST, detectable, num_more
from rollwright.compare.sequential import Look, SequentialTest, holm

POWER = 0.8


@dataclass(frozen=True, slots=True)
class Contrast:
    """An arm against the baseline, in success at the budget.

    Args:
        label, baseline: which arms.
        seeds: of the pairs, in the order in which they were looked at.
        differences: arm - baseline, one per pair.
        looks: what was known after each pair.
        p_value: of the arm alone, valid at any time; None without pairs.
        p_adjusted: for all arms of the comparison (Holm).
        is_found: the arms differ.
        found_at: pairs after which it was found; None where it was not.
        num_more: pairs beyond these that find it with 80%, if it is as it looks; None is unknown or too many.
        detectable: the difference that so many pairs find with 80%, at the deviation seen; None where none
            is.
        sentence: all that in words.
    """

    label: str
    baseline: str
    seeds: tuple[int, ...]
    differences: tuple[float, ...]
    looks: tuple[Look, ...]
    p_value: float | None
    p_adjusted: float | None
    is_found: bool
    found_at: int | None
    num_more: int | None
    detectable: float | None
    sentence: str


Outcomes = Mapping[int, float]  # success at the budget by seed; a run that failed has none


def pairs(arm: Outcomes, baseline: Outcomes, seeds: Sequence[int], open_seeds: frozenset[int]) -> list[int]:
    """Return the seeds that are looked at: those done in both, before the first that is still open in one.

    A later pair must wait for an earlier one: which runs end first may depend on how well they do.
    """
    found = []
    for seed in seeds:
        if seed in open_seeds:
            break
        if seed in arm and seed in baseline:
            found.append(seed)
    return found


def contrasts(
    outcomes: Mapping[str, Outcomes],
    baseline: str,
    seeds: Sequence[int],
    test: SequentialTest,
    floor: float,
    is_open: Mapping[str, frozenset[int]] | None = None,
    budget: str = "the budget",
    has_power: bool = True,
) -> list[Contrast]:
    """Compare every arm with the baseline.

    The chance of any false finding among all arms, at any time, is at most ``test.alpha``.

    Args:
        outcomes: by label, then by seed.
        seeds: in the order of the plan.
        floor: the least deviation of a difference to believe: what one rollout of an evaluation is worth.
        is_open: seeds whose run is not over, by label.
        budget: in words, for the sentences.
        has_power: say how many more pairs it takes, too, which takes a simulation.
    """
    found: list[Contrast] = []
    waiting = is_open or {}
    for label in outcomes:
        if label == baseline:
            continue
        still = waiting.get(label, frozenset()) | waiting.get(baseline, frozenset())
        chosen = pairs(outcomes[label], outcomes[baseline], seeds, still)
        differences = tuple(outcomes[label][seed] - outcomes[baseline][seed] for seed in chosen)
        looks = tuple(test.looks(differences, floor))
        found.append(
            Contrast(
                label=label,
                baseline=baseline,
                seeds=tuple(chosen),
                differences=differences,
                looks=looks,
                p_value=looks[-1].p_value if looks else None,
                p_adjusted=None,
                is_found=False,
                found_at=None,
                num_more=None,
                detectable=None,
                sentence="",
            )
        )
    adjusted = holm([1.0 if one.p_value is None else one.p_value for one in found])
    return [_judged(one, p, test, floor, budget, has_power) for one, p in zip(found, adjusted, strict=True)]


def _judged(
    one: Contrast, adjusted: float, test: SequentialTest, floor: float, budget: str, has_power: bool
) -> Contrast:
    is_found = bool(one.looks) and adjusted <= test.alpha
    more, least = None, None
    if has_power and one.looks and one.looks[-1].deviation is not None:
        effect = detectable(test, len(one.looks), POWER)
        least = None if effect is None else effect * (one.looks[-1].deviation or 0.0)
        more = None if is_found else num_more(test, one.differences, POWER, floor)
    # With several arms a difference counts once its p-value is small enough for all of them together.
    share = adjusted / one.p_value if one.looks and one.p_value else 1.0
    found_at = next((look.num for look in one.looks if look.p_value * share <= test.alpha), None)
    judged = dataclasses.replace(
        one,
        p_adjusted=adjusted if one.looks else None,
        is_found=is_found,
        found_at=found_at if is_found else None,
        num_more=more,
        detectable=least,
    )
    return dataclasses.replace(judged, sentence=_sentence(judged, budget))


def points(value: float, signed: bool = True) -> str:
    """Return a difference of shares in points: ``+3.1``."""
    return f"{100 * value:+.1f}" if signed else f"{100 * value:.1f}"


def span(low: float, high: float) -> str:
    """Return an interval in points; ``[-inf, inf]`` while nothing is known."""
    return f"[{points(low)}, {points(high)}]"


def _sentence(one: Contrast, budget: str) -> str:
    if not one.looks:
        return f"No pair of {one.label} and {one.baseline} is done yet."
    last, num = one.looks[-1], len(one.looks)
    seeds = "1 seed" if num == 1 else f"{num} seeds"
    if one.is_found:
        word = "better" if last.mean > 0 else "worse"
        return (
            f"{one.label} is {word} than {one.baseline} at {budget}: {points(last.mean)} points "
            f"{span(last.low, last.high)}, found after {one.found_at} of {seeds} (p ≤ {one.p_adjusted:.2g})."
        )
    text = f"{seeds} cannot tell {one.label} from {one.baseline} at {budget}: {points(last.mean)} points"
    text += f" {span(last.low, last.high)}." if math.isfinite(last.low) else ", no interval yet."
    if num < 2:
        return f"{text} One pair says nothing about the spread: run more."
    if not any(one.differences):
        return f"{text} All pairs are equal: the arms do the same."
    if one.detectable is not None:
        text += f" So many seeds find {points(one.detectable, signed=False)} points with {POWER:.0%}."
    if one.num_more is not None:
        return f"{text} If it is as it looks, about {one.num_more} more would find it with {POWER:.0%}."
    return f"{text} If it is as it looks, more than {MOST} more would be needed to find it."
