"""Time and versions: idle tails, old rollouts, ratios, sampler against learner."""

from __future__ import annotations

import numpy as np

from rollwright.diagnose.evidence import Evidence
from rollwright.diagnose.finding import Finding, cannot_tell
from rollwright.diagnose.thresholds import MIN_ROLLOUTS, limit
from rollwright.lab.activity import SAMPLE
from rollwright.lab.timeline import LEARNER, count, spans


def idle_tail(evidence: Evidence) -> Finding:
    """The last few rollouts of each step keep the engines nearly empty while the learner waits for them."""
    activity = evidence.activity
    if activity is None:
        return cannot_tell("there is no journal, which says who worked when")
    asked = count(spans(activity, SAMPLE))
    if activity.last_at <= 0 or not len(asked[0]):
        return cannot_tell("the journal has no sampling that took time")
    learned = count(spans(activity, LEARNER))
    grid = np.unique(np.concatenate([[0.0, activity.last_at], asked[0], learned[0]]))
    peak = int(asked[1].max())
    if peak < 4:
        return cannot_tell(f"at most {peak} requests were in flight; a tail needs at least 4")
    in_flight, learns = (_on(grid[:-1], *part) for part in (asked, learned))
    is_tail = (in_flight > 0) & (in_flight <= peak / 4) & (learns == 0)
    width = np.diff(grid)
    share = float(width[is_tail].sum()) / activity.last_at
    text = (
        f"for {100 * share:.1f}% of {activity.last_at:.1f} s at most a quarter of the {peak} requests at the "
        "peak were in flight, and the learner had nothing"
    )
    numbers = {"share": share, "seconds": activity.last_at, "peak": float(peak)}
    if share < limit("idle_tail.share"):
        return Finding("clear", text, numbers=numbers)
    work = [one for one in activity.work if one.kind == SAMPLE and one.ended is not None]
    slow = sorted(work, key=lambda one: (one.began - (one.ended or one.began), one.ask))[:3]
    return Finding("found", text, "certain", numbers, examples=tuple(one.ask for one in slow))


def _on(grid: np.ndarray, times: np.ndarray, num: np.ndarray) -> np.ndarray:
    """Return the counts that hold from each time of a grid on."""
    if not len(times):
        return np.zeros(len(grid), dtype=np.int64)
    place = np.searchsorted(times, grid, side="right") - 1
    return np.where(place < 0, 0, num[np.maximum(place, 0)])


def staleness(evidence: Evidence) -> Finding:
    """Trained rollouts are many versions old, or many tokens are dropped for their age."""
    num, p95, top, mean = evidence.one(
        """SELECT count(*), quantile_cont(batch_version - oldest_version, 0.95),
                  max(batch_version - oldest_version), avg(batch_version - oldest_version)
           FROM fresh WHERE fate = 'trained' AND batch_version IS NOT NULL AND oldest_version IS NOT NULL"""
    )
    stale, tokens = evidence.one(
        """SELECT coalesce(sum(num_sampled) FILTER (fate = 'stale'), 0), coalesce(sum(num_sampled), 0)
           FROM fresh"""
    )
    if evidence.num_rollouts < MIN_ROLLOUTS or not tokens or (not num and not stale):
        return cannot_tell(f"{num} trained rollouts with versions are too few (at least {MIN_ROLLOUTS})")
    share = float(stale / tokens)
    age_text = (
        f"trained rollouts are {mean:.2f} versions old (95%: {p95:.0f}, oldest {top})"
        if num
        else "none trained"
    )
    text = f"{age_text}; {100 * share:.1f}% of the sampled tokens were dropped as stale"
    numbers = {"dropped_share": share}
    if num:
        numbers.update(age_mean=float(mean), age_p95=float(p95), age_max=float(top))
    is_old = bool(num) and p95 > limit("staleness.age")
    if not is_old and share < limit("staleness.dropped"):
        return Finding("clear", text, numbers=numbers)
    shows = f"batch_version - oldest_version > {limit('staleness.age')}" if is_old else "fate = 'stale'"
    first, last, names = evidence.one(f"SELECT min(step), max(step), min(leaf, 3) FROM fresh WHERE {shows}")
    return Finding("found", text, "certain", numbers, (first, last), tuple(names))


def ratio_tails(evidence: Evidence) -> Finding:
    """Probabilities moved far between sampling and training: the clip takes much, or ratios are huge."""
    clip = evidence.metric("learn_clip_fraction")
    high = evidence.metric("learn_ratio_max")
    low = [(step, 1 / value) for step, value in evidence.metric("learn_ratio_min") if value > 0]
    if not clip and not high:
        return cannot_tell("the metrics have no ratios (learn_ratio_max, learn_clip_fraction)")
    bad = {step for step, value in clip if value >= limit("ratio_tails.clip")}
    bad |= {step for step, value in (*high, *low) if value >= limit("ratio_tails.ratio")}
    numbers = {"clip_max": max((v for _, v in clip), default=0.0), "steps_hit": float(len(bad))}
    numbers["ratio_max"] = max((v for _, v in (*high, *low)), default=1.0)
    text = (
        f"in {len(bad)} of {len({step for step, _ in (*clip, *high)})} steps; the clip took at most "
        f"{100 * numbers['clip_max']:.1f}% of the tokens, the farthest ratio is {numbers['ratio_max']:.3g}"
    )
    if not bad:
        return Finding("clear", text, numbers=numbers)
    return Finding("found", text, "certain", numbers, (min(bad), max(bad)))


def mismatch(evidence: Evidence) -> Finding:
    """Sampler and learner give different logprobs to the same tokens under the same weights."""
    series = evidence.metric("learn_ratio_max_dev")
    if not series:
        return cannot_tell("no step has learn_ratio_max_dev: none trained tokens of its own version")
    bad = [step for step, value in series if value > limit("mismatch.ratio")]
    worst = max(value for _, value in series)
    text = f"|ratio − 1| before the first update is at most {worst:.3g}; above the limit in {len(bad)} of "
    text += f"{len(series)} steps"
    numbers = {"worst": worst, "steps_hit": float(len(bad))}
    if not bad:
        return Finding("clear", text, numbers=numbers)
    return Finding("found", text, "certain", numbers, (bad[0], bad[-1]))
