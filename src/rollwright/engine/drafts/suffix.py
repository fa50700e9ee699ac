"""Drafts from the trajectories of the same prompt: the longest suffix seen before tells what came next.

Source: SuffixDecoding, as WAR (catalogue 270) and Seer (51) use it: a tree over finished and current
trajectories of a group and of earlier epochs; what came most often after the longest matching suffix is
proposed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from rollwright.engine.drafts.api import NO_TOKENS, Tokens
from rollwright.engine.drafts.family import Families
from rollwright.engine.drafts.race import Noise
from rollwright.events import Submit


class Node:
    """A run of tokens that was seen, and how often each token followed it."""

    __slots__ = ("children", "count")

    def __init__(self) -> None:
        self.children: dict[int, Node] = {}
        self.count = 0


class SuffixTree:
    """Every run of at most ``depth`` + 1 tokens of the sequences that were added, with counts.

    Args:
        depth: the longest suffix that is matched.
    """

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.clear()

    def clear(self) -> None:
        """Begin anew. Sequences that are being added end in what was."""
        self.root, self.num_nodes = Node(), 0

    def add(self, open_nodes: list[Node], token: int) -> list[Node]:
        """Add a token to a sequence, given the nodes of its suffixes; return those of the longer one.

        A new sequence begins with ``[tree.root]``.
        """
        grown = [self.root]
        for node in open_nodes:
            child = node.children.get(token)
            if child is None:
                child = node.children[token] = Node()
                self.num_nodes += 1
            child.count += 1
            grown.append(child)
        return grown[: self.depth + 1]

    def match(self, suffixes: Sequence[Node]) -> Node | None:
        """Return the longest of a sequence's suffixes, shortest first, that something followed."""
        for node in reversed(suffixes[1:]):
            if node.children:
                return node
        return None

    def continuation(self, node: Node, most: int, least: float, noise: Callable[[int], Noise]) -> list[int]:
        """Return the way on from a node that the noise would take if the counts were the probabilities.

        It ends where the chance that all of it was seen before falls below ``least``, or where the tree
        does. That chance is a product over places of 1 - n₁ / (n + 1) (Good and Turing), with n sightings
        there, n₁ of them of tokens seen once.

        Args:
            noise: of the k-th token of the way.
        """
        tokens, seen = list[int](), 1.0
        while len(tokens) < most and node.children:
            counts = [(token, child.count) for token, child in node.children.items()]
            once = sum(count == 1 for _, count in counts)
            seen *= 1 - once / (1 + sum(count for _, count in counts))
            if seen < least:
                break
            token = noise(len(tokens)).winner(counts) if len(counts) > 1 else counts[0][0]
            tokens.append(token)
            node = node.children[token]
        return tokens

    def likeliest(self, node: Node, most: int, least: float) -> list[int]:
        """Return the way on from a node that takes what came most often, while its share is large enough."""
        tokens, share = list[int](), 1.0
        while len(tokens) < most and node.children:
            token, child = max(node.children.items(), key=lambda item: (item[1].count, -item[0]))
            share *= child.count / sum(other.count for other in node.children.values())
            if share < least:
                break
            tokens.append(token)
            node = child
        return tokens


@dataclass(slots=True)
class _Open:
    """A sequence in flight, and the nodes of its suffixes."""

    command: Submit
    tree: SuffixTree
    nodes: list[Node] = field(default_factory=list)
    made: int = 0


class SuffixDrafter:
    """Proposes what followed the longest suffix seen before, over the group and earlier epochs.

    Args:
        depth: tokens of the longest suffix that is matched.
        least: the least chance of a proposed way: that it was seen before; where sampling is greedy, its
            share.
        most_prompts: prompts to remember.
        most_nodes: of all trees, at most ``depth`` + 1 a token and some 200 bytes each; beyond it an ask that
            begins makes the least recently used prompts forgotten; one prompt's tree beyond it begins anew.
    """

    name = "suffix"

    def __init__(
        self, depth: int = 12, least: float = 0.2, most_prompts: int = 4096, most_nodes: int = 4_000_000
    ) -> None:
        self.depth, self.least, self.most_nodes = depth, least, most_nodes
        self._families = Families(lambda: SuffixTree(depth), most_prompts)
        self._ask_to_open: dict[str, _Open] = {}

    @property
    def num_nodes(self) -> int:
        """Nodes of all trees that are kept."""
        return sum(tree.num_nodes for tree in self._families)

    def begin(self, command: Submit, prefix: Tokens) -> None:
        while self.num_nodes > self.most_nodes:
            self._families.forget()
        tree = self._families.of(command.group, prefix)
        opened = self._ask_to_open[command.ask] = _Open(command, tree, [tree.root])
        self._grow(opened, prefix[-self.depth :])

    def extend(self, ask: str, tokens: Tokens) -> None:
        opened = self._ask_to_open[ask]
        opened.made += tokens.size
        self._grow(opened, tokens)

    def propose(self, asks: Sequence[str], most: Sequence[int]) -> list[Tokens]:
        return [self._propose(self._ask_to_open[ask], n) for ask, n in zip(asks, most, strict=True)]

    def end(self, ask: str) -> None:
        self._ask_to_open.pop(ask, None)

    def _propose(self, opened: _Open, most: int) -> Tokens:
        node = opened.tree.match(opened.nodes) if most > 0 else None
        if node is None:
            return NO_TOKENS
        command, t = opened.command, opened.command.start + opened.made
        if command.sampling.temperature == 0:
            return np.array(opened.tree.likeliest(node, most, self.least), np.int64)
        found = opened.tree.continuation(node, most, self.least, lambda k: Noise(command.stream, t + k))
        return np.array(found, np.int64)

    def _grow(self, opened: _Open, tokens: Tokens) -> None:
        for token in tokens.tolist():
            opened.nodes = opened.tree.add(opened.nodes, token)
        if opened.tree.num_nodes > self.most_nodes:
            opened.tree.clear()
            opened.nodes = [opened.tree.root]
