"""Close groups: freeze them for the stages, give every sampled token its fate, and measure a step."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from rollwright.ledger import Fate, Ledger
from rollwright.method import Method
from rollwright.runner.state import GroupState, order
from rollwright.tree import Group, NodeId, Origin, Trajectory, path_to

Metrics = dict[str, float | None]


def in_order(group: GroupState) -> list[Trajectory]:
    """Return the trajectories with their numbers, in an order that does not depend on arrival."""
    numbers = {stream: number for number, stream in enumerate(sorted(group.streams, key=order))}
    numbered = [
        msgspec.structs.replace(t, index=numbers[group.nodes[t.leaf].stream])
        for t in group.trajectories.values()
    ]
    return sorted(numbered, key=lambda t: (t.index, group.nodes[t.leaf].start))


def freeze(group: GroupState) -> Group:
    """Return the group as an immutable value, trajectories and nodes in order of creation."""
    trajectories = in_order(group)
    if group.scores:
        trajectories = [msgspec.structs.replace(t, score=group.scores[t.leaf]) for t in trajectories]
    nodes = sorted(group.nodes.values(), key=lambda node: order(node.stream))  # stable: parents stay first
    return Group(group.id, group.task, {node.id: node for node in nodes}, tuple(trajectories))


def judge(method: Method, group: GroupState, min_group: int = 1) -> None:
    """Run the filters over a complete group and note their word and the shaped scores in it.

    A group with failures of which fewer than ``min_group`` rollouts are scored is dropped.
    """
    group.scores = {t.leaf: t.reward for t in group.trajectories.values()}
    if group.is_broken:
        group.is_kept = False
        return
    group.is_kept, group.drop_reason = True, ""
    num_scored = sum(t.reward is not None for t in group.trajectories.values())
    if not num_scored:
        group.is_kept, group.drop_reason = False, "nothing_scored"
        return
    if num_scored < min_group and (group.num_failed or num_scored < len(group.trajectories)):
        group.is_kept, group.drop_reason = False, "too_few_scored"
        return
    for stage in method.filters:
        verdict = stage(freeze(group))
        if verdict.scores is not None:
            group.scores.update(verdict.scores)
        if not verdict.keep:
            group.is_kept, group.drop_reason = False, verdict.reason or type(stage).__name__
            return


Fates = dict[NodeId, tuple[Fate, str]]


def settle(ledger: Ledger, group: GroupState, trained: Iterable[NodeId], fate: Fate, reason: str) -> Fates:
    """Give each sampled token of a closed group its one fate.

    Args:
        trained: leaves that were trained on; their paths' tokens are trained.
        fate, reason: what happened to the scored leaves that were not trained.

    Returns:
        (fate, reason) by leaf, in the order in which they were settled: the first leaf through a token
        decides.
    """
    leaves: list[tuple[NodeId, Fate, str]] = [(leaf, Fate.TRAINED, "") for leaf in trained]
    is_trained = {leaf for leaf, _, _ in leaves}
    rest = [t for t in in_order(group) if t.leaf not in is_trained]
    leaves += [(t.leaf, fate, reason) for t in rest if t.reward is not None]
    leaves += [(t.leaf, Fate.FAILED, f"not_scored:{t.status}") for t in rest if t.reward is None]
    leaves += [(leaf, Fate.PRUNED, why) for leaf, why in group.pruned.items()]
    leaves += [(leaf, Fate.FAILED, why) for leaf, why in group.failed.items()]
    is_settled: dict[NodeId, int] = {}
    for leaf, leaf_fate, why in leaves:
        for node, num in path_to(group.nodes, leaf):
            done = is_settled.get(node.id, 0)
            if node.origin is Origin.SAMPLED and num > done:
                ledger.settle(num - done, leaf_fate, why)
                is_settled[node.id] = num
    for node in group.nodes.values():
        num_left = node.num_steps - is_settled.get(node.id, 0)
        if node.origin is Origin.SAMPLED and num_left:
            ledger.settle(num_left, Fate.PRUNED, "left_behind")
    by_leaf: Fates = {}
    for leaf, leaf_fate, why in leaves:
        by_leaf.setdefault(leaf, (leaf_fate, why))
    return by_leaf


class Closed(msgspec.Struct, frozen=True):
    """A group for the record: the step it left in, the version its batch was to improve, and (fate,
    reason) by leaf."""

    step: int
    version: int
    group: Group
    fates: Fates


def close(step: int, version: int, group: GroupState | None, batch: Group | None, fates: Fates) -> Closed:
    """Return a closed group for the record: what was trained as it was trained, and all the rest."""
    if group is None:
        assert batch is not None
        return Closed(step, version, batch, {t.leaf: (Fate.TRAINED, "replayed") for t in batch.trajectories})
    frozen = freeze(group)
    if batch is None:
        return Closed(step, version, frozen, fates)
    by_leaf = {t.leaf: t for t in (*frozen.trajectories, *batch.trajectories)}
    fates = {**fates, **{t.leaf: (Fate.TRAINED, "replayed") for t in batch.trajectories if t.replayed}}
    nodes = {**frozen.nodes, **batch.nodes}
    whole = msgspec.structs.replace(batch, nodes=nodes, trajectories=tuple(by_leaf.values()))
    return Closed(step, version, whole, fates)


def split_stale(group: Group, version: int, max_age: int | None) -> Group:
    """Take out the trajectories whose oldest token is more than ``max_age`` versions behind."""
    if max_age is None:
        return group
    young = [t for t in group.trajectories if t.replayed or age(group, t.leaf, version) <= max_age]
    if len(young) == len(group.trajectories):
        return group
    return msgspec.structs.replace(group, trajectories=tuple(young))


def age(group: Group, leaf: NodeId, version: int) -> int:
    """Return the version trained on minus the oldest version that sampled any token of the path."""
    versions = [node.version for node, num in group.path(leaf) if node.version is not None and num]
    return version - min(versions, default=version)


def percentile(values: Sequence[float], q: float) -> float | None:
    return float(np.percentile(values, q)) if values else None


def mean(values: Sequence[float]) -> float | None:
    """Return the mean, the same to the last bit in any order of the values; None without any."""
    return math.fsum(values) / len(values) if values else None


def num_sampled(group: GroupState, leaf: NodeId) -> int:
    return sum(num for node, num in path_to(group.nodes, leaf) if node.origin is Origin.SAMPLED)


def step_metrics(groups: Sequence[GroupState], batch: Sequence[Group], version: int) -> Metrics:
    """Measure a step: one value per rollout, never per row; lengths from sampled tokens, not masks."""
    rollouts: list[tuple[GroupState, Trajectory]] = [
        (group, t) for group in groups for t in group.trajectories.values()
    ]
    scored = [t.reward for _, t in rollouts if t.reward is not None]
    lengths = [float(num_sampled(group, t.leaf)) for group, t in rollouts]
    spreads = [[t.reward for t in g.trajectories.values() if t.reward is not None] for g in groups]
    spreads = [rewards for rewards in spreads if rewards]
    ages = [age(g, t.leaf, version) for g in batch for t in g.trajectories if not t.replayed]
    entropies = [value for group in groups for node in group.nodes.values() for value in node.entropies or ()]
    trained = [t for group in batch for t in group.trajectories]
    metrics: Metrics = {
        "reward_mean": mean(scored),
        "num_rollouts": len(rollouts),
        "num_scored": len(scored),
        "num_not_scored": len(rollouts) - len(scored),
        "num_failed": sum(group.num_failed for group in groups),
        "num_groups": len(groups),
        "num_groups_kept": sum(group.is_kept is True for group in groups),
        "num_groups_trained": len(batch),
        "num_groups_foreign": sum(all(t.replayed for t in group.trajectories) for group in batch),
        "num_trajectories_trained": len(trained),
        "num_replayed": sum(t.replayed for t in trained),
        "zero_variance_share": mean([float(max(r) == min(r)) for r in spreads]),
        "all_zero_share": mean([float(max(r) <= 0) for r in spreads]),
        "length_mean": mean(lengths),
        "length_p50": percentile(lengths, 50),
        "length_p99": percentile(lengths, 99),
        "length_max": max(lengths, default=None),
        "truncated_share": mean([float(t.truncated) for _, t in rollouts]),
        "turns_mean": mean([float(t.num_turns) for _, t in rollouts]),
        "age_mean": mean([float(a) for a in ages]),
        "age_max": max(ages, default=None),
        "entropy_mean": mean(entropies),
    }
    for group in groups:
        if group.is_kept is False:
            key = f"dropped:{group.drop_reason}"
            metrics[key] = (metrics.get(key) or 0) + 1
    for _, t in rollouts:
        key = f"status:{t.status}"
        metrics[key] = (metrics.get(key) or 0) + 1
    return metrics
