"""What was sampled against what was trained: starving tasks, skewed selection."""

from __future__ import annotations

from rollwright.diagnose.evidence import Evidence
from rollwright.diagnose.finding import Finding, cannot_tell
from rollwright.diagnose.thresholds import MIN_ROLLOUTS, MIN_TASKS, limit
from rollwright.diagnose.windows import wilson_low
from rollwright.lab.bias import Comparison, report
from rollwright.lab.distance import selection_distance, selection_p_value

_MAX_ROWS = 20_000
_PERMUTATIONS = 1000


def starving(evidence: Evidence) -> Finding:
    """Tasks that are visited again and again, never trained, and dropped for no fault of their rewards.

    Dropped by a filter (all right, all wrong) is no starving; dropped as stale, pruned or failed is.
    """
    visits = int(limit("starving.visits"))
    tasks, starved, tokens, first, last, names, reasons = evidence.one(
        f"""WITH by_task AS (
                SELECT task, count(DISTINCT group_id) AS visits, sum(num_sampled) AS tokens,
                    min(step) AS first, max(step) AS last, bool_or(fate = 'trained') AS trained,
                    bool_or(fate IN ('stale', 'pruned', 'failed')) AS lost,
                    mode(CASE WHEN reason = '' THEN fate ELSE fate || ': ' || reason END)
                        FILTER (fate IN ('stale', 'pruned', 'failed')) AS why
                FROM fresh GROUP BY task),
            hungry AS (SELECT * FROM by_task WHERE visits >= {visits} AND NOT trained AND lost)
            SELECT (SELECT count(*) FROM by_task WHERE visits >= {visits}), count(*), sum(tokens), min(first),
                max(last), max_by(task, tokens, 3), mode(why) FROM hungry"""
    )
    if tasks < MIN_TASKS:
        return cannot_tell(f"{tasks} tasks with {visits} or more visits are too few (at least {MIN_TASKS})")
    share = starved / tasks
    text = (
        f"{starved:,} of {tasks:,} tasks visited {visits} times or more ({100 * share:.1f}%) were "
        "never trained"
    )
    numbers = {"share": share, "tasks": float(starved), "of": float(tasks)}
    if share < limit("starving.share"):
        return Finding("clear", text, numbers=numbers)
    text += f" and cost {tokens:,} sampled tokens; mostly dropped as {reasons}"
    is_certain = wilson_low(starved, tasks) >= limit("starving.share")
    sure = "certain" if is_certain else "likely"
    return Finding("found", text, sure, numbers, (first, last), tuple(names))


def skewed(evidence: Evidence) -> Finding:
    """What is trained is shorter, or quicker, than what was sampled, by more than chance.

    Lengths come from the shards; with a journal also seconds, and lengths of all that was there when a step
    closed. Rewards are left out: a filter may look at them on purpose.
    """
    if evidence.num_rollouts < MIN_ROLLOUTS:
        return cannot_tell(f"{evidence.num_rollouts} rollouts are too few (at least {MIN_ROLLOUTS})")
    found = [_lengths(evidence)]
    if evidence.has_journal:
        comparisons = report(evidence.path, _PERMUTATIONS).comparisons
        found += [one for one in comparisons if one.measure in ("seconds", "length at the close")]
    known = [one for one in found if one.p_value is not None and one.distance is not None]
    if not known:
        return cannot_tell("all rollouts were trained, or none: there is no choice to judge")
    worst = min(known, key=lambda one: (one.p_value or 0.0, -(one.distance or 0.0)))
    p_value = min(1.0, (worst.p_value or 0.0) * len(known))
    text = (
        f"{worst.measure}: mean {worst.mean_sampled or 0:.4g} of {worst.num_sampled:,} sampled, "
        f"{worst.mean_trained or 0:.4g} of {worst.num_trained:,} trained; distance {worst.distance:.3f}, "
        f"p = {p_value:.2g}"
    )
    numbers = {"distance": worst.distance or 0.0, "p": p_value}
    if (worst.distance or 0.0) < limit("skewed.distance") or p_value >= limit("skewed.p"):
        return Finding("clear", text, numbers=numbers)
    first, last, names = evidence.one(
        """SELECT min(step), max(step), max_by(leaf, num_sampled, 3) FROM fresh WHERE fate <> 'trained'"""
    )
    steps = None if first is None else (first, last)
    return Finding("found", text, "certain", numbers, steps, tuple(names or ()))


def _lengths(evidence: Evidence) -> Comparison:
    groups = int(evidence.one("SELECT count(DISTINCT group_id) FROM fresh")[0])
    every = max(1, -(-evidence.num_rollouts // _MAX_ROWS))  # whole groups, for a filter takes whole groups
    rows = evidence.rows(
        "SELECT num_sampled, fate = 'trained', group_id FROM fresh"
        + (f" WHERE hash(group_id) % {every} = 0" if every > 1 and groups > every else "")
        + " ORDER BY step, group_index, index, leaf"
    )
    lengths, chosen, clusters = [r[0] for r in rows], [r[1] for r in rows], [r[2] for r in rows]
    trained = [length for length, is_trained in zip(lengths, chosen, strict=True) if is_trained]
    return Comparison(
        measure="length",
        num_sampled=len(rows),
        num_trained=len(trained),
        mean_sampled=sum(lengths) / len(lengths) if lengths else None,
        mean_trained=sum(trained) / len(trained) if trained else None,
        distance=selection_distance(lengths, chosen),
        p_value=selection_p_value(lengths, chosen, clusters, _PERMUTATIONS),
    )
