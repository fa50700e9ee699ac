"""The Parquet schema, version 1: one row a node and one row a trajectory (docs/formats.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from rollwright.errors import StoreError
from rollwright.ledger import Fate
from rollwright.store.strict import dumps
from rollwright.tree import Group, Node, NodeId, Origin, StopReason, Trajectory, path_to

SCHEMA_VERSION = 1
VERSION_KEY = b"rollwright.schema_version"
TABLE_KEY = b"rollwright.table"

Fates = Mapping[NodeId, tuple[Fate, str]]
Decode = Callable[[Sequence[int]], str]
Row = dict[str, Any]

_STEPS = pa.list_(pa.float64())
_KEY = [
    ("step", pa.int64()),
    ("kind", pa.string()),
    ("group_index", pa.int32()),
    ("group", pa.string()),
    ("task", pa.string()),
]
NODES = pa.schema(
    [
        *_KEY,
        ("node", pa.string()),
        ("place", pa.int32()),
        ("parent", pa.string()),
        ("at", pa.int32()),
        ("origin", pa.string()),
        ("stream", pa.string()),
        ("start", pa.int32()),
        ("num_steps", pa.int32()),
        ("tokens", pa.list_(pa.int32())),
        ("policy", pa.string()),
        ("version", pa.int64()),
        ("logprobs", _STEPS),
        ("entropies", _STEPS),
        ("kept_masses", _STEPS),
        ("top", pa.list_(pa.list_(pa.struct([("token", pa.int32()), ("logprob", pa.float64())])))),
        ("forced", pa.int32()),
        ("temperature", pa.float64()),
        ("stop", pa.string()),
        ("reward", pa.float64()),
        ("replayed", pa.bool_()),
        ("fates", pa.map_(pa.string(), pa.int32())),
        ("text", pa.string()),
    ],
    metadata={VERSION_KEY: str(SCHEMA_VERSION).encode(), TABLE_KEY: b"nodes"},
)
TRAJECTORIES = pa.schema(
    [
        *_KEY,
        ("leaf", pa.string()),
        ("index", pa.int32()),
        ("fate", pa.string()),
        ("reason", pa.string()),
        ("reward", pa.float64()),
        ("status", pa.string()),
        ("rewards", pa.map_(pa.string(), pa.float64())),
        ("score", pa.float64()),
        ("terminated", pa.bool_()),
        ("truncated", pa.bool_()),
        ("any_turn_cut", pa.bool_()),
        ("stop", pa.string()),
        ("num_turns", pa.int32()),
        ("replayed", pa.bool_()),
        ("advantages", _STEPS),
        ("weight", pa.float64()),
        ("baseline", pa.float64()),
        ("num_prompt", pa.int32()),
        ("num_response", pa.int32()),
        ("num_sampled", pa.int32()),
        ("oldest_version", pa.int64()),
        ("newest_version", pa.int64()),
        ("batch_version", pa.int64()),
        ("extras", pa.string()),
        ("extras_non_finite", pa.list_(pa.string())),
        ("prompt_text", pa.string()),
        ("response_text", pa.string()),
    ],
    metadata={VERSION_KEY: str(SCHEMA_VERSION).encode(), TABLE_KEY: b"trajectories"},
)


def node_rows(key: Row, group: Group, fates: Fates, decode: Decode | None) -> Iterable[Row]:
    """Yield the row of each node of a group, parents first.

    Args:
        key: step, kind and the group's number in the step.
        fates: (fate, reason) by leaf, in the order in which the ledger settled them: the first leaf
            through a token decides its fate. Sampled tokens on no such path were left behind: pruned.
    """
    token_fates = _token_fates(group, fates)
    fresh, replayed = _paths(group)
    for place, node in enumerate(group.nodes.values()):
        yield {
            **key,
            "group": group.id,
            "task": group.task,
            "node": node.id,
            "place": place,
            **{name: getattr(node, name) for name in _NODE_FIELDS},
            "origin": node.origin.value,
            "stop": _word(node.stop),
            "num_steps": node.num_steps,
            "top": _top(node),
            "replayed": node.id in replayed and node.id not in fresh,
            "fates": list(token_fates[node.id].items()),
            "text": decode(node.tokens) if decode else None,
        }


_NODE_FIELDS = (
    *("parent", "at", "stream", "start", "tokens", "policy", "version", "logprobs", "entropies"),
    *("kept_masses", "forced", "temperature", "reward"),
)


def _word(value: Any) -> str | None:
    return None if value is None else str(value.value)


def _top(node: Node) -> list[list[Row]] | None:
    if node.top is None:
        return None
    return [[{"token": token, "logprob": logprob} for token, logprob in step] for step in node.top]


def _paths(group: Group) -> tuple[set[NodeId], set[NodeId]]:
    paths: tuple[set[NodeId], set[NodeId]] = (set(), set())
    for trajectory in group.trajectories:
        paths[trajectory.replayed].update(node.id for node, _ in group.path(trajectory.leaf))
    return paths


def _token_fates(group: Group, fates: Fates) -> dict[NodeId, dict[str, int]]:
    counts: dict[NodeId, dict[str, int]] = {node: {} for node in group.nodes}
    settled = dict.fromkeys(group.nodes, 0)

    def settle(node: Node, num: int, fate: Fate) -> None:
        more = num - settled[node.id]
        if node.origin is Origin.SAMPLED and more > 0:
            counts[node.id][fate.value] = counts[node.id].get(fate.value, 0) + more
            settled[node.id] = num

    for leaf, (fate, _) in fates.items():
        if leaf in group.nodes:
            for node, num in path_to(group.nodes, leaf):
                settle(node, num, fate)
    for node in group.nodes.values():
        settle(node, node.num_steps, Fate.PRUNED)
    return counts


def trajectory_rows(
    key: Row,
    group: Group,
    fates: Fates,
    version: int | None,
    extras: Mapping[NodeId, Mapping[str, object]],
    decode: Decode | None,
) -> Iterable[Row]:
    """Yield the row of each trajectory of a group, in order of creation.

    Args:
        version: the version that the batch improves on, None where nothing is trained.
        extras: what the grader or the stages noted, by leaf; values as in `store.strict.plain`.

    Raises:
        StoreError: a trajectory without a fate.
        DataError: extras that JSON cannot hold.
    """
    for trajectory in group.trajectories:
        if trajectory.leaf not in fates:
            raise StoreError(
                f"trajectory {trajectory.leaf} has no fate; every trajectory of a shard needs one of "
                f"{[fate.value for fate in Fate]}"
            )
        fate, reason = fates[trajectory.leaf]
        text, flags = dumps(extras.get(trajectory.leaf, {}))
        yield {
            **key,
            "group": group.id,
            "task": group.task,
            **{name: getattr(trajectory, name) for name in _TRAJECTORY_FIELDS},
            "fate": fate.value,
            "reason": reason,
            "rewards": list(trajectory.rewards.items()),
            "stop": _word(trajectory.stop),
            "baseline": group.baseline,
            "batch_version": version,
            "extras": text,
            "extras_non_finite": [f"{path}={word}" for path, word in flags.items()],
            **_measures(group, trajectory, decode),
        }


_TRAJECTORY_FIELDS = (
    *("leaf", "index", "reward", "status", "score", "terminated", "truncated", "any_turn_cut"),
    *("num_turns", "replayed", "advantages", "weight"),
)


def _measures(group: Group, trajectory: Trajectory, decode: Decode | None) -> Row:
    path = group.path(trajectory.leaf)
    response = [step for node, num in path[1:] for step in node.tokens[:num]]
    versions = [node.version for node, num in path if node.version is not None and num]
    return {
        "num_prompt": path[0][1],
        "num_response": len(response),
        "num_sampled": sum(num for node, num in path if node.origin is Origin.SAMPLED),
        "oldest_version": min(versions, default=None),
        "newest_version": max(versions, default=None),
        "prompt_text": decode(path[0][0].tokens) if decode else None,
        "response_text": decode(response) if decode else None,
    }


def table(rows: Sequence[Row], schema: pa.Schema) -> pa.Table:
    """Return rows as an Arrow table of the schema."""
    columns = [pa.array([row[field.name] for row in rows], type=field.type) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def check_version(metadata: Mapping[bytes, bytes] | None, path: object) -> None:
    """Check that a file's schema version can be read.

    Raises:
        StoreError: it has none, or a newer one.
    """
    stated = (metadata or {}).get(VERSION_KEY, b"none").decode()
    if not stated.isdigit():
        raise StoreError(f"{path} states no schema version; it was not written by rollwright")
    if int(stated) > SCHEMA_VERSION:
        raise StoreError(
            f"{path} has schema version {stated}; this rollwright reads up to {SCHEMA_VERSION}: update it"
        )


def group_of(nodes: Sequence[Row], trajectories: Sequence[Row]) -> Group:
    """Return the group of its rows, in the order of the file, as it was written.

    A group's baseline stands with its trajectories: without any it reads back as None.
    """
    made = {row["node"]: _node_of(row) for row in nodes}
    leaves = tuple(_trajectory_of(row) for row in trajectories)
    baseline = trajectories[0]["baseline"] if trajectories else None
    return Group(nodes[0]["group"], nodes[0]["task"], made, leaves, baseline)


def _node_of(row: Row) -> Node:
    fields = {name: row[name] for name in _NODE_FIELDS}
    for name in ("tokens", "logprobs", "entropies", "kept_masses"):
        fields[name] = None if row[name] is None else tuple(row[name])
    top = row["top"]
    if top is not None:
        top = tuple(tuple((pair["token"], pair["logprob"]) for pair in step) for step in top)
    stop = row["stop"] and StopReason(row["stop"])
    return Node(id=row["node"], origin=Origin(row["origin"]), top=top, stop=stop, **fields)


def _trajectory_of(row: Row) -> Trajectory:
    fields = {name: row[name] for name in _TRAJECTORY_FIELDS}
    if row["advantages"] is not None:
        fields["advantages"] = tuple(row["advantages"])
    stop = row["stop"] and StopReason(row["stop"])
    return Trajectory(**fields, rewards=dict(row["rewards"]), stop=stop)
