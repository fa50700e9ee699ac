"""The same instances under single perturbations and under all of them at once.

Success under each perturbation alone does not tell success under all together: some instances that every
single one leaves right go wrong (emergent failures), some that a single one breaks come right (compensated
successes). The two can cancel in the mean, so they are counted instance by instance.

Source: LIBERO-CTRL (2026). What differs: the identity is checked on every report, and an instance that was
run several times counts as one cluster.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rollwright.errors import DataError
from rollwright.evaluate.clusters import ClusterMean, cluster_mean
from rollwright.evaluate.samples import bounded


@dataclass(frozen=True, slots=True)
class Matched:
    """One instance with one seed under every condition.

    Args:
        instance: the task's id; its runs with other seeds are of the same cluster.
        seed: number of the sample.
        singles: success under each perturbation alone, by its name.
        joint: success under all of them.
    """

    instance: str
    seed: int
    singles: Mapping[str, bool]
    joint: bool

    @property
    def is_emergent(self) -> bool:
        """All singles succeed, all together fail."""
        return all(self.singles.values()) and not self.joint

    @property
    def is_compensated(self) -> bool:
        """Some single fails, all together succeed."""
        return not all(self.singles.values()) and self.joint


@dataclass(frozen=True, slots=True)
class Composition:
    """How single perturbations compose; rates over matched runs, intervals over instances.

    Args:
        singles: success under each perturbation.
        all_singles: share of runs that succeed under each of them.
        joint: success under all together.
        emergent, compensated: rates of the two changes.
        difference: compensated - emergent, which is joint - all_singles, exactly.
        changed: compensated + emergent.
        num, num_instances: matched runs, instances.
        num_unmatched: runs that lack a condition, left out.
    """

    singles: dict[str, ClusterMean]
    all_singles: ClusterMean
    joint: ClusterMean
    emergent: ClusterMean
    compensated: ClusterMean
    difference: ClusterMean
    changed: ClusterMean
    num: int
    num_instances: int
    num_unmatched: int

    @property
    def hides(self) -> bool:
        """Whether the mean hides changes: the difference may be 0, yet instances change."""
        return self.difference.low <= 0 <= self.difference.high and self.changed.low > 0


def compose(runs: Sequence[Matched], num_unmatched: int = 0) -> Composition:
    """Count how single perturbations compose.

    Raises:
        DataError: no runs, a run without perturbations, or runs under different ones.
    """
    if not runs:
        raise DataError("compose: no instance was run under every condition; expected at least one")
    names = list(runs[0].singles)
    for run in runs:
        if not names or list(run.singles) != names:
            raise DataError(
                f"compose: {run.instance} was run under {list(run.singles)}, the first under {names}"
            )
    clusters = [run.instance for run in runs]

    def rate(values: Sequence[float]) -> ClusterMean:
        of_cluster: dict[str, list[float]] = {}
        for value, cluster in zip(values, clusters, strict=True):
            of_cluster.setdefault(cluster, []).append(value)
        return bounded(cluster_mean(values, clusters), [sum(v) / len(v) for v in of_cluster.values()])

    emergent = [float(run.is_emergent) for run in runs]
    compensated = [float(run.is_compensated) for run in runs]
    changes = list(zip(compensated, emergent, strict=True))
    changed = rate([c + e for c, e in changes])
    difference = cluster_mean([c - e for c, e in changes], clusters)
    if not difference.error:  # every instance alike: the two rates differ by no more than changes can be
        difference = dataclasses.replace(difference, low=-changed.high, high=changed.high)
    found = Composition(
        singles={name: rate([float(run.singles[name]) for run in runs]) for name in names},
        all_singles=rate([float(all(run.singles.values())) for run in runs]),
        joint=rate([float(run.joint) for run in runs]),
        emergent=rate(emergent),
        compensated=rate(compensated),
        difference=difference,
        changed=changed,
        num=len(runs),
        num_instances=len(set(clusters)),
        num_unmatched=num_unmatched,
    )
    gap = found.joint.mean - found.all_singles.mean
    assert math.isclose(gap, found.difference.mean, abs_tol=1e-9), (gap, found.difference)
    return found


def match(conditions: Mapping[str, Mapping[tuple[str, int], bool]], joint: str) -> tuple[list[Matched], int]:
    """Put runs of several conditions together by (instance, seed).

    Args:
        conditions: success by (instance, seed), by condition; runs that were not scored are missing.
        joint: which of them is the joint one.

    Returns:
        (matched runs, number of runs that lack a condition), in the order of instances and seeds.

    Raises:
        DataError: no such condition.
    """
    if joint not in conditions:
        raise DataError(f"match: no condition {joint!r}; there are {', '.join(conditions)}")
    keys = sorted({key for runs in conditions.values() for key in runs})
    whole = [key for key in keys if all(key in runs for runs in conditions.values())]
    singles = [name for name in conditions if name != joint]
    return [
        Matched(key[0], key[1], {name: conditions[name][key] for name in singles}, conditions[joint][key])
        for key in whole
    ], len(keys) - len(whole)
