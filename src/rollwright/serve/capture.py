"""Rollouts by URL: what any client's model calls sampled, as trees of tokens.

A call whose prompt goes on from an earlier call's prompt and answer joins its tree: the new ids are an
observation, the answer hangs below it. A call with the same prompt as an earlier one is a second answer
to it. Any other call begins a tree of its own, with the place where it left the nearest earlier one: what
a client rewrote was never in the context of what was sampled before, so it is no part of that trajectory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from rollwright.events import Sampled
from rollwright.tree import Group, GroupId, Node, NodeId, Origin, Sampling, StopReason, Trajectory, path_to

Ids = NDArray[np.int32]
_CUT = (StopReason.LENGTH, StopReason.CONTEXT, StopReason.INTERRUPTED)


@dataclass(slots=True)
class Answered:
    """One sampled answer to a call."""

    call: int
    choice: int
    group: int
    nodes: list[NodeId]
    ids: Ids  # the whole path, the answer included
    stop: StopReason | None


@dataclass(slots=True)
class Call:
    """One model call of a rollout, in the order in which they came.

    Args:
        number: counted from 0.
        asked: what the client sent: ``protocol`` and ``messages`` or ``prompt``.
        prompt: the ids that the model saw.
        sampling: how it sampled.
        rewrite: why its text does not go on from what was said before, if so.
    """

    number: int
    asked: Mapping[str, Any]
    prompt: Ids
    sampling: Sampling
    num_choices: int
    rewrite: str | None = None
    events: dict[int, list[Sampled]] = field(default_factory=dict)
    answers: dict[int, Answered] = field(default_factory=dict)
    group: int = 0
    parent: NodeId = ""
    goes_on: int | None = None  # the call that it goes on from
    left: dict[str, int] | None = None  # where it left the nearest earlier call

    def to_json(self) -> dict[str, Any]:
        return {
            "call": self.number,
            **self.asked,
            "sampling": self.sampling,
            "num_prompt": len(self.prompt),
            "group": self.group,
            "goes_on_from": self.goes_on,
            "left": self.left,
            "rewrite": self.rewrite,
            "answers": [
                {
                    "choice": choice,
                    "nodes": answer.nodes,
                    "stop": None if answer.stop is None else answer.stop.value,
                }
                for choice, answer in sorted(self.answers.items())
            ],
            "num_open": self.num_choices - len(self.answers),
        }


class Rollout:
    """Everything that one rollout's client had sampled.

    Args:
        id: the rollout's name in the URL.
        task: what to call its task in the groups.
    """

    def __init__(self, id: str, task: str | None = None) -> None:
        self.id, self.task = id, task or id
        self.calls: list[Call] = []
        self.groups: list[dict[NodeId, Node]] = []
        self._answered: list[Answered] = []

    def begin(
        self,
        asked: Mapping[str, Any],
        prompt: Sequence[int],
        sampling: Sampling,
        num_choices: int = 1,
        rewrite: str | None = None,
    ) -> Call:
        """Note a call that is about to be sampled; give its events to `take`."""
        ids = np.asarray(prompt, np.int32)
        call = Call(len(self.calls), asked, ids, sampling, num_choices, rewrite)
        self._place(call)
        self.calls.append(call)
        return call

    def take(self, call: Call, choice: int, event: Sampled) -> None:
        """Take what was sampled for a choice; its end puts it into the tree."""
        events = call.events.setdefault(choice, [])
        events.append(event)
        if event.stop is not None:
            del call.events[choice]
            self._grow(call, choice, events)

    def _grow(self, call: Call, choice: int, events: Sequence[Sampled]) -> None:
        parent, group = call.parent, self.groups[call.group]
        names: list[NodeId] = []
        for part, node in enumerate(_nodes(events, call.sampling)):
            name = f"{self._name(call.group)}/{call.number}.{choice}" + (f".{part}" if part else "")
            before = group[parent]
            group[name] = msgspec.structs.replace(
                node,
                id=name,
                parent=before.id,
                at=before.num_steps,
                stream=f"{call.number}/{choice}",
                start=before.start + before.num_steps,
            )
            parent = name
            names.append(name)
        tokens = [token for event in events for token in event.tokens]
        ids = np.concatenate([call.prompt, np.asarray(tokens, np.int32)])
        answered = Answered(call.number, choice, call.group, names, ids, events[-1].stop)
        call.answers[choice] = answered
        self._answered.append(answered)

    def _place(self, call: Call) -> None:
        """Find where a call hangs: beside its like, below the answer it goes on from, or on its own.

        What it goes on from had ended before it was asked, so its place does not depend on what ends first.
        """
        like = next((c for c in self.calls if np.array_equal(c.prompt, call.prompt)), None)
        before = max(
            (a for a in self._answered if a.nodes and _is_prefix(a.ids, call.prompt)),
            key=lambda a: (len(a.ids), a.call),
            default=None,
        )
        if like is not None:
            call.group, call.parent, call.goes_on = like.group, like.parent, like.goes_on
        elif before is not None:
            call.group, call.goes_on = before.group, before.call
            call.parent = self._observe(call, before)
        else:
            call.group, call.left = len(self.groups), self._nearest(call)
            call.parent = f"{self._name(call.group)}/root"
            root = Node(call.parent, None, 0, Origin.PROMPT, tuple(call.prompt.tolist()))
            self.groups.append({root.id: root})

    def _observe(self, call: Call, before: Answered) -> NodeId:
        """Put the ids that are new in a prompt below the answer that it goes on from."""
        group = self.groups[before.group]
        parent, new = group[before.nodes[-1]], call.prompt[len(before.ids) :]
        if not new.size:
            return parent.id
        name = f"{self._name(before.group)}/{call.number}.new"
        tokens, start = tuple(new.tolist()), parent.start + parent.num_steps
        group[name] = Node(
            name, parent.id, parent.num_steps, Origin.OBSERVATION, tokens, str(call.number), start
        )
        return name

    def _nearest(self, call: Call) -> dict[str, int] | None:
        """Return the earlier call that this one agrees with the longest, and the first id that differs."""
        found = [(_num_shared(a.ids, call.prompt), a.call) for a in self._answered]
        shared, number = max(found, default=(0, -1))
        return {"call": number, "at": shared} if number >= 0 else None

    def _name(self, group: int) -> GroupId:
        return f"{self.task}#{group}"

    def to_groups(self) -> list[Group]:
        """Return the trees; every sampled leaf is the end of a trajectory that nobody has scored."""
        return [self._group(number) for number in range(len(self.groups))]

    def _group(self, number: int) -> Group:
        nodes = self.groups[number]
        parents = {node.parent for node in nodes.values()}
        leaves = [a for a in self._answered if a.group == number and a.nodes and a.nodes[-1] not in parents]
        leaves.sort(key=lambda a: (a.call, a.choice))
        trajectories = tuple(self._trajectory(nodes, answer, i) for i, answer in enumerate(leaves))
        return Group(self._name(number), self.task, dict(nodes), trajectories)

    def _trajectory(self, nodes: dict[NodeId, Node], answer: Answered, index: int) -> Trajectory:
        turns, any_cut, leaf = 0, False, answer.nodes[-1]
        previous = Origin.PROMPT
        for node, _ in path_to(nodes, leaf):
            turns += node.origin is Origin.SAMPLED and previous is not Origin.SAMPLED
            any_cut |= node.stop in _CUT
            previous = node.origin
        return Trajectory(
            leaf=leaf,
            index=index,
            truncated=answer.stop in _CUT,
            any_turn_cut=any_cut,
            stop=answer.stop,
            num_turns=turns,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the record as values that msgspec writes as JSON (docs/serve.md says what is what)."""
        return {
            "id": self.id,
            "calls": [call.to_json() for call in self.calls],
            "groups": self.to_groups(),
        }


def read_groups(record: Mapping[str, Any]) -> list[Group]:
    """Return the groups of a record that came as JSON, exactly as they were."""
    return msgspec.convert(record["groups"], list[Group])


def _nodes(events: Sequence[Sampled], sampling: Sampling) -> list[Node]:
    """Return a node for each run of tokens of one version, without names and places."""
    runs: list[list[Sampled]] = []
    for event in events:
        if not event.tokens:
            continue
        if runs and runs[-1][-1].version == event.version:
            runs[-1].append(event)
        else:
            runs.append([event])
    nodes = [
        Node(
            id="",
            parent=None,
            at=0,
            origin=Origin.SAMPLED,
            tokens=_flat(run, "tokens") or (),
            policy=run[0].policy,
            version=run[0].version,
            logprobs=_flat(run, "logprobs"),
            entropies=_flat(run, "entropies"),
            kept_masses=_flat(run, "kept_masses"),
            top=_flat(run, "top"),
            temperature=sampling.temperature,
            stop=StopReason.INTERRUPTED,
        )
        for run in runs
    ]
    if nodes:
        nodes[-1] = msgspec.structs.replace(nodes[-1], stop=events[-1].stop)
    return nodes


def _flat(events: Sequence[Sampled], name: str) -> tuple[Any, ...] | None:
    parts = [getattr(event, name) for event in events]
    return None if any(part is None for part in parts) else tuple(value for part in parts for value in part)


def _is_prefix(ids: Ids, of: Ids) -> bool:
    return len(ids) <= len(of) and bool(np.array_equal(ids, of[: len(ids)]))


def _num_shared(one: Ids, other: Ids) -> int:
    num = min(len(one), len(other))
    differs = np.flatnonzero(one[:num] != other[:num])
    return int(differs[0]) if differs.size else num
