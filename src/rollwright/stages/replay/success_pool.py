"""Replay of verified successes: every fresh group gets some of its task's earlier right answers."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from rollwright.errors import ConfigError, DataError, LawBroken, UnknownName
from rollwright.tree import Group, GroupId, Node, TaskId, Trajectory

Episode = dict[str, Any]  # {"prompt": [ids], "nodes": [node, ...], "trajectory": {...}} of plain values
Pool = dict[TaskId, list[Episode]]  # tasks in the order in which they last grew
RATIOS = ("current", "recorded")
ELSEWHERE = "pool"  # the policy of nodes that another run sampled


@dataclass(frozen=True, slots=True)
class SuccessPool:
    """Add up to ``replayed`` = M successes from the pool to each fresh group of the same task.

    union = fresh ∪ M episodes drawn without replacement; what credits the group sees the union

    Only rollouts whose grade is at least ``threshold`` enter the pool, never a replayed one again. The
    draw comes before this step's successes enter, so nothing is in a group twice. Replayed nodes keep
    the logprobs, versions and temperature they were sampled with; they hang under the group's own prompt
    and their trajectories are marked ``replayed``: their tokens are never settled in the ledger again.
    With ``replayed=0`` the groups are returned as they came.

    The ratio of a replayed token, rᵢₜ = π / π_old, is 1 before the update with ``ratio="current"``: π_old
    is the policy before the update, as the paper's code has it. With ``ratio="recorded"`` π_old is the
    policy that sampled it: then the clip silences a success that the policy finds more likely than its
    author did, and a small ratio one that it finds much less likely.

    Args:
        replayed: M, episodes added to each group, ≥ 0; fewer where the pool holds fewer.
        grow: successes of this run enter the pool.
        per_task: episodes kept per task, the newest, ≥ 1.
        max_episodes: episodes kept in all, ≥ 1; the task that grew longest ago gives up its oldest first.
        threshold: least reward of a success.
        ratio: ``"current"`` or ``"recorded"``.
        path: pool file of an earlier run to start from (`write_pool`), or None.
        digest: of the file (`pool_digest`), so that a resumed run cannot start from another pool.
        only_failed: add them only to groups of which no rollout is a success.

    Source: RLEP (2507.07451); docs/methods/rlep.md says what differs.
    """

    replayed: int = 2
    grow: bool = True
    per_task: int = 8
    max_episodes: int = 20_000
    threshold: float = 1.0
    ratio: str = "current"
    path: str | None = None
    digest: str | None = None
    only_failed: bool = False

    def __post_init__(self) -> None:
        if self.replayed < 0 or self.per_task < 1 or self.max_episodes < 1:
            raise ConfigError(
                f"SuccessPool: replayed = {self.replayed}, per_task = {self.per_task}, max_episodes ="
                f" {self.max_episodes}; expected replayed ≥ 0 and the others ≥ 1"
            )
        if self.ratio not in RATIOS:
            raise UnknownName("ratio of SuccessPool", self.ratio, RATIOS)

    def init(self) -> Pool:
        return {} if self.path is None else read_pool(self.path, self.digest)

    def exchange(
        self, state: Pool, fresh: Sequence[Group], version: int, rng: np.random.Generator, num_tasks: int
    ) -> tuple[Pool, Sequence[Group]]:
        chosen = [self._union(state.get(group.task, []), group, rng) for group in fresh]
        return (self.added(state, fresh) if self.grow else state), chosen

    def holds(self, state: Pool) -> Collection[GroupId]:
        return ()

    def _union(self, episodes: Sequence[Episode], group: Group, rng: np.random.Generator) -> Group:
        num = min(self.replayed, len(episodes))
        is_solved = any(map(self.is_success, group.trajectories))
        if num == 0 or (self.only_failed and is_solved):
            return group
        drawn = sorted(rng.choice(len(episodes), num, replace=False).tolist())
        nodes, trajectories = dict(group.nodes), list(group.trajectories)
        index = max((t.index for t in trajectories), default=-1) + 1
        for k, i in enumerate(drawn):
            added, trajectory = _rebuild(episodes[i], group, k, index + k)
            nodes.update(added)
            is_current = self.ratio == "current"
            trajectories.append(msgspec.structs.replace(trajectory, ratio_to_current=is_current))
        return msgspec.structs.replace(group, nodes=nodes, trajectories=tuple(trajectories))

    def added(self, pool: Pool, groups: Iterable[Group]) -> Pool:
        """Return the pool with the groups' successes; the given one is not changed."""
        pool = dict(pool)
        for group in groups:
            wins = [t for t in group.trajectories if self.is_success(t)]
            for trajectory in wins:
                episode = _episode(group, trajectory)
                known = pool.pop(group.task, [])
                if not any(_tokens(episode) == _tokens(old) for old in known):
                    known = [*known, episode][-self.per_task :]
                pool[group.task] = known
        num = sum(map(len, pool.values()))
        while num > self.max_episodes:
            task = next(iter(pool))
            pool[task] = pool[task][1:]
            if not pool[task]:
                del pool[task]
            num -= 1
        return pool

    def is_success(self, trajectory: Trajectory) -> bool:
        reward = trajectory.reward
        return reward is not None and reward >= self.threshold and not trajectory.replayed


def write_pool(path: str | Path, pool: Pool) -> str:
    """Write a pool file and return its digest (`SuccessPool.digest`)."""
    data = msgspec.json.encode(pool)
    Path(path).write_bytes(data)
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def pool_digest(path: str | Path) -> str:
    """Return the digest of a pool file.

    Raises:
        DataError: there is no such file.
    """
    try:
        return hashlib.blake2b(Path(path).read_bytes(), digest_size=16).hexdigest()
    except OSError as error:
        raise DataError(f"pool file {path}: {error.strerror}; make one with write_pool") from error


def read_pool(path: str | Path, digest: str | None = None) -> Pool:
    """Read a pool file of another run; its nodes are marked as sampled elsewhere.

    Raises:
        DataError: no such file, not a pool file, or not the one that ``digest`` names.
    """
    found = pool_digest(path)
    if digest is not None and found != digest:
        raise DataError(
            f"pool file {path} has digest {found}, this run began with {digest}; restore the file"
        )
    try:
        pool = msgspec.json.decode(Path(path).read_bytes(), type=Pool)
        for episode in (episode for episodes in pool.values() for episode in episodes):
            msgspec.convert(episode["prompt"], list[int])
            msgspec.convert(episode["nodes"], list[Node])
            msgspec.convert(episode["trajectory"], Trajectory)
            # A version names weights of its own run only: without this, version 3 of the other run would
            # pass for version 3 of this one, and its logprobs for those of the policy that learns.
            for node in episode["nodes"]:
                node["policy"] = None if node["policy"] is None else ELSEWHERE
    except (msgspec.MsgspecError, KeyError, LawBroken) as error:
        raise DataError(f"{path} is no pool file ({error}); expected what write_pool writes") from error
    return pool


def _episode(group: Group, trajectory: Trajectory) -> Episode:
    """Return the trajectory as plain values: its prompt, and its path as a chain without forks."""
    nodes = [_cut(node, num) for node, num in group.path(trajectory.leaf)[1:] if num]
    bare = msgspec.structs.replace(trajectory, advantages=None, weight=1.0)
    return {
        "prompt": list(group.root.tokens),
        "nodes": msgspec.json.decode(msgspec.json.encode(nodes)),
        "trajectory": msgspec.json.decode(msgspec.json.encode(bare)),
    }


def _cut(node: Node, num: int) -> Node:
    """Return the node with its first ``num`` steps, without what only reports read."""

    def head(column: tuple[float, ...] | None) -> tuple[float, ...] | None:
        return None if column is None else column[:num]

    return msgspec.structs.replace(
        node,
        tokens=node.tokens[:num],
        logprobs=head(node.logprobs),
        kept_masses=head(node.kept_masses),
        entropies=None,
        top=None,
        forced=min(node.forced, num),
    )


def _rebuild(episode: Episode, group: Group, k: int, index: int) -> tuple[dict[str, Node], Trajectory]:
    """Return the episode's nodes under the group's prompt, and its trajectory."""
    if tuple(episode["prompt"]) != group.root.tokens:
        raise DataError(
            f"the pool's episode of task {group.task} has another prompt ({len(episode['prompt'])} tokens)"
            f" than this run ({len(group.root.tokens)}); expected one tokeniser and one version of the task"
        )
    nodes: dict[str, Node] = {}
    parent = group.root
    for j, node in enumerate(msgspec.convert(episode["nodes"], list[Node])):
        parent = msgspec.structs.replace(
            node, id=f"{group.id}/replay{k}.{j}", parent=parent.id, at=parent.num_steps
        )
        nodes[parent.id] = parent
    trajectory = msgspec.convert(episode["trajectory"], Trajectory)
    return nodes, msgspec.structs.replace(trajectory, leaf=parent.id, index=index, replayed=True)


def _tokens(episode: Episode) -> list[int]:
    return [token for node in episode["nodes"] for token in node["tokens"]]
