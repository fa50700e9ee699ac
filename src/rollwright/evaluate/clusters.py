"""Means of samples that come in clusters, with intervals that know it."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from rollwright.errors import DataError
from rollwright.lab.student import student_quantile


@dataclass(frozen=True, slots=True)
class ClusterMean:
    """A mean over samples, with a 95% interval over clusters.

    Args:
        mean, error: the mean and its standard error; the error is infinite for a single cluster.
        low, high: mean ± Student's t (clusters - 1) · error.
        num, num_clusters: samples and clusters.
    """

    mean: float
    error: float
    low: float
    high: float
    num: int
    num_clusters: int


def cluster_mean(values: Sequence[float], clusters: Sequence[Hashable]) -> ClusterMean:
    """Return the mean of values whose clusters (tasks) are the independent draws.

    SE² = G/(G-1) · Σ_g (Σ_{i in g} (yᵢ - ȳ))² / N²: the cluster-robust (CR1) variance of a regression on a
    constant. With one sample a cluster it is s²/N.

    Args:
        values: [N].
        clusters: the cluster of each value, [N].

    Raises:
        DataError: no values, or not one cluster each.

    Source: Liang & Zeger (1986); for evaluations of language models, Miller 2024 (2411.00640).
    """
    num = len(values)
    if not num or len(clusters) != num:
        raise DataError(
            f"cluster_mean: {num} values, {len(clusters)} clusters; expected one each, at least one"
        )
    mean = math.fsum(values) / num
    sums: dict[Hashable, float] = {}
    for value, cluster in zip(values, clusters, strict=True):
        sums[cluster] = sums.get(cluster, 0.0) + value - mean
    count = len(sums)
    if count == 1:
        return ClusterMean(mean, math.inf, -math.inf, math.inf, num, 1)
    error = math.sqrt(count / (count - 1) * math.fsum(s * s for s in sums.values())) / num
    half = student_quantile(0.975, count - 1) * error
    return ClusterMean(mean, error, mean - half, mean + half, num, count)
