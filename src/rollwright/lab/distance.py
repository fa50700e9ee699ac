"""How far two samples lie apart, and whether chance alone would put them so far."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rollwright.runner.bias import ks_distance, selection_distance

__all__ = ["ks_distance", "selection_distance", "selection_p_value"]

_MAX_WORK = 5_000_000  # values that the permutations of one test may look at


def selection_p_value(
    values: Sequence[float],
    is_chosen: Sequence[bool],
    clusters: Sequence[object],
    num_permutations: int = 2000,
    seed: int = 0,
) -> float | None:
    """Return how often a choice that does not look at the values lies as far off as this one.

    p = (1 + #{permutations whose distance ≥ the one found}) / (1 + permutations). The choices of whole
    clusters are dealt out again among the clusters, for the rollouts of one group are not independent: a
    filter keeps or drops all of them. Exact where the clusters are equally large; else nearly so.

    Args:
        values, is_chosen, clusters: [N]; equal cluster, equal group.
        num_permutations: at most; fewer for very large samples.
        seed: of the permutations.

    Returns:
        p in (0, 1]; None if all or none were chosen, for then there is nothing to compare.
    """
    values_N, chosen_N = np.asarray(values, dtype=np.float64), np.asarray(is_chosen, dtype=bool)
    num, num_chosen = len(chosen_N), int(chosen_N.sum())
    if num_chosen in (0, num):
        return None
    _, cluster_N = np.unique(np.asarray([str(name) for name in clusters]), return_inverse=True)
    by_cluster = np.argsort(cluster_N, kind="stable")  # members stand together, in their own order
    values_N, chosen_N = values_N[by_cluster], chosen_N[by_cluster]
    cluster_N = cluster_N[by_cluster]
    ascending = np.argsort(values_N, kind="stable")
    is_last = np.append(np.diff(values_N[ascending]) > 0, True)  # the last of equal values

    def distance(choice_N: NDArray[np.bool_]) -> float:
        share = np.cumsum(choice_N[ascending]) / num_chosen - np.arange(1, num + 1) / num
        return float(np.abs(share[is_last]).max())

    found = distance(chosen_N) - 1e-12
    rng = np.random.default_rng(seed)
    rounds = max(100, min(num_permutations, _MAX_WORK // num))
    num_as_far = 0
    for _ in range(rounds):
        keys = rng.random(cluster_N[-1] + 1)
        order = np.argsort(keys[cluster_N], kind="stable")
        num_as_far += distance(chosen_N[order]) >= found
    return (1 + num_as_far) / (1 + rounds)
