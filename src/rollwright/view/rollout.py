"""One group as a tree and one rollout step by step, as plain values for the page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from rollwright.errors import DataError
from rollwright.view.database import Database
from rollwright.view.pieces import Pieces

Row = dict[str, Any]
Step = tuple[Row, int]  # a node and how many of its steps are on the path

_NODE = (
    *("node", "parent", "at", "origin", "stream", "start", "num_steps", "policy", "version", "forced"),
    *("temperature", "stop", "reward", "replayed"),
)
_TRAJECTORY = (
    *("leaf", "index", "fate", "reason", "reward", "status", "score", "terminated", "truncated", "stop"),
    *("num_turns", "replayed", "weight", "baseline", "num_prompt", "num_response", "num_sampled"),
    *("oldest_version", "newest_version", "batch_version", "extras", "any_turn_cut"),
)


def group(database: Database, kind: str, step: int, group_index: int) -> Row:
    """Return a group: its nodes without their steps, and its rollouts without theirs.

    Returns:
        ``group``, ``task``, ``nodes`` (parents first; ``advantage`` is the mean over the sampled steps of the
        rollouts that end below, None where none was given) and ``trajectories``.

    Raises:
        DataError: there is no such group.
    """
    nodes, trajectories = _rows(database, kind, step, group_index)
    by_id = {row["node"]: row for row in nodes}
    advantages = _advantages(by_id, trajectories)
    return {
        "kind": kind,
        "step": step,
        "group_index": group_index,
        "group": nodes[0]["group"],
        "task": nodes[0]["task"],
        "nodes": [
            {
                **{name: row[name] for name in _NODE},
                "fates": dict(row["fates"] or ()),
                "advantage": advantages.get(row["node"]),
                "logprob": _mean(row["logprobs"]),
                "entropy": _mean(row["entropies"]),
                "text": _head(row["text"]),
            }
            for row in nodes
        ],
        "trajectories": [_trajectory(row) for row in trajectories],
    }


def node(database: Database, pieces: Pieces, kind: str, step: int, group_index: int, name: str) -> Row:
    """Return one node with its steps.

    Raises:
        DataError: there is no such node.
    """
    nodes, _ = _rows(database, kind, step, group_index)
    found = next((row for row in nodes if row["node"] == name), None)
    if found is None:
        raise DataError(f"there is no node {name!r} in group {group_index} of {kind} step {step}")
    return _segment(found, found["num_steps"], pieces, None)


def rollout(database: Database, pieces: Pieces, kind: str, step: int, group_index: int, index: int) -> Row:
    """Return one rollout: what is known of it, and each stretch of its path with its steps.

    Raises:
        DataError: there is no such rollout.
    """
    nodes, trajectories = _rows(database, kind, step, group_index)
    row = next((row for row in trajectories if row["index"] == index), None)
    if row is None:
        known = [row["index"] for row in trajectories]
        raise DataError(f"group {group_index} of {kind} step {step} has no rollout {index}; it has {known}")
    segments, place = [], 0
    path = path_of({one["node"]: one for one in nodes}, row["leaf"])
    for number, (one, num) in enumerate(path):
        credit = None
        if number and row["advantages"] is not None:
            credit = row["advantages"][place : place + num]
            place += num
        segments.append(_segment(one, num, pieces, credit))
    return {
        "kind": kind,
        "step": step,
        "group_index": group_index,
        "group": row["group"],
        "task": row["task"],
        "siblings": [{k: one[k] for k in ("index", "reward", "fate", "status")} for one in trajectories],
        **_trajectory(row),
        "segments": segments,
    }


def path_of(nodes: dict[str, Row], leaf: str) -> list[Step]:
    """Return (node, steps of it on the path) from the root to a leaf."""
    path: list[Step] = []
    name: str | None = leaf
    num = nodes[leaf]["num_steps"]
    while name is not None:
        path.append((nodes[name], num))
        num, name = nodes[name]["at"], nodes[name]["parent"]
    return path[::-1]


def _rows(database: Database, kind: str, step: int, group_index: int) -> tuple[list[Row], list[Row]]:
    nodes = database.rows("nodes", kind, step, group_index)
    if not nodes:
        raise DataError(f"there is no group {group_index} of {kind} step {step} in {database.run_dir}")
    return nodes, database.rows("trajectories", kind, step, group_index)


def _trajectory(row: Row) -> Row:
    found = {name: row[name] for name in _TRAJECTORY}
    return {
        **found,
        "rewards": dict(row["rewards"] or ()),
        "extras_non_finite": row["extras_non_finite"] or [],
        "age": _age(row),
    }


def _age(row: Row) -> int | None:
    if row["batch_version"] is None or row["oldest_version"] is None:
        return None
    return int(row["batch_version"] - row["oldest_version"])


def _segment(row: Row, num: int, pieces: Pieces, advantages: Sequence[float] | None) -> Row:
    tokens = list((row["tokens"] or [])[:num])
    texts = pieces.of(tokens)
    is_whole = num == row["num_steps"]
    return {
        **{name: row[name] for name in _NODE},
        "num": num,
        "tokens": tokens,
        "pieces": texts,
        # Where no tokeniser is at hand the run may still have written the text.
        "text": row["text"] if texts is None and is_whole else None,
        "advantages": advantages,
        **{name: _cut(row[name], num) for name in ("logprobs", "entropies", "kept_masses")},
        "top": _top(row["top"], num, pieces),
    }


def _cut(values: Sequence[float] | None, num: int) -> Sequence[float] | None:
    return None if values is None else values[:num]


def _top(top: Sequence[Sequence[Row]] | None, num: int, pieces: Pieces) -> list[list[Row]] | None:
    if top is None:
        return None
    found = []
    for step in top[:num]:
        texts = pieces.of([one["token"] for one in step]) if len(step) < 2 else None
        found.append(
            [
                {
                    "token": one["token"],
                    "logprob": one["logprob"],
                    "piece": (texts or pieces.of([one["token"]]) or [None])[0],
                }
                for one in step
            ]
        )
    return found


def _advantages(nodes: dict[str, Row], trajectories: Sequence[Row]) -> dict[str, float]:
    total: Counter[str] = Counter()
    count: Counter[str] = Counter()
    for row in trajectories:
        if row["advantages"] is None:
            continue
        place = 0
        for one, num in path_of(nodes, row["leaf"])[1:]:
            if one["origin"] == "sampled" and num:
                total[one["node"]] += sum(row["advantages"][place : place + num])
                count[one["node"]] += num
            place += num
    return {name: total[name] / num for name, num in count.items()}


def _mean(values: Sequence[float] | None) -> float | None:
    return sum(values) / len(values) if values else None


def _head(text: str | None, num: int = 160) -> str | None:
    """Return the beginning of a text for a label; what was cut off is marked."""
    return text if text is None or len(text) <= num else f"{text[:num]}…"


def flat(found: Row) -> Iterator[tuple[int, str | None, str]]:
    """Yield (token, piece, origin) of each step of a rollout."""
    for segment in found["segments"]:
        texts = segment["pieces"] or [None] * len(segment["tokens"])
        for token, piece in zip(segment["tokens"], texts, strict=True):
            yield token, piece, segment["origin"]
