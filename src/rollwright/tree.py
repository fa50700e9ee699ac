"""The token tree: nodes, trajectories and groups, exactly as they were sampled.

A node is an immutable run of steps with one origin and, if sampled, one policy, one version and one
logprob per step. A group is the tree of one visit to one task; a trajectory is a path from the root
to a leaf. Shared prefixes are stored once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum

import msgspec
import numpy as np
from numpy.typing import NDArray

from rollwright.errors import LawBroken

NodeId = str
GroupId = str
TaskId = str


class Origin(str, Enum):
    """Where a node's steps come from. Only sampled steps can be trained."""

    PROMPT = "prompt"
    SAMPLED = "sampled"
    OBSERVATION = "observation"
    HINT = "hint"


class StopReason(str, Enum):
    """Why a node ended."""

    EOS = "eos"  # the model sampled an end token
    STOP = "stop"  # the model completed a stop string or sampled a stop id: its turn is over
    LENGTH = "length"  # max_tokens reached
    CONTEXT = "context"  # the next step would not fit into the context
    TURNS = "turns"  # the turn limit was reached
    TERMINATED = "terminated"  # the environment says that the episode is over
    TRUNCATED = "truncated"  # the environment cut the episode
    PRUNED = "pruned"  # a control or the plan ended it
    INTERRUPTED = "interrupted"  # carried over: more is to come, under the same stream
    FAILED = "failed"  # engine, environment or worker failed


class Sampling(msgspec.Struct, frozen=True):
    """How tokens are sampled. Temperature 0 is greedy.

    Args:
        temperature: divides the logits, ≥ 0.
        top_p: keep the smallest set of tokens whose mass is at least this, in (0, 1].
        top_k: keep this many tokens; 0 keeps all.
        min_p: keep tokens with at least this share of the largest probability, in [0, 1].
        stop_ids: token ids that end the node, kept as its last step.
        stop_strings: strings that end the node once the decoded text of its steps contains one.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    stop_ids: tuple[int, ...] = ()
    stop_strings: tuple[str, ...] = ()

    @property
    def cuts(self) -> bool:
        """Whether the sampling keeps less than the full vocabulary."""
        return self.top_p < 1 or self.top_k > 0 or self.min_p > 0


class Node(msgspec.Struct, frozen=True):
    """An immutable run of steps with one origin.

    Args:
        id: unique within the run; starts with the group's id.
        parent: the node it continues, or None for the root.
        at: how many steps of the parent's own run come before it (a fork has less than all).
        origin: where the steps come from.
        tokens: the steps, [T].
        stream: the trajectory key that its noise depends on; empty for the root.
        start: position t of its first step, counted from the root's first step.
        policy, version: what sampled it, None unless sampled.
        logprobs: one per step, [T], after temperature and over the kept set; None unless sampled, and of
            steps that another run sampled, where nobody knows them (``version`` is None, too).
        entropies: entropy in nats of the distribution that was sampled from, [T], or None.
        kept_masses: mass of the kept set before it was cut, [T]; None when nothing was cut.
        top: the most likely tokens and their logprobs at each step, where asked for.
        forced: how many leading steps the method chose from the model's distribution, not the noise.
        temperature: what the logits were divided by; None unless sampled.
        stop: why it ended, None while it is live.
        reward: what the environment gave for this step, where it gives rewards by the turn.
    """

    id: NodeId
    parent: NodeId | None
    at: int
    origin: Origin
    tokens: tuple[int, ...]
    stream: str = ""
    start: int = 0
    policy: str | None = None
    version: int | None = None
    logprobs: tuple[float, ...] | None = None
    entropies: tuple[float, ...] | None = None
    kept_masses: tuple[float, ...] | None = None
    top: tuple[tuple[tuple[int, float], ...], ...] | None = None
    forced: int = 0
    temperature: float | None = None
    stop: StopReason | None = None
    reward: float | None = None

    def __post_init__(self) -> None:
        num = len(self.tokens)
        is_sampled, is_foreign = self.origin is Origin.SAMPLED, self.policy and self.version is None
        if (self.logprobs is not None) != is_sampled and not (is_sampled and is_foreign):
            raise LawBroken(f"node {self.id}: logprobs must be there exactly for sampled steps")
        for name in ("logprobs", "entropies", "kept_masses", "top"):
            got = getattr(self, name)
            if got is not None and len(got) != num:
                raise LawBroken(f"node {self.id}: {len(got)} {name} for {num} steps")

    @property
    def num_steps(self) -> int:
        return len(self.tokens)


class Trajectory(msgspec.Struct, frozen=True):
    """A leaf of the tree with what is known of the path to it.

    Args:
        leaf: the last node of the path.
        index: the sample's number in the group, given at creation.
        reward: the grader's raw outcome; None is not scored.
        status: the grader's word, for example ``"right"``, ``"wrong"``, ``"grader_error"``.
        rewards: several rewards kept apart, by name.
        score: the reward after filters shaped it; None is not scored.
        terminated: the environment (or, in one turn, the model's end token) ended it.
        truncated: anything else stopped it: length, context, turn limit.
        any_turn_cut: some turn on the path was cut by its length.
        stop: why the last node ended.
        num_turns: sampled turns on the path.
        replayed: it was sampled in an earlier step or run and comes from a replay pool.
        ratio_to_current: the loss compares its tokens with the policy as it is before the update,
            recomputed by the learner, instead of the policy that sampled them.
        advantages: credit per response step, [R]: every step after the root; 0 where not sampled.
        weight: factor of its loss, for stages that weigh trajectories.
    """

    leaf: NodeId
    index: int
    reward: float | None = None
    status: str = "not_scored"
    rewards: dict[str, float] = {}
    score: float | None = None
    terminated: bool = False
    truncated: bool = False
    any_turn_cut: bool = False
    stop: StopReason | None = None
    num_turns: int = 1
    replayed: bool = False
    ratio_to_current: bool = False
    advantages: tuple[float, ...] | None = None
    weight: float = 1.0


class Group(msgspec.Struct, frozen=True):
    """The tree of one visit to one task, with its finished trajectories in creation order.

    Args:
        id: ``"<task>#<visit>"``.
        task: the task's stable id.
        nodes: every node of the tree, by id; a parent stands before its children.
        trajectories: the leaves, ordered by index.
        baseline: a value that a stage fixed for the group, where it declares so.
    """

    id: GroupId
    task: TaskId
    nodes: dict[NodeId, Node]
    trajectories: tuple[Trajectory, ...] = ()
    baseline: float | None = None

    @property
    def root(self) -> Node:
        return next(iter(self.nodes.values()))

    def path(self, leaf: NodeId) -> list[tuple[Node, int]]:
        """Return (node, number of its steps on the path) from the root to ``leaf``, in order."""
        return path_to(self.nodes, leaf)

    def response(self, trajectory: Trajectory) -> Response:
        """Return the trajectory's steps after the root as flat arrays."""
        return Response.of(self.path(trajectory.leaf))


class Response(msgspec.Struct, frozen=True):
    """The steps of one trajectory after the root, [R] each, as flat arrays.

    ``logp_old`` and ``versions`` hold NaN and -1 where a step was not sampled.
    """

    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    is_sampled: NDArray[np.bool_]
    logp_old: NDArray[np.float64]
    versions: NDArray[np.int64]
    temperatures: NDArray[np.float64]
    turns: NDArray[np.int64]

    @classmethod
    def of(cls, path: Sequence[tuple[Node, int]]) -> Response:
        root, rest = path[0][0], path[1:]
        tokens: list[int] = []
        columns: list[tuple[NDArray[np.float64], int, float, bool, int]] = []
        turn = -1
        previous: Origin | None = None
        for node, num in rest:
            sampled = node.origin is Origin.SAMPLED
            if sampled and previous is not Origin.SAMPLED:
                turn += 1
            previous = node.origin
            tokens.extend(node.tokens[:num])
            logp = np.array(node.logprobs[:num]) if node.logprobs is not None else np.full(num, np.nan)
            version = -1 if node.version is None else node.version
            temperature = 1.0 if node.temperature is None else node.temperature
            columns.append((logp, version, temperature, sampled, turn))
        nums = [num for _, num in rest]

        def spread(k: int, dtype: type) -> NDArray[np.generic]:
            return np.repeat(np.array([c[k] for c in columns], dtype=dtype), nums)

        return cls(
            prompt=root.tokens,
            tokens=tuple(tokens),
            is_sampled=spread(3, np.bool_),  # type: ignore[arg-type]
            logp_old=np.concatenate([c[0] for c in columns]) if columns else np.zeros(0),
            versions=spread(1, np.int64),  # type: ignore[arg-type]
            temperatures=spread(2, np.float64),  # type: ignore[arg-type]
            turns=spread(4, np.int64),  # type: ignore[arg-type]
        )


def path_to(nodes: dict[NodeId, Node], leaf: NodeId) -> list[tuple[Node, int]]:
    """Return (node, number of its steps on the path) from the root to ``leaf``, in order."""
    path: list[tuple[Node, int]] = []
    node: Node | None = nodes[leaf]
    num = nodes[leaf].num_steps
    while node is not None:
        path.append((node, num))
        num = node.at
        node = nodes[node.parent] if node.parent is not None else None
    path.reverse()
    return path


def path_tokens(nodes: dict[NodeId, Node], leaf: NodeId) -> Iterator[int]:
    """Yield the token ids from the root to ``leaf``: what the model sees next."""
    for node, num in path_to(nodes, leaf):
        yield from node.tokens[:num]
