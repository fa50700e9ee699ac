"""What a step's batch was chosen from, against what was chosen: lengths, durations, rewards, tasks.

A choice that does not look at lengths leaves their distribution as it is. `rollwright.lab.bias` says the same
of a whole run, with p-values, from the journal; here is what one close costs nothing to know.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from rollwright.runner.batch import Metrics, mean
from rollwright.runner.state import GroupState, LiveAsk
from rollwright.tree import Group, NodeId, Origin, path_to


def choice_metrics(
    there: Iterable[GroupState], batch: Sequence[Group], asks: Mapping[str, LiveAsk]
) -> Metrics:
    """Compare the rollouts that were there when a step closed with those of its batch.

    Args:
        there: groups that had begun by the close and had not left before; unfinished rollouts count with the
            tokens that they have so far, which is too few.
        batch: what is trained on; rollouts of other runs and steps (``replayed``) are left out.
        asks: of the run; those of the groups say how far unfinished rollouts are.

    Returns:
        ``choice_num_there`` and ``_trained``; for length (sampled tokens), seconds (prompt to grade, waiting
        included) and reward: ``choice_<measure>_there`` and ``_trained``, the means, and ``_distance``,
        Kolmogorov and Smirnov's, None where nothing is trained.
    """
    trained = {
        t.leaf for group in batch for t in group.trajectories if not t.replayed and t.reward is not None
    }
    lengths: list[tuple[float, bool]] = []
    seconds: list[tuple[float, bool]] = []
    rewards: list[tuple[float, bool]] = []
    for group in there:
        for leaf, num in _lengths(group, asks):
            lengths.append((float(num), leaf in trained))
        seconds += [(value, leaf in trained) for leaf, value in group.seconds.items()]
        scored = ((t.reward, leaf in trained) for leaf, t in group.trajectories.items())
        rewards += [(reward, chosen) for reward, chosen in scored if reward is not None]
    metrics: Metrics = {
        "choice_num_there": len(lengths),
        "choice_num_trained": sum(chosen for _, chosen in lengths),
    }
    for name, rows in (("length", lengths), ("seconds", seconds), ("reward", rewards)):
        values, is_chosen = [value for value, _ in rows], [chosen for _, chosen in rows]
        metrics[f"choice_{name}_there"] = mean(values)
        metrics[f"choice_{name}_trained"] = mean([value for value, chosen in rows if chosen])
        metrics[f"choice_{name}_distance"] = selection_distance(values, is_chosen)
    return metrics


def _lengths(group: GroupState, asks: Mapping[str, LiveAsk]) -> Iterable[tuple[NodeId, int]]:
    """Yield (leaf, sampled tokens so far) of each rollout of which something was sampled."""
    for leaf in (*group.trajectories, *group.pruned, *group.failed):
        if num := _num_sampled(group, leaf, group.nodes[leaf].num_steps):
            yield leaf, num
    for ask in sorted(group.asks):
        live = asks[ask]
        if live.kind in ("tokens", "env") and live.parent:
            at = live.at if live.kind == "tokens" else group.nodes[live.parent].num_steps
            if num := _num_sampled(group, live.parent, at) + len(live.tokens):
                yield live.parent, num


def _num_sampled(group: GroupState, node: NodeId, at: int) -> int:
    """Return the sampled steps of the path that ends after ``at`` steps of a node."""
    path = path_to(group.nodes, node)
    path[-1] = (path[-1][0], at)
    return sum(num for one, num in path if one.origin is Origin.SAMPLED)


def selection_distance(values: Sequence[float], is_chosen: Sequence[bool]) -> float | None:
    """Return the Kolmogorov-Smirnov distance of the chosen values from all of them.

    With a share p chosen it is (1 - p) · sup|F_chosen - F_other|, so it is 0 where all are chosen.

    Args:
        values, is_chosen: [N].

    Returns:
        The distance in [0, 1], None if nothing was chosen.
    """
    values_N = np.asarray(values, dtype=np.float64)
    return ks_distance(values_N[np.asarray(is_chosen, dtype=bool)], values_N)


def ks_distance(
    first: Sequence[float] | NDArray[np.float64], second: Sequence[float] | NDArray[np.float64]
) -> float | None:
    """Return the Kolmogorov-Smirnov distance sup_x |F₁(x) - F₂(x)| in [0, 1]; None if a sample is empty."""
    if not len(first) or not len(second):
        return None
    a, b = np.sort(np.asarray(first, dtype=np.float64)), np.sort(np.asarray(second, dtype=np.float64))
    x = np.concatenate([a, b])
    difference = np.searchsorted(a, x, side="right") / len(a) - np.searchsorted(b, x, side="right") / len(b)
    return float(np.abs(difference).max())
