"""Rollouts of other frameworks as a dump of ours in JSON lines; what is not known stays null."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rollwright.check.source import DUMP_FORMAT, DUMP_VERSION
from rollwright.errors import ConfigError
from rollwright.store.strict import dumps

Row = dict[str, Any]


@dataclass(slots=True)
class Part:
    """A stretch of a rollout with one origin.

    Args:
        origin: prompt, sampled, observation or hint.
        tokens, logprobs, advantages: [T] each; None is not known.
        text, message: what stands there; a chat message is kept as it was given.
        version: version that sampled it.
        mask: what the dump's loss mask says of its tokens, where it says it apart from the origin.
        key: parts of one group with the same key are the same node; empty is a node of its own.
    """

    origin: str
    tokens: Sequence[int] | None = None
    logprobs: Sequence[float | None] | None = None
    advantages: Sequence[float] | None = None
    text: str | None = None
    message: Any = None
    version: int | None = None
    mask: Sequence[bool] | None = None
    key: str = ""


@dataclass(slots=True)
class Rollout:
    """One rollout of a foreign dump.

    Args:
        group: what makes rollouts one group.
        parts: the path, prompt first.
        reward: None is not scored; then ``status`` says why. ``"unknown"``: the format has no rewards.
        extras: everything else that the row held.
    """

    group: str
    parts: list[Part]
    reward: float | None = None
    status: str = "scored"
    rewards: dict[str, float | None] = field(default_factory=dict)
    step: int = 0
    kind: str = "train"
    stop: str | None = None
    terminated: bool = False
    truncated: bool = False
    extras: Row = field(default_factory=dict)


@dataclass(slots=True)
class Notes:
    """What happened on the way in, by kind of note."""

    counts: Counter[str] = field(default_factory=Counter)

    def add(self, note: str, num: int = 1) -> None:
        self.counts[note] += num


def write_dump(out: Path, name: str, lacks: dict[str, str], rollouts: Iterable[Rollout]) -> tuple[int, int]:
    """Write a dump and return (groups, rollouts).

    Raises:
        ConfigError: the file is there already, or cannot be written.
    """
    kept: dict[tuple[str, int, str], list[Rollout]] = {}
    for rollout in rollouts:
        kept.setdefault((rollout.kind, rollout.step, rollout.group), []).append(rollout)
    header = {"format": DUMP_FORMAT, "version": DUMP_VERSION, "from": name, "lacks": lacks}
    places: Counter[tuple[str, int]] = Counter()
    try:
        with out.open("x", encoding="utf-8") as file:
            file.write(dumps(header)[0] + "\n")
            for (kind, step, group), members in sorted(kept.items(), key=lambda item: item[0][:2]):
                row = {"kind": kind, "step": step, "group_index": places[kind, step], "group": f"{group}#0"}
                places[kind, step] += 1
                file.write(dumps(row | {"task": group} | _rows(group, name, members))[0] + "\n")
    except FileExistsError as error:
        raise ConfigError(f"{out} is there already; it is left as it is, give another name") from error
    except OSError as error:
        raise ConfigError(f"{out} cannot be written: {error.strerror}") from error
    return len(kept), sum(map(len, kept.values()))


def _rows(group: str, name: str, members: list[Rollout]) -> dict[str, list[Row]]:
    first = members[0].parts[0]
    shared = all(_same(first, one.parts[0]) for one in members)
    root = first if shared else Part("prompt", tokens=None if first.tokens is None else (), text="")
    nodes = {"": _node(f"{group}#0/root", None, 0, root, name)}
    leaves = []
    for index, one in enumerate(members):
        parent, path = nodes[""], [(root, nodes[""])]
        for place, part in enumerate(one.parts[1:] if shared else one.parts):
            key = part.key or f"{index}.{place}"
            if key not in nodes:
                nodes[key] = _node(f"{group}#0/{key}", parent, len(nodes), part, name)
            parent = nodes[key]
            path.append((part, parent))
        leaves.append(_leaf(one, index, path))
    return {"nodes": list(nodes.values()), "trajectories": leaves}


def _same(a: Part, b: Part) -> bool:
    return (a.origin, a.text, a.message, a.version) == (b.origin, b.text, b.message, b.version) and (
        a.tokens == b.tokens if a.tokens is None or b.tokens is None else list(a.tokens) == list(b.tokens)
    )


def _node(node: str, parent: Row | None, place: int, part: Part, name: str) -> Row:
    num = None if part.tokens is None else len(part.tokens)
    at = 0 if parent is None else parent["num_steps"] or 0
    return {
        "node": node,
        "place": place,
        "parent": None if parent is None else parent["node"],
        "at": at,
        "origin": part.origin,
        "stream": "",
        "start": 0 if parent is None else parent["start"] + at,
        "num_steps": num,
        "tokens": part.tokens,
        "policy": name if part.origin == "sampled" else None,
        "version": part.version,
        "logprobs": part.logprobs,
        **dict.fromkeys(("entropies", "kept_masses", "top", "temperature", "stop", "reward", "fates")),
        "forced": 0,
        "replayed": False,
        "text": part.text,
        "message": part.message,
        "mask": part.mask,
    }


def _leaf(one: Rollout, index: int, path: list[tuple[Part, Row]]) -> Row:
    rest = path[1:]
    known = all(part.tokens is not None for part, _ in path)
    versions = [part.version for part, _ in path if part.version is not None]
    credit = None
    if known and any(part.advantages is not None for part, _ in rest):
        credit = [v for part, _ in rest for v in part.advantages or [0.0] * len(part.tokens or ())]
    sampled = [len(part.tokens or ()) for part, _ in rest if part.origin == "sampled"]
    return {
        "leaf": path[-1][1]["node"],
        "index": index,
        "fate": None,
        "reason": "",
        "reward": one.reward,
        "status": one.status,
        "rewards": one.rewards,
        "score": one.reward,
        "terminated": one.terminated,
        "truncated": one.truncated,
        "any_turn_cut": one.stop == "length",
        "stop": one.stop,
        "num_turns": sum(part.origin == "sampled" for part, _ in rest),
        "replayed": False,
        "advantages": credit,
        "weight": 1.0,
        "baseline": None,
        "num_prompt": len(path[0][0].tokens or ()) if known else None,
        "num_response": sum(len(part.tokens or ()) for part, _ in rest) if known else None,
        "num_sampled": sum(sampled) if known else None,
        "oldest_version": min(versions, default=None),
        "newest_version": max(versions, default=None),
        "batch_version": None,
        "extras": one.extras,
    }


def by_mask(
    tokens: Sequence[int],
    mask: Sequence[Any],
    logprobs: Sequence[float | None] | None = None,
    advantages: Sequence[float] | None = None,
    version: int | None = None,
) -> list[Part]:
    """Cut tokens where the mask changes: the prompt, then sampled and observed stretches.

    Args:
        tokens, mask: [T] each.
        logprobs, advantages: [T], or None.
    """
    parts: list[Part] = []
    start = 0
    for t in range(1, len(tokens) + 1):
        if t < len(tokens) and bool(mask[t]) == bool(mask[start]):
            continue
        on = bool(mask[start])
        origin = "sampled" if on else "observation" if parts else "prompt"
        if on and not parts:
            parts.append(Part("prompt", ()))
        piece = slice(start, t)
        credit = None if advantages is None else list(advantages[piece]) if on else [0.0] * (t - start)
        parts.append(
            Part(
                origin,
                list(tokens[piece]),
                list(logprobs[piece]) if on and logprobs is not None else None,
                credit if parts else None,
                version=version if on else None,
            )
        )
        start = t
    return parts or [Part("prompt", ())]
