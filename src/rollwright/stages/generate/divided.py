"""Rollouts in chunks: each chunk is placed anew, the longest groups first, after a probe of each group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rollwright.errors import ConfigError
from rollwright.stage import AnyAsk, Ask, Plan, PlanView, Want, next_ask
from rollwright.tree import Node, NodeId, Origin, StopReason

PROBE = 1 << 30  # added to the priority of a group's first rollout; above any length


@dataclass(frozen=True, slots=True)
class Divided:
    """Sample ``num`` independent rollouts, each turn in chunks of ``chunk`` tokens.

    A chunk is an ask of its own, so that its worker may be chosen again, and its memory is only needed for
    ``chunk`` tokens ahead. Of what waits, the first rollout of each group goes first, the shortest one
    first: it tells how long its group is. Then go the others, those of the longest group first; a group's
    length is the longest turn that was seen of it, and the limit while none has ended.

    What is sampled is what `Independent` samples, token for token.

    Args:
        chunk: tokens of a chunk, ≥ 1.
        probe: let the first rollout go first; False makes all of a group wait alike.

    Source: Seer (2511.14617), divided rollout and context-aware scheduling.
    """

    chunk: int = 1024
    probe: bool = True

    def __post_init__(self) -> None:
        if self.chunk < 1:
            raise ConfigError(f"Divided: chunk = {self.chunk}; expected at least 1 token")

    def plan(self, view: PlanView, num: int, rng: np.random.Generator) -> Plan:
        group = _Group(self, view)
        asks: list[AnyAsk] = [group.chunk_after(view.root, None, k == 0 and self.probe) for k in range(num)]
        # A control may add branches, so the end is when nothing is in flight, not a count.
        while nodes := (yield Want(asks, wait="any")):
            group.see(nodes)
            asks = [ask for node in nodes if (ask := group.after(node)) is not None]


class _Group:
    """The lengths that were seen of a group, and what they make of the next asks."""

    def __init__(self, stage: Divided, view: PlanView) -> None:
        self.stage, self.view = stage, view
        self.longest = 0  # tokens of the longest turn so far
        self.has_ended = False
        self.began: dict[str, int] = {}  # where each stream's turn began

    def see(self, nodes: Sequence[Node]) -> None:
        """Note the lengths of finished nodes."""
        for node in nodes:
            if node.origin is Origin.SAMPLED:
                self.longest = max(self.longest, self.num_made(node))
                self.has_ended |= not self.goes_on(node)

    def num_made(self, node: Node) -> int:
        """Return the tokens of the node's turn so far."""
        began = self.began.get(node.stream)
        if began is None:
            began = node.start
            for one, _ in reversed(self.view.path(node.id)):
                if one.origin is not Origin.SAMPLED:
                    break
                began = one.start
            self.began[node.stream] = began
        return node.start + node.num_steps - began

    def goes_on(self, node: Node) -> bool:
        """Whether the node is a chunk and its turn is not over."""
        return node.stop is StopReason.LENGTH and self.num_made(node) < self.view.max_tokens

    def after(self, node: Node) -> AnyAsk | None:
        """Return what comes after a node: the next chunk of its turn, or what a plain rollout does."""
        is_probe = self.stage.probe and node.stream.endswith("/0")
        if node.origin is Origin.SAMPLED and self.goes_on(node):
            return self.chunk_after(node.id, node, is_probe)
        self.began.pop(node.stream, None)
        ask = next_ask(self.view, node)
        return self.chunk_after(node.id, None, is_probe) if isinstance(ask, Ask) else ask

    def chunk_after(self, parent: NodeId, before: Node | None, is_probe: bool) -> Ask:
        """Ask for the next chunk of a turn, ``before`` its last chunk so far."""
        left = self.view.max_tokens - (self.num_made(before) if before is not None else 0)
        length = self.longest if self.has_ended else self.view.max_tokens
        priority = PROBE + left if is_probe else length
        return Ask(parent, max_tokens=min(self.stage.chunk, left), more=True, priority=priority)
