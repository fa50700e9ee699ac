"""What must hold of a group's rows, one generator an invariant: it yields what is wrong.

An invariant that lacks a column raises `Unknown` with what is missing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from rollwright.check.source import RawGroup, Row
from rollwright.errors import RollwrightError

Found = Iterator[tuple[Row, str]]


class Unknown(Exception):
    """The dump does not hold what the question needs."""


@dataclass(slots=True)
class Context:
    """What is known beside the rows, and what has to be remembered between groups.

    Args:
        cuts: whether the sampling kept less than the full vocabulary; None is not known.
        bos, eos: the begin token and the tokens that may end a turn; empty is not known.
        credit: group of rows -> advantages by leaf; None where the method is not known.
        no_credit: why it is not known.
        score: (tokens before, tokens, temperature) -> logprobs under the model given.
        model_version: the version of that model.
    """

    cuts: bool | None = None
    bos: int | None = None
    eos: frozenset[int] = frozenset()
    credit: Callable[[RawGroup], dict[str, tuple[float, ...] | None]] | None = None
    no_credit: str = "the method (a run folder with config.toml)"
    score: Callable[[list[int], list[int], float], list[float]] | None = None
    model_version: int | None = None
    last_version: dict[str, int] = field(default_factory=dict)
    seen: set[tuple[str, int, int]] = field(default_factory=set)


def tree(group: RawGroup, _: Context) -> Found:
    """Every node's parent stands before it in its group, and there is one root, a prompt."""
    if not group.nodes:
        yield group.trajectories[0], "the group has trajectories and no nodes"
        return
    names: dict[str, Row] = {}
    for row in group.nodes:
        if row["node"] in names:
            yield row, f"node {row['node']} stands twice in its group"
        if not names and (row["parent"] is not None or row["origin"] != "prompt"):
            yield row, f"the first node is {row['origin']}, parent {row['parent']}; expected a prompt as root"
        if names and row["parent"] not in names:
            yield row, f"node {row['node']}: its parent {row['parent']} does not stand before it"
        elif row["parent"] is not None and not 0 <= row["at"] <= _length(names[row["parent"]]):
            yield row, f"node {row['node']} leaves its parent at {row['at']}, which has no such step"
        names[row["node"]] = row
    for row in group.trajectories:
        if row["leaf"] not in names:
            yield row, f"leaf {row['leaf']} is no node of the group"


def joins(group: RawGroup, _: Context) -> Found:
    """Runs of tokens join to the prompt that the model saw: positions and lengths add up."""
    nodes = {row["node"]: row for row in group.nodes}
    for row in group.nodes:
        _need(row["tokens"], "token ids")
        if row["num_steps"] != len(row["tokens"]):
            yield row, f"node {row['node']}: {row['num_steps']} steps stated, {len(row['tokens'])} tokens"
        parent = nodes.get(row["parent"])
        start = 0 if parent is None else parent["start"] + row["at"]
        if row["start"] != start:
            yield (
                row,
                f"node {row['node']} begins at {row['start']}; the model saw {start} tokens before it",
            )
    children: dict[str, int] = {}
    for row in group.nodes:
        children[row["parent"]] = max(children.get(row["parent"], 0), row["at"])
    leaves = {row["leaf"] for row in group.trajectories}
    for row in group.nodes:
        read = children.get(row["node"], _length(row))
        if row["origin"] != "sampled" and row["node"] not in leaves and read < _length(row):
            yield row, f"node {row['node']} has {_length(row)} tokens, and the model saw only {read} of them"
    for row, path in _paths(group):
        num = sum(taken for _, taken in path)
        if row["num_prompt"] + row["num_response"] != num or row["num_prompt"] != path[0][1]:
            yield row, f"{row['num_prompt']} + {row['num_response']} steps stated, the path has {num}"


def masks(group: RawGroup, _: Context) -> Found:
    """Only sampled tokens are trained: no policy, logprob or credit stands on another."""
    for row in group.nodes:
        is_sampled = row["origin"] == "sampled"
        if row.get("mask") and any(row["mask"]) and not is_sampled:
            yield row, f"node {row['node']} is {row['origin']} and its mask trains it"
        if not is_sampled and (row["policy"] is not None or row["version"] is not None):
            yield row, f"node {row['node']} is {row['origin']} and names a policy that sampled it"
        if is_sampled and row["policy"] is None and row.get("message") is None and row["tokens"]:
            yield row, f"node {row['node']} is sampled and names no policy"
    for row, path in _paths(group):
        num = sum(taken for node, taken in path if node["origin"] == "sampled")
        if path[-1][0]["tokens"] is not None and row["num_sampled"] != num:
            yield row, f"{row['num_sampled']} sampled tokens stated, the path has {num}"
        credit = row["advantages"]
        if credit is None or path[-1][0]["tokens"] is None:
            continue
        where = [node["origin"] == "sampled" for node, taken in path[1:] for _ in range(taken)]
        if len(credit) != len(where):
            yield row, f"{len(credit)} advantages for {len(where)} response tokens"
        elif any(value != 0 and not ok for value, ok in zip(credit, where, strict=True)):
            place = next(t for t, value in enumerate(credit) if value != 0 and not where[t])
            yield row, f"response token {place} was not sampled and has the advantage {credit[place]}"
    if all(row["tokens"] is None for row in group.nodes):
        raise Unknown("token ids and masks")


def logprobs(group: RawGroup, _: Context) -> Found:
    """One logprob a sampled token, finite and at most 0; none on any other."""
    known = False
    for row in group.nodes:
        values = row["logprobs"]
        if row["origin"] != "sampled":
            if values is not None:
                yield row, f"node {row['node']} is {row['origin']} and has logprobs"
            continue
        if values is None and (row["tokens"] is None or row["version"] is None):
            continue
        known = True
        if values is None or len(values) != row["num_steps"]:
            num = "no" if values is None else len(values)
            yield row, f"node {row['node']}: {num} logprobs for {row['num_steps']} sampled tokens"
        elif not all(v is not None and math.isfinite(v) and v <= 1e-6 for v in values):
            bad = next(v for v in values if v is None or not math.isfinite(v) or v > 1e-6)
            yield row, f"node {row['node']} has the logprob {bad}; expected a finite number of at most 0"
    is_text = all(row["tokens"] is None for row in group.nodes)
    if not known and (is_text or any(row["origin"] == "sampled" for row in group.nodes)):
        raise Unknown("logprobs of the sampled tokens")


def kept_mass(group: RawGroup, context: Context) -> Found:
    """Where the sampling was cut (top-p, top-k, min-p), each token says what mass was kept."""
    for row in group.nodes:
        values = row["kept_masses"]
        if values is None:
            continue
        if row["origin"] != "sampled" or len(values) != row["num_steps"]:
            yield row, f"node {row['node']}: {len(values)} kept masses for {row['num_steps']} steps"
        elif not all(0 < value <= 1 + 1e-6 for value in values):
            yield row, f"node {row['node']} has a kept mass outside (0, 1]"
    if context.cuts is None:
        raise Unknown("how it was sampled (top-p, top-k, min-p)")
    for row in group.nodes if context.cuts else ():
        if row["origin"] == "sampled" and row["kept_masses"] is None and row["version"] is not None:
            yield row, f"node {row['node']} was sampled from a cut distribution and has no kept masses"


def groups(group: RawGroup, context: Context) -> Found:
    """Each group is there once and whole: no sample's number twice, no row of another group."""
    rows = group.trajectories or group.nodes
    if group.key in context.seen:
        yield rows[0], f"group {group.key[2]} of step {group.key[1]} stands twice"
    if len(context.seen) < 1_000_000:  # bounded; files are sorted, so a copy is near
        context.seen.add(group.key)
    names = {(row["group"], row["task"]) for row in (*group.nodes, *group.trajectories)}
    if len(names) > 1:
        yield rows[0], f"rows of several groups stand under one number: {sorted(names)[:3]}"
    numbers: dict[int, Row] = {}
    for row in group.trajectories:
        if row["index"] in numbers and not row["replayed"]:
            yield row, f"two rollouts of the group have the number {row['index']}"
        numbers[row["index"]] = row
    inner = {row["parent"] for row in group.nodes} | {row["leaf"] for row in group.trajectories}
    nodes = {row["node"]: row for row in group.nodes}
    for row in group.nodes:
        if row["node"] in inner or row["fates"] is None:
            continue
        made = [node for node, taken in _path(nodes, row["node"]) if node["origin"] == "sampled" and taken]
        if made and not set(dict(made[-1]["fates"])) & {"pruned", "failed", "stale", "held"}:
            yield row, f"leaf {row['node']} is no rollout of the group and was not given up"


def rewards(group: RawGroup, _: Context) -> Found:
    """One reward a rollout; a failure is not a reward, and what was not scored is null."""
    leaves: set[str] = set()
    for row in group.trajectories:
        if row["leaf"] in leaves:
            yield row, f"rollout {row['leaf']} has two rewards"
        leaves.add(row["leaf"])
        if row["reward"] is not None and not math.isfinite(row["reward"]):
            yield row, f"rollout {row['leaf']} has the reward {row['reward']}"
        if row["status"] in ("not_scored", "grader_error", "failed") and row["reward"] is not None:
            yield row, f"rollout {row['leaf']} is {row['status']} and has the reward {row['reward']}"
        if row["reward"] is None and row["status"] in ("right", "wrong"):
            yield row, f"rollout {row['leaf']} is {row['status']} and has no reward"
    if group.trajectories and all(
        row["reward"] is None and row["status"] == "unknown" for row in group.trajectories
    ):
        raise Unknown("rewards")


def fates(group: RawGroup, _: Context) -> Found:
    """Every sampled token has exactly one fate, and no other token has one."""
    for row in group.nodes:
        if row["fates"] is None:
            raise Unknown("fates of the sampled tokens")
        num, expected = sum(dict(row["fates"]).values()), row["num_steps"]
        if num != (expected if row["origin"] == "sampled" else 0):
            yield row, f"node {row['node']} ({row['origin']}) has {expected} steps and {num} fates"
    for row in group.trajectories:
        if row["fate"] == "trained" and row["advantages"] is None:
            yield row, f"rollout {row['leaf']} was trained and has no advantages"


def advantages(group: RawGroup, context: Context) -> Found:
    """Advantages are what the method's credit gives for the scores."""
    if context.credit is None:
        raise Unknown(context.no_credit)
    if all(row["advantages"] is None for row in group.trajectories):
        return
    try:
        right = context.credit(group)
    except (RollwrightError, KeyError, ValueError, TypeError, IndexError) as error:
        raise Unknown(f"rows that make a tree ({error})") from error
    for row in group.trajectories:
        given, want = row["advantages"], right.get(row["leaf"])
        if given is None or want is None:
            continue
        pairs = zip(given, want, strict=False)
        place = next((t for t, (a, b) in enumerate(pairs) if not math.isclose(a, b, abs_tol=1e-6)), None)
        if place is not None:
            yield row, f"response token {place} has {given[place]:.6g}; its scores give {want[place]:.6g}"


def versions(group: RawGroup, context: Context) -> Found:
    """Versions never go back: along a path, from batch to batch, and none is newer than its batch."""
    known = False
    for row, path in _paths(group):
        found = [
            node["version"] for node, taken in path if node["version"] is not None and _is_on(node, taken)
        ]
        known = known or bool(found)
        if any(a > b for a, b in pairwise(found)):
            yield row, f"rollout {row['leaf']} was sampled by the versions {found}, which go back"
        if (min(found, default=None), max(found, default=None)) != (
            row["oldest_version"],
            row["newest_version"],
        ):
            yield (
                row,
                f"versions {row['oldest_version']} to {row['newest_version']} stated, the path has {found}",
            )
        batch = row["batch_version"]
        if batch is None:
            continue
        if found and max(found) > batch:
            yield row, f"version {max(found)} sampled it, after the version of its batch, {batch}"
        if batch < context.last_version.get(group.key[0], batch):
            yield (
                row,
                f"its batch has version {batch}, a step before had {context.last_version[group.key[0]]}",
            )
        context.last_version[group.key[0]] = batch
    if not known and group.trajectories:
        raise Unknown("the version that sampled each token")


def begin_token(group: RawGroup, context: Context) -> Found:
    """No prompt begins with two begin tokens."""
    if context.bos is None:
        raise Unknown("the begin token (--bos ID)")
    for row in group.nodes:
        tokens = _need(row["tokens"], "token ids")
        if row["parent"] is None and list(tokens[:2]) == [context.bos] * 2:
            yield row, f"node {row['node']} begins with two begin tokens ({context.bos})"


def end_tokens(group: RawGroup, context: Context) -> Found:
    """A turn that ended by an end token holds it, as its last sampled token and nowhere before."""
    if not context.eos:
        raise Unknown("the end tokens (--eos ID,ID)")
    for row in group.nodes:
        tokens = _need(row["tokens"], "token ids")
        if row["origin"] != "sampled" or not tokens:
            continue
        if row["stop"] == "eos" and tokens[-1] not in context.eos:
            yield row, f"node {row['node']} ended by an end token, and its last token is {tokens[-1]}"
        if any(token in context.eos for token in tokens[:-1]):
            yield row, f"node {row['node']} goes on after an end token"
        if row["stop"] == "length" and tokens[-1] in context.eos:
            yield row, f"node {row['node']} was cut by its length, and ends with an end token"


def ends(group: RawGroup, _: Context) -> Found:
    """A rollout ended by itself or was cut, not both; its stop reason is its last node's."""
    nodes = {row["node"]: row for row in group.nodes}
    for row in group.trajectories:
        if row["terminated"] and row["truncated"]:
            yield row, f"rollout {row['leaf']} is both terminated and truncated"
        if row["stop"] in ("length", "context", "turns", "truncated") and row["terminated"]:
            yield row, f"rollout {row['leaf']} stopped by {row['stop']} and is called terminated"
        cut = [n for n, _ in _path(nodes, row["leaf"]) if n["stop"] == "length" and n["origin"] == "sampled"]
        if cut and not row["any_turn_cut"]:
            yield row, f"node {cut[0]['node']} was cut by its length, and the rollout says that no turn was"
    if group.trajectories and all(
        row["stop"] is None and not row["terminated"] for row in group.trajectories
    ):
        raise Unknown("why the rollouts stopped")


def ratio(group: RawGroup, context: Context) -> Found:
    """Under the version that sampled it, each token has the logprob that was recorded."""
    if context.score is None:
        raise Unknown("the model (--model)")
    nodes = {row["node"]: row for row in group.nodes}
    for row in group.nodes:
        if row["origin"] != "sampled" or row["version"] != context.model_version or not row["logprobs"]:
            continue
        before = [t for node, n in _path(nodes, row["parent"], row["at"]) for t in node["tokens"][:n]]
        new = context.score(before, list(row["tokens"]), row["temperature"] or 1.0)
        kept = row["kept_masses"] or [1.0] * len(new)
        for place, (a, b, mass) in enumerate(zip(new, row["logprobs"], kept, strict=False)):
            if abs(a - b - math.log(mass)) > 0.01:
                yield row, f"node {row['node']}, token {place}: ratio {math.exp(a - b - math.log(mass)):.4g}"
                break


Invariant = Callable[[RawGroup, Context], Found]
INVARIANTS: Mapping[str, Invariant] = {
    check.__name__: check
    for check in (
        *(tree, joins, masks, logprobs, kept_mass, groups, rewards, fates, advantages, versions),
        *(begin_token, end_tokens, ends, ratio),
    )
}


def _need(value: Any, what: str) -> Any:
    if value is None:
        raise Unknown(what)
    return value


def _is_on(row: Row, taken: int) -> bool:
    return taken > 0 or row["tokens"] is None


def _length(row: Row) -> int:
    return len(row["tokens"]) if row["tokens"] is not None else row["num_steps"] or 0


def _path(nodes: Mapping[str, Row], leaf: str | None, num: int | None = None) -> list[tuple[Row, int]]:
    """Return (node, steps of it) from the root; what is missing or goes round ends the path."""
    path: list[tuple[Row, int]] = []
    seen: set[str] = set()
    while leaf is not None and leaf in nodes and leaf not in seen:
        seen.add(leaf)
        row = nodes[leaf]
        path.append((row, _length(row) if num is None else num))
        leaf, num = row["parent"], row["at"]
    return path[::-1]


def _paths(group: RawGroup) -> Iterator[tuple[Row, list[tuple[Row, int]]]]:
    nodes = {row["node"]: row for row in group.nodes}
    for row in group.trajectories:
        path = _path(nodes, row["leaf"])
        if path:
            yield row, path
