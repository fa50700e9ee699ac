"""Rollouts as text, for runs whose tokenisers and policies may differ, and back into tokens.

What travels is what was said and what the grader said of it: no ids, no logprobs. The receiver encodes every
turn with its own tokeniser. The nodes that it makes of them are marked as another run's: their ``policy`` is
``"swarm/<node>"``, they have no version, and no logprobs, for nobody knows what its own policy would have
given them; the learner computes them before the update (`Trajectory.ratio_to_current`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import msgspec

from rollwright.runner.answers import MAX_REWARD
from rollwright.tree import Group, Node, Origin, StopReason, TaskId, Trajectory

FOREIGN = "swarm/"  # begins the policy of nodes that another run sampled


class Turn(msgspec.Struct, frozen=True):
    """What was said: sampled, an observation or a hint. ``is_ended``: the model ended it itself."""

    origin: Origin
    text: str
    is_ended: bool = False


class Rollout(msgspec.Struct, frozen=True):
    """One graded rollout."""

    turns: tuple[Turn, ...]
    reward: float
    status: str
    terminated: bool
    truncated: bool


class SharedGroup(msgspec.Struct, frozen=True):
    """The graded rollouts of one visit to one task; ``prompt`` is the task's own text."""

    id: str
    task: TaskId
    prompt: str
    rollouts: tuple[Rollout, ...]


class Parcel(msgspec.Struct, frozen=True):
    """What a node shares after one step."""

    node: str
    step: int
    groups: tuple[SharedGroup, ...]
    format: int = 1


@dataclass(frozen=True)
class Speech:
    """How one run turns text into tokens and back.

    Args:
        encode: text to ids, without special tokens.
        decode: ids of a turn to text, its end token left out.
        prompt: a prompt's text to the ids of a root.
        eos_ids: tokens that end a turn; the first is put after a turn that the model ended.
        context: steps that a whole path may have.
        temperature: at which foreign steps are trained.
    """

    encode: Callable[[str], Sequence[int]]
    decode: Callable[[Sequence[int]], str]
    prompt: Callable[[str], Sequence[int]]
    eos_ids: tuple[int, ...]
    context: int
    temperature: float = 1.0

    # ------------------------------------------------------------ out

    def told(self, group: Group, prompt: str) -> SharedGroup | None:
        """Return a group's own graded rollouts as text; None without any."""
        own = [t for t in group.trajectories if not t.replayed and t.reward is not None]
        rollouts = tuple(self._rollout(group, t) for t in own)
        return SharedGroup(group.id, group.task, prompt, rollouts) if rollouts else None

    def _rollout(self, group: Group, t: Trajectory) -> Rollout:
        turns: list[tuple[Origin, list[int]]] = []
        for node, num in group.path(t.leaf)[1:]:
            if turns and turns[-1][0] is node.origin:
                turns[-1][1].extend(node.tokens[:num])  # parts of one turn
            elif num:
                turns.append((node.origin, list(node.tokens[:num])))
        assert t.reward is not None
        return Rollout(
            tuple(self._turn(*turn) for turn in turns), t.reward, t.status, t.terminated, t.truncated
        )

    def _turn(self, origin: Origin, ids: Sequence[int]) -> Turn:
        is_ended = origin is Origin.SAMPLED and ids[-1] in self.eos_ids
        return Turn(origin, self.decode(ids), is_ended)

    # ------------------------------------------------------------ in

    def heard(self, parcel: Parcel) -> tuple[list[Group], dict[str, int]]:
        """Return a parcel's groups in this run's tokens, and how many rollouts were left out, by reason.

        Left out are rollouts that do not fit into the context, that say nothing, whose reward is no number,
        and groups of which nothing is left.
        """
        refused: Counter[str] = Counter()
        groups = [self._group(parcel.node, shared, refused) for shared in parcel.groups]
        return [group for group in groups if group.trajectories], dict(refused)

    def _group(self, node: str, shared: SharedGroup, refused: Counter[str]) -> Group:
        name = f"{node}!{shared.id}"
        root = Node(f"{name}/root", None, 0, Origin.PROMPT, tuple(self.prompt(shared.prompt)))
        nodes, trajectories = {root.id: root}, []
        for rollout in shared.rollouts:
            if not (math.isfinite(rollout.reward) and abs(rollout.reward) <= MAX_REWARD):
                refused["no_reward"] += 1
                continue
            path = self._path(node, name, len(trajectories), root, rollout)
            num_sampled = sum(one.num_steps for one in path if one.origin is Origin.SAMPLED)
            if not num_sampled or not root.num_steps:
                refused["empty"] += 1
            elif root.num_steps + sum(one.num_steps for one in path) > self.context:
                refused["too_long"] += 1
            else:
                nodes.update({one.id: one for one in path})
                trajectories.append(_trajectory(path, len(trajectories), rollout))
        return Group(name, shared.task, nodes, tuple(trajectories))

    def _path(self, node: str, name: str, index: int, root: Node, rollout: Rollout) -> list[Node]:
        path: list[Node] = []
        parent, start = root, root.num_steps
        for turn in rollout.turns:
            ids = tuple(self.encode(turn.text))
            is_sampled = turn.origin is Origin.SAMPLED
            if turn.is_ended and is_sampled and self.eos_ids:
                ids = (*ids, self.eos_ids[0])
            parent = Node(
                id=f"{name}/{index}.{len(path)}",
                parent=parent.id,
                at=parent.num_steps,
                origin=turn.origin,
                tokens=ids,
                stream=f"{node}/{index}",
                start=start,
                policy=f"{FOREIGN}{node}" if is_sampled else None,
                temperature=self.temperature if is_sampled else None,
                stop=StopReason.EOS if turn.is_ended else None,
            )
            path.append(parent)
            start += parent.num_steps
        return path


def _trajectory(path: Sequence[Node], index: int, rollout: Rollout) -> Trajectory:
    return Trajectory(
        leaf=path[-1].id,
        index=index,
        reward=rollout.reward,
        status=rollout.status,
        score=rollout.reward,
        terminated=rollout.terminated,
        truncated=rollout.truncated,
        stop=path[-1].stop,
        num_turns=sum(turn.origin is Origin.SAMPLED for turn in rollout.turns),
        replayed=True,
        ratio_to_current=True,
    )


def sources(group: Group) -> Iterable[str]:
    """Return the other runs that sampled steps of a group."""
    found = {node.policy for node in group.nodes.values() if node.policy and node.policy.startswith(FOREIGN)}
    return sorted(policy.removeprefix(FOREIGN) for policy in found)
