"""What a plan may read of its group, and what is known of a finished path."""

from __future__ import annotations

from rollwright.runner.settings import Settings
from rollwright.runner.state import GroupState
from rollwright.tree import Node, NodeId, Origin, StopReason, Trajectory, path_to


class View:
    """What a plan may read: its own group (`rollwright.stage.PlanView`)."""

    def __init__(self, group: GroupState, settings: Settings) -> None:
        self._state = group
        self.group, self.task, self.root = group.id, group.task, group.root
        self.is_dialogue = settings.is_dialogue
        self.max_tokens, self.max_turns = settings.max_tokens, settings.max_turns

    def node(self, node: NodeId) -> Node:
        return self._state.nodes[node]

    def path(self, leaf: NodeId) -> list[tuple[Node, int]]:
        return path_to(self._state.nodes, leaf)

    def num_turns(self, leaf: NodeId) -> int:
        return count_turns(self._state, leaf)

    def reward(self, leaf: NodeId) -> float | None:
        return self._state.trajectories[leaf].reward


def count_turns(group: GroupState, leaf: NodeId) -> int:
    """Return the number of sampled turns on the path; parts of one turn count once."""
    num, previous = 0, Origin.PROMPT
    for node, _ in path_to(group.nodes, leaf):
        num += node.origin is Origin.SAMPLED and previous is not Origin.SAMPLED
        previous = node.origin
    return num


def describe(group: GroupState, leaf: NodeId) -> Trajectory:
    """Return what is known of a finished path before it is graded: one set of flags per trajectory."""
    path = path_to(group.nodes, leaf)
    last = path[-1][0]
    sampled = [i for i, (node, _) in enumerate(path) if node.origin is Origin.SAMPLED]
    cut = (StopReason.LENGTH, StopReason.CONTEXT)
    any_cut = any(
        path[i][0].stop in cut and not (i + 1 < len(path) and path[i + 1][0].origin is Origin.SAMPLED)
        for i in sampled
    )
    ended = (StopReason.EOS, StopReason.STOP, StopReason.TERMINATED)
    terminated = last.stop in ended
    return Trajectory(
        leaf=leaf,
        index=list(group.streams).index(last.stream),
        terminated=terminated,
        truncated=not terminated,
        any_turn_cut=any_cut,
        stop=last.stop,
        num_turns=count_turns(group, leaf),
    )
