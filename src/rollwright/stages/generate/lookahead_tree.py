"""A tree of rollouts: branch where the model hesitates, look ahead, prune what says the same."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from rollwright.errors import ConfigError
from rollwright.stage import AnyAsk, Ask, AskEnv, AskScore, Plan, PlanView, Prune, Want, next_ask
from rollwright.tree import Node, NodeId, Origin, StopReason

Point = tuple[NodeId, int]  # a place in the tree: after so many steps of this node


@dataclass(frozen=True, slots=True)
class LookaheadTree:
    """Grow K = round(share · num) rollouts as a tree and sample the rest plainly.

    The tree starts as one rollout. Every branch samples ``lookahead`` = r tokens at a time. Where
    p₂ > tau_abs and p₁ − p₂ < tau_rel (p₁, p₂: probabilities of the two most likely tokens) a new branch
    takes the likelier of the two that the rollout itself did not take, and looks r tokens ahead. It is
    pruned if d(its r tokens, the r tokens of the rollout it left) / r < tau_ed, d the edit distance.
    Earlier places branch first and there are never more than K branches. When K stand, or none is left
    to grow, the branches go on by plain sampling and plain rollouts fill the group up to ``num``.

    With ``tau_abs=1`` it never branches: plain sampling, token for token.

    Args:
        tau_abs: least probability of the runner-up, in [0, 1].
        tau_rel: largest gap to the most likely token, in [0, 1].
        tau_ed: edit distance per token below which a branch is pruned, in [0, 1].
        lookahead: r, tokens before a new branch is judged, ≥ 1.
        share: share of the group that the tree makes, in [0, 1].

    Edge cases: a branch is kept unjudged if its turn, or that of the rollout it left, ends within the r
    tokens. In a dialogue every turn may branch; a branch is judged within its turn. A branch that fails
    counts towards K and is not replaced. Probabilities are those sampled from (after temperature).
    Source: LATR (2510.24302); docs/methods/latr.md says what differs.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"top", "fork"})
    declares: ClassVar[frozenset[str]] = frozenset({"biased"})

    tau_abs: float = 0.25
    tau_rel: float = 0.15
    tau_ed: float = 0.4
    lookahead: int = 20
    share: float = 1.0

    def __post_init__(self) -> None:
        for name in ("tau_abs", "tau_rel", "tau_ed", "share"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(
                    f"LookaheadTree: {name} = {getattr(self, name)}; expected a number in [0, 1]"
                )
        if self.lookahead < 1:
            raise ConfigError(f"LookaheadTree: lookahead = {self.lookahead}; expected at least 1 token")

    def plan(self, view: PlanView, num: int, rng: np.random.Generator) -> Plan:
        tree = _Tree(self, view, width=round(self.share * num))
        asks: list[AnyAsk] = tree.start()
        num_plain = 0  # plain rollouts to start
        num_live = 0  # plain rollouts under way
        if not asks:
            num_plain = num
        while asks or tree.pending or num_live or num_plain:
            if num_plain:
                asks.append(Ask(view.root, num=num_plain))
                num_live, num_plain = num_live + num_plain, 0
            nodes = yield Want(asks, wait="any")
            asks = []
            for node in nodes:
                if not tree.takes(node):
                    ask = next_ask(view, node)
                    num_live -= not isinstance(ask, (Ask, AskEnv))
                    asks += [ask] if ask is not None else []
            if tree.is_round_complete:
                # Plain rollouts start behind the tree's first round: until then only it asks at the root.
                num_plain = num - tree.width if tree.num_rounds == 0 else 0
                asks += tree.advance()
                if tree.is_grown:
                    num_live += tree.release(asks)
                    num_plain += tree.width - len(tree.standing)


@dataclass(slots=True)
class _Step:
    """A sampled step of a branch's turn: where it lies and what else was likely."""

    token: int
    node: NodeId
    offset: int
    top: tuple[tuple[int, float], ...]


@dataclass(slots=True)
class _Branch:
    """A rollout of the tree. ``run`` is the turn so far, with what it shares with its parent."""

    at: Point
    run: list[_Step] = field(default_factory=list)
    turn: int = 0
    num_seen: int = 0  # steps of the run that were looked at for branching
    leaf: NodeId = ""
    state: Literal["turn", "environment", "done", "lost", "pruned"] = "turn"
    first: int | None = None  # the token it must begin with, until it did
    parent: _Branch | None = None  # the branch it left, until it is judged
    born: int = 0  # where in the run it left


class _Tree:
    """The branches of one group, advanced in rounds: all of them answer before any decision."""

    def __init__(self, stage: LookaheadTree, view: PlanView, width: int) -> None:
        self.stage, self.view, self.width = stage, view, width
        self.branches: list[_Branch] = []
        self.pending: dict[Point, _Branch] = {}
        self.arrived: dict[Point, Node] = {}
        self.num_rounds = 0
        self.is_grown = False

    def start(self) -> list[AnyAsk]:
        if self.width == 0:
            return []
        root = self.view.node(self.view.root)
        self.branches = [_Branch((root.id, root.num_steps))]
        return self._ask()

    @property
    def standing(self) -> list[_Branch]:
        return [branch for branch in self.branches if branch.state != "pruned"]

    @property
    def is_round_complete(self) -> bool:
        return bool(self.pending) and len(self.arrived) == len(self.pending)

    def takes(self, node: Node) -> bool:
        """Take a node that answers an ask of this round; return whether it does.

        An ask that was interrupted comes back as several nodes in a row, so its place is searched upwards.
        """
        for above, num in reversed(self.view.path(node.id)):
            if (above.id, num) in self.pending:
                self.arrived[above.id, num] = node
                return True
        return False

    def advance(self) -> list[AnyAsk]:
        """Take the round's answers, judge, branch, and return the next round's asks."""
        for point, branch in self.pending.items():
            self._absorb(branch, point, self.arrived[point])
        self.pending, self.arrived = {}, {}
        self.num_rounds += 1
        asks: list[AnyAsk] = [
            Prune(branch.leaf, "similar") for branch in self.branches if self._is_similar(branch)
        ]
        self._branch()
        is_full = len(self.standing) >= self.width and not any(b.parent for b in self.standing)
        self.is_grown = is_full or not any(b.state in ("turn", "environment") for b in self.standing)
        return asks if self.is_grown else asks + self._ask()

    def release(self, asks: list[AnyAsk]) -> int:
        """Add the asks with which the standing branches go on plainly; return how many go on."""
        growing = [branch for branch in self.standing if branch.state in ("turn", "environment")]
        for branch in growing:
            if branch.state == "environment":
                asks.append(AskEnv(branch.leaf))
            else:
                asks.append(Ask(branch.leaf, max_tokens=self.view.max_tokens - len(branch.run)))
        asks += self._scores()
        return len(growing)

    # ------------------------------------------------------------ one round

    def _ask(self) -> list[AnyAsk]:
        asks: list[AnyAsk] = self._scores()
        for branch in self.standing:
            if branch.state == "environment":
                asks.append(AskEnv(branch.leaf))
                self.pending[branch.at] = branch
            elif branch.state == "turn":
                node, at = branch.at
                num = min(self.stage.lookahead, self.view.max_tokens - len(branch.run))
                asks.append(Ask(node, at=at, max_tokens=num, first=branch.first, num_top=2, more=True))
                self.pending[branch.at] = branch
        return asks

    def _scores(self) -> list[AnyAsk]:
        done = [branch for branch in self.standing if branch.state == "done" and branch.leaf]
        asks: list[AnyAsk] = [AskScore(branch.leaf) for branch in done]
        for branch in done:
            branch.leaf = ""
        return asks

    def _absorb(self, branch: _Branch, point: Point, node: Node) -> None:
        branch.leaf, branch.at, branch.first = node.id, (node.id, node.num_steps), None
        if node.origin is Origin.SAMPLED:
            branch.run += _steps_after(self.view, point, node)
            if node.stop is StopReason.LENGTH and len(branch.run) < self.view.max_tokens:
                return  # a segment: the turn goes on
        ask = next_ask(self.view, node)
        if isinstance(ask, Ask):
            branch.state, branch.run, branch.num_seen = "turn", [], 0
            branch.turn += 1
        elif isinstance(ask, AskEnv):
            branch.state = "environment"
        else:
            branch.state = "done" if isinstance(ask, AskScore) else "lost"

    def _is_similar(self, branch: _Branch) -> bool:
        """Judge a branch at the end of its lookahead; mark it pruned if it says the same.

        That is one round after it left, so its parent is at most one round further: in the same turn, or
        before the first token of the next one.
        """
        parent, branch.parent = branch.parent, None
        if parent is None or branch.state != "turn":
            return False
        end = branch.born + self.stage.lookahead
        ends_within = parent.state != "turn" and len(parent.run) <= end
        if ends_within or min(len(branch.run), len(parent.run)) < end:
            return False
        own, other = ([step.token for step in b.run[branch.born : end]] for b in (branch, parent))
        if edit_distance(own, other) / self.stage.lookahead >= self.stage.tau_ed:
            return False
        branch.state = "pruned"
        return True

    def _branch(self) -> None:
        room = self.width - len(self.standing)
        places = sorted(
            (branch.turn, i, number)
            for number, branch in enumerate(self.branches)
            if branch.state != "pruned"
            for i in range(branch.num_seen, len(branch.run))
            if self._hesitates(branch.run[i])
        )
        for _, i, number in places[: max(room, 0)]:
            branch = self.branches[number]
            step = branch.run[i]
            other = next(token for token, _ in step.top if token != step.token)
            self.branches.append(
                _Branch(
                    at=(step.node, step.offset),
                    run=branch.run[:i],
                    turn=branch.turn,
                    num_seen=i + 1,
                    first=other,
                    parent=branch,
                    born=i,
                )
            )
        for branch in self.branches:
            branch.num_seen = max(branch.num_seen, len(branch.run))

    def _hesitates(self, step: _Step) -> bool:
        if len(step.top) < 2:
            return False
        p1, p2 = (math.exp(logp) for _, logp in step.top[:2])
        return p2 > self.stage.tau_abs and p1 - p2 < self.stage.tau_rel


def _steps_after(view: PlanView, point: Point, node: Node) -> Iterator[_Step]:
    """Yield the sampled steps between a place and the end of ``node``."""
    path = view.path(node.id)
    behind = next(i for i, (above, num) in enumerate(path) if (above.id, num) == point)
    for part, num in path[behind + 1 :]:
        for offset in range(num):
            top = part.top[offset] if part.top is not None else ()
            yield _Step(part.tokens[offset], part.id, offset, top)


def edit_distance(a: Sequence[int], b: Sequence[int]) -> int:
    """Return the least number of insertions, deletions and substitutions that turn ``a`` into ``b``."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        diagonal, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (x != y))
    return row[len(b)]
