"""Every limit that a detector compares with, in one table (docs/diagnose.md shows it)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limit:
    """One number.

    Args:
        value: the number.
        meaning: what is found from there on, with its unit.
        source: where it comes from; ``"chosen"`` is our own choice.
    """

    value: float
    meaning: str
    source: str = "chosen"


LIMITS: dict[str, Limit] = {
    "zero_variance.share": Limit(0.5, "share of groups whose scored rollouts all have one reward, ≥"),
    "all_fail.share": Limit(0.5, "share of groups without any reward above 0, ≥"),
    "entropy_collapse.ratio": Limit(0.25, "entropy per token at the end over that at the start, ≤"),
    "length_inflation.ratio": Limit(1.5, "mean length at the end over that at the start, ≥"),
    "length_inflation.gain": Limit(0.02, "rise of the mean reward, as a share of its range, below"),
    "repetition.share": Limit(0.05, "share of rollouts that loop, ≥"),
    "repetition.copies": Limit(4, "times that a stretch of at most 32 tokens stands in a row, ≥"),
    "repetition.tokens": Limit(32, "tokens of such a loop, ≥"),
    "truncation.share": Limit(0.1, "share of rollouts cut before they ended, ≥"),
    "idle_tail.share": Limit(
        0.3,
        "share of the run in which the engines hold some work, at most a quarter of their peak, and the "
        "learner none, ≥",
    ),
    "staleness.age": Limit(4, "age of trained rollouts in versions, 95th percentile, >"),
    "staleness.dropped": Limit(0.1, "share of sampled tokens dropped for their age, ≥"),
    "ratio_tails.clip": Limit(0.2, "share of trained tokens whose gradient the clip took, ≥"),
    "ratio_tails.ratio": Limit(10, "largest probability ratio of a step, or the inverse of its least, ≥"),
    "mismatch.ratio": Limit(
        0.01, "largest |ratio − 1| at equal versions, >", "the default of ratio_tolerance"
    ),
    "hacked_format.share": Limit(
        0.5, "share of rollouts that are paid for their form and have no other reward, ≥"
    ),
    "hacked_cue.one_answer": Limit(0.6, "share of the right rollouts that are one and the same answer, ≥"),
    "hacked_cue.tasks": Limit(8, "tasks for which that answer is right, ≥"),
    "hacked_cue.gain": Limit(0.3, "share right with words to the grader minus that without, ≥"),
    "duplicates.share": Limit(
        0.5, "share of rollouts equal, token for token, to an earlier one of the group, ≥"
    ),
    "tree_collapse.leaves": Limit(0.85, "share of a tree's leaves behind one branch of its first fork, ≥"),
    "tree_collapse.share": Limit(0.5, "share of trees like that, ≥"),
    "starving.visits": Limit(2, "visits to a task without training it, ≥"),
    "starving.share": Limit(0.05, "share of the visited tasks that starve, ≥"),
    "skewed.distance": Limit(0.1, "Kolmogorov-Smirnov distance of the trained from the sampled, ≥"),
    "skewed.p": Limit(0.01, "chance of such a distance if the choice is blind, times the tests, <"),
    "grader_errors.share": Limit(0.01, "share of rollouts that were not scored, ≥"),
}
# Below these numbers a detector says that it cannot tell.
MIN_GROUPS, MIN_ROLLOUTS, MIN_STEPS, MIN_TASKS = 20, 50, 5, 10
MIN_LEAVES = 7  # of a tree; a smaller one cannot reach the limit with two branches


def limit(name: str) -> float:
    return LIMITS[name].value
