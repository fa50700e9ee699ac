"""Is there anything to learn from: equal rewards, failures, entropy, grader errors."""

from __future__ import annotations

from dataclasses import replace

from rollwright.diagnose.evidence import Evidence
from rollwright.diagnose.finding import Finding, cannot_tell
from rollwright.diagnose.thresholds import MIN_GROUPS, MIN_ROLLOUTS, MIN_STEPS, limit
from rollwright.diagnose.windows import judge_share

_GROUPS = """SELECT step, "window", {hit} AS hit, group_id AS name FROM fresh
             GROUP BY step, "window", group_index, group_id HAVING {having}"""


def zero_variance(evidence: Evidence) -> Finding:
    """Groups that teach nothing, because their scored rollouts (two or more) all have one reward."""
    source = _GROUPS.format(hit="min(reward) = max(reward)", having="count(reward) > 1")
    what = "have no spread of rewards"
    unit = "groups of two or more scored rollouts"
    return judge_share(evidence.windows(source), limit("zero_variance.share"), MIN_GROUPS, unit, what)


def all_fail(evidence: Evidence) -> Finding:
    """Groups in which no scored rollout has a reward above 0."""
    source = _GROUPS.format(hit="max(reward) <= 0", having="count(reward) > 0")
    what = "have no reward above 0"
    return judge_share(evidence.windows(source), limit("all_fail.share"), MIN_GROUPS, "scored groups", what)


def grader_errors(evidence: Evidence) -> Finding:
    """Rollouts that no grader scored: an error of it, of its sandbox, a time-out."""
    if not evidence.one("SELECT count(reward) + count(nullif(status, '')) FROM fresh")[0]:
        return cannot_tell("nothing was graded here: there is neither a reward nor a grader's word")
    source = 'SELECT step, "window", reward IS NULL AS hit, leaf AS name FROM fresh'
    found = judge_share(
        evidence.windows(source), limit("grader_errors.share"), MIN_ROLLOUTS, "rollouts", "were not scored"
    )
    if found.status != "found":
        return found
    words = evidence.rows(
        "SELECT coalesce(nullif(status, ''), 'no status'), count(*) FROM fresh WHERE reward IS NULL "
        "GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 3"
    )
    text = ", ".join(f"{word} {num:,}" for word, num in words)
    return replace(found, evidence=f"{found.evidence} ({text})")


def entropy_collapse(evidence: Evidence) -> Finding:
    """The entropy per sampled token falls to a small part of what it was at the start.

    Where no entropies were recorded the mean of −logprob stands in, which has the same expectation when
    nothing of the distribution was cut.
    """
    name, series = "entropy", evidence.metric("entropy_mean")
    for column, sign in (("entropies", ""), ("logprobs", "-")):
        if len(series) >= MIN_STEPS:
            break
        name = "entropy" if column == "entropies" else "−logprob"
        series = evidence.rows(
            f"""SELECT step, {sign}sum(list_sum({column})) / sum(len({column})) FROM nodes
                WHERE kind = 'train' AND origin = 'sampled' AND NOT replayed AND len({column}) > 0
                GROUP BY step ORDER BY step"""
        )
    if len(series) < MIN_STEPS:
        return cannot_tell(f"entropies or logprobs of {len(series)} steps are too few (at least {MIN_STEPS})")
    part = max(1, len(series) // 10)
    start = sum(value for _, value in series[:part]) / part
    end = sum(value for _, value in series[-part:]) / part
    if start <= 0:
        return Finding("clear", f"{name} is {start:.3g} nats a token at the start: there is none to lose")
    ratio = end / start
    text = f"{name} per token went from {start:.3g} to {end:.3g} nats ({100 * ratio:.0f}% of the start)"
    numbers = {"start": start, "end": end, "ratio": ratio}
    if ratio > limit("entropy_collapse.ratio"):
        return Finding("clear", text, numbers=numbers)
    bound = start * limit("entropy_collapse.ratio")
    low = len(series) - part
    while low > 0 and series[low - 1][1] <= bound:
        low -= 1
    return Finding("found", text, "likely", numbers, (series[low][0], series[-1][0]))
