"""The prefix cache: a radix tree over token ids whose edges hold the keys of their tokens."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

import numpy as np
from numpy.typing import NDArray

from rollwright.engine.schedule.pages import CACHED, LIVE, PagePool, Pages, cut, num_common

Tokens = NDArray[np.int64]


@dataclass(slots=True, eq=False)
class Node:
    """One edge of the tree and the point at its end.

    Args:
        tokens: the edge's token ids, at least one.
        lead: places of the first page that come before the edge: they hold the ``lead`` tokens before it.
        pages: the pages of its runs, each held once by this node.
        counts: places seen of each; ``counts.sum() == lead + tokens.size``.
        parent: None once the node is dropped.
        groups: who put these tokens in; a child's groups are among its parent's.
        tick: when it was last used.
    """

    tokens: Tokens
    lead: int
    pages: Pages
    counts: Pages
    parent: Node | None
    groups: set[str] = field(default_factory=set)
    children: dict[int, Node] = field(default_factory=dict)
    tick: int = 0


class PrefixTree:
    """Cached keys by tokens. Every node holds one reference on each of its pages."""

    def __init__(self, pool: PagePool) -> None:
        self.pool = pool
        self._tick = 0
        self._serial = count()
        self._forget()

    def _forget(self) -> None:
        none = np.zeros(0, np.int32)
        self.root = Node(np.zeros(0, np.int64), 0, none, none, None)
        self.num_nodes = 0
        self._group_to_nodes: dict[str, dict[Node, None]] = {}
        self._leaves: list[tuple[int, int, Node]] = []  # by tick; entries may be out of date

    def __iter__(self) -> Iterator[Node]:
        """Yield every node below the root, parents first."""
        queue = list(self.root.children.values())
        while queue:
            node = queue.pop()
            yield node
            queue.extend(node.children.values())

    def match(self, tokens: Tokens) -> tuple[int, Pages, Pages]:
        """Return the length of the longest cached prefix of ``tokens`` and its runs (pages, counts).

        The caller shares the pages before anything else is done with the tree.
        """
        path, depth = self._walk(tokens)
        end, pages, counts = depth, list[Pages](), list[Pages]()
        for node, start in reversed(path):
            if start >= end:  # what lies further down the path brought the keys of this edge too
                continue
            first = start - node.lead
            some_pages, some_counts = cut(node.pages, node.counts, end - first)
            pages.append(some_pages)
            counts.append(some_counts)
            end = first
        assert end == 0
        none = self.root.pages
        return depth, np.concatenate([none, *reversed(pages)]), np.concatenate([none, *reversed(counts)])

    def insert(self, tokens: Tokens, pages: Pages, counts: Pages, group: str) -> None:
        """Add what is not known yet of the keys of ``tokens``; what is known keeps its older pages."""
        assert int(counts.sum()) == tokens.size
        path, depth = self._walk(tokens)
        node = path[-1][0] if path else self.root
        if path and depth - path[-1][1] < node.tokens.size:
            node = self._split(node, depth - path[-1][1])
            path[-1] = node, path[-1][1]
        if depth < tokens.size:
            ends = counts.cumsum()
            first = int(ends.searchsorted(depth, side="right"))
            lead = depth - int(ends[first] - counts[first])
            new = Node(tokens[depth:].copy(), lead, pages[first:].copy(), counts[first:].copy(), node)
            self.pool.share(new.pages, CACHED)
            node.children[int(tokens[depth])] = new
            self.num_nodes += 1
            new.tick = self._tick
            self._push(new)
            path.append((new, depth))
        for used, _ in path:
            used.groups.add(group)
            self._group_to_nodes.setdefault(group, {})[used] = None

    def evict(self, num_pages: int) -> int:
        """Free up to ``num_pages`` pages, from the ends of the least recently used leaves; return how many.

        Pages that live sequences hold stay, and the nodes of such pages stay in the tree unless pages that
        could be freed lie above them.
        """
        wanted = min(num_pages, self.pool.num_cached)
        freed, began = 0, self._now()
        while freed < wanted:
            tick, _, node = heapq.heappop(self._leaves)
            if node.parent is None or node.children:
                continue
            if tick != node.tick:
                self._push(node)
            elif self.pool.refs[LIVE, node.pages[-1]] > 0 and tick < began:
                node.tick = self._now()  # in use: it comes last, and goes only if pages above it must
                self._push(node)
            else:
                freed += self._trim(node, wanted - freed)
        return freed

    def retire(self, group: str) -> int:
        """Drop the nodes that only this group used; return how many pages are free now."""
        freed = 0
        for node in self._group_to_nodes.pop(group, {}):
            node.groups.discard(group)
            if not node.groups:
                freed += self._drop(node)
        return freed

    def clear(self) -> int:
        """Drop every node; return how many pages are free now."""
        freed = sum(self.pool.release(node.pages, CACHED) for node in self)
        self._forget()
        return freed

    def _walk(self, tokens: Tokens) -> tuple[list[tuple[Node, int]], int]:
        """Return the nodes that ``tokens`` go through, each with where it starts, and the length known."""
        now, node, depth, path = self._now(), self.root, 0, list[tuple[Node, int]]()
        while depth < tokens.size:
            child = node.children.get(int(tokens[depth]))
            if child is None:
                break
            child.tick = now
            path.append((child, depth))
            num = num_common(child.tokens, tokens[depth:])
            depth += num
            if num < child.tokens.size:
                break
            node = child
        return path, depth

    def _split(self, node: Node, num: int) -> Node:
        """Cut an edge after ``num`` tokens; return the new node above."""
        parent, at = node.parent, node.lead + num
        assert parent is not None and 0 < num < node.tokens.size
        upper = Node(node.tokens[:num].copy(), node.lead, *cut(node.pages, node.counts, at), parent)
        upper.tick, upper.groups = node.tick, set(node.groups)
        ends = node.counts.cumsum()
        first = int(ends.searchsorted(at, side="right"))
        node.lead = at - int(ends[first] - node.counts[first])
        if node.lead:
            self.pool.share(node.pages[first : first + 1], CACHED)
        node.tokens, node.pages, node.counts = (
            node.tokens[num:].copy(),
            node.pages[first:].copy(),
            node.counts[first:].copy(),
        )
        node.parent = upper
        upper.children[int(node.tokens[0])] = node
        parent.children[int(upper.tokens[0])] = upper
        self.num_nodes += 1
        for group in upper.groups:
            self._group_to_nodes[group][upper] = None
        return upper

    def _trim(self, node: Node, wanted: int) -> int:
        """Cut pages from the end of a leaf until ``wanted`` are free, or drop it; return how many are."""
        refs = self.pool.refs[:, node.pages]
        is_live = refs[LIVE] > 0
        first = int(is_live.size - is_live[::-1].argmax()) if is_live.any() else 0  # of the runs that may go
        frees = (refs[CACHED, first:] == 1)[::-1].cumsum()
        num_cut = min(int(frees.searchsorted(wanted)) + 1, is_live.size - first)
        kept = is_live.size - num_cut
        num_tokens = int(node.counts[:kept].sum()) - node.lead
        if num_cut == 0 or num_tokens <= 0:
            return self._drop(node)
        gone = node.pages[kept:]
        node.tokens = node.tokens[:num_tokens].copy()
        node.pages, node.counts = node.pages[:kept].copy(), node.counts[:kept].copy()
        self._push(node)
        return self.pool.release(gone, CACHED)

    def _drop(self, node: Node) -> int:
        parent = node.parent
        assert parent is not None
        del parent.children[int(node.tokens[0])]
        node.parent = None
        self.num_nodes -= 1
        for group in node.groups:
            of_group = self._group_to_nodes[group]
            del of_group[node]
            if not of_group:
                del self._group_to_nodes[group]
        if not parent.children and parent is not self.root:
            self._push(parent)
        return self.pool.release(node.pages, CACHED)

    def _push(self, leaf: Node) -> None:
        """Note when a leaf was used; forget entries of nodes that are gone once they are the most."""
        if len(self._leaves) > 2 * self.num_nodes + 64:
            self._leaves = [(n.tick, next(self._serial), n) for n in self if not n.children]
            heapq.heapify(self._leaves)
        heapq.heappush(self._leaves, (leaf.tick, next(self._serial), leaf))

    def _now(self) -> int:
        self._tick += 1
        return self._tick
