"""Nodes of one group's tree: their names and streams, and how an ask's chunks become nodes."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rollwright import rng as randomness
from rollwright.errors import LawBroken
from rollwright.events import Sampled, Submit
from rollwright.runner.settings import Settings
from rollwright.runner.state import IN_FLIGHT, AskState, GroupState, LiveAsk, short
from rollwright.tree import Node, NodeId, Origin, StopReason

OLDER_FIRST = 1 << 20  # what an older step counts for among the priorities of asks, where several are open


class Nodes:
    """Makes the asks and nodes of every group.

    Attributes:
        num_flying: asks for tokens that the driver has.
    """

    def __init__(self, settings: Settings, asks: dict[str, LiveAsk]) -> None:
        self.settings, self.asks = settings, asks
        self.num_flying = sum(_flies(live) for live in asks.values())
        self._next_number = 1 + max((live.number for live in asks.values()), default=-1)

    def new_ask(self, group: GroupState, plan: int, kind: str, stream: str) -> LiveAsk:
        num = group.num_nodes.get(f"ask {stream}", 0)
        group.num_nodes[f"ask {stream}"] = num + 1
        ask_id = f"{group.id}/{short(stream)}:{num}"
        live = LiveAsk(ask_id, kind, group.id, plan, None, stream)  # type: ignore[arg-type]
        live.number, self._next_number = self._next_number, self._next_number + 1
        self.asks[ask_id] = live
        group.asks.add(ask_id)
        self.num_flying += kind == "tokens"
        return live

    def turn(self, live: LiveAsk, state: AskState) -> None:
        """Put a live ask into another state."""
        self.num_flying -= _flies(live)
        live.state = state
        self.num_flying += _flies(live)

    def forget(self, group: GroupState, live: LiveAsk) -> None:
        if self.asks.pop(live.id, None) is not None:
            self.num_flying -= _flies(live)
        group.asks.discard(live.id)

    def stream_of(self, group: GroupState, parent: Node, at: int) -> str:
        """Return the trajectory key: the parent's own for its first continuation, else a new one."""
        if parent.origin is Origin.PROMPT:
            stream = f"{group.visit}/{group.num_roots}"
            group.num_roots += 1
        elif at == parent.num_steps and parent.id not in group.continued:
            group.continued.add(parent.id)
            return parent.stream
        else:
            num = group.num_forks.get(parent.stream, 0)
            group.num_forks[parent.stream] = num + 1
            stream = f"{parent.stream}~{num}"
        group.streams[stream] = None
        return stream

    def submit_of(
        self, group: GroupState, live: LiveAsk, first: int | None = None, num_top: int | None = None
    ) -> Submit:
        """Return the submit for what is left of an ask, from its last closed node."""
        if num_top is None:
            assert isinstance(live.command, Submit)
            num_top = live.command.num_top
        stream = live.stream.partition("/")[2] if self.settings.keep_noise else live.stream
        key = randomness.stream_key(self.settings.seed, group.task, stream)
        return Submit(
            ask=live.id,
            group=live.group,
            parent=live.parent,
            at=live.at,
            stream=key,
            start=live.start,
            max_tokens=live.max_tokens,
            sampling=live.sampling,
            # Interned, because msgspec leaves out a default only if it is the very same object.
            policy=sys.intern(live.policy),
            first=first,
            num_top=num_top,
            chunk=self.settings.chunk,
            turn_start=turn_start(group.nodes, live),
            attempt=live.num_resubmits,
            priority=live.priority - group.step * OLDER_FIRST * (self.settings.num_ahead > 0),
        )

    def take_chunk(self, group: GroupState, live: LiveAsk, event: Sampled) -> None:
        """Add a chunk to an ask; a change of version closes the node so far."""
        num = len(event.tokens)
        if num != len(event.logprobs):
            raise LawBroken(f"{live.id}: {num} tokens with {len(event.logprobs)} logprobs")
        if num > live.max_tokens - len(live.tokens):
            left = live.max_tokens - len(live.tokens)
            raise LawBroken(f"{live.id}: the engine gave {num} tokens where {left} were asked for")
        if num and event.policy != live.policy:
            raise LawBroken(f"{live.id}: asked of policy {live.policy!r}, sampled by {event.policy!r}")
        if not num:
            return
        if live.tokens and event.version != live.version:
            self.close_part(group, live, StopReason.INTERRUPTED)
        live.version = event.version
        live.tokens += event.tokens
        live.logprobs += event.logprobs
        for name in ("entropies", "kept_masses", "top"):
            got = getattr(event, name)
            if got is not None:
                setattr(live, name, [*(getattr(live, name) or []), *got])

    def close_part(self, group: GroupState, live: LiveAsk, stop: StopReason) -> Node:
        """Make a node of what came since the last closed one, and move the ask behind it."""
        parent = group.nodes[live.parent]
        node = self.add_node(
            group,
            live.stream,
            parent,
            live.at,
            live.start,
            Origin.SAMPLED,
            tuple(live.tokens),
            policy=live.policy,
            version=live.version if live.tokens else None,
            logprobs=tuple(live.logprobs),
            entropies=None if live.entropies is None else tuple(live.entropies),
            kept_masses=None if live.kept_masses is None else tuple(live.kept_masses),
            top=None if live.top is None else tuple(live.top),
            forced=min(live.forced, len(live.tokens)),
            temperature=live.sampling.temperature,
            stop=stop,
        )
        if live.parts:
            group.continued.add(live.parent)
        num = node.num_steps
        live.parent, live.at, live.start = node.id, num, live.start + num
        live.max_tokens -= num
        live.forced = max(0, live.forced - num)
        live.parts.append(node.id)
        live.tokens, live.logprobs = [], []
        live.entropies = live.kept_masses = live.top = None
        return node

    def add_node(
        self,
        group: GroupState,
        stream: str,
        parent: Node,
        at: int,
        start: int,
        origin: Origin,
        tokens: Sequence[int],
        **fields: object,
    ) -> Node:
        num = group.num_nodes.get(stream, 0)
        group.num_nodes[stream] = num + 1
        node = Node(
            f"{group.id}/{short(stream)}.{num}",
            parent.id,
            at,
            origin,
            tuple(tokens),
            stream,
            start,
            **fields,  # type: ignore[arg-type]
        )
        group.nodes[node.id] = node
        return node


def _flies(live: LiveAsk) -> bool:
    return live.kind == "tokens" and live.state in IN_FLIGHT


def turn_start(nodes: dict[NodeId, Node], live: LiveAsk) -> int | None:
    """Return the position at which the ask's turn began, or None if the ask begins it."""
    start, node = None, nodes[live.parent]
    while node.origin is Origin.SAMPLED and node.parent is not None:
        start = node.start
        node = nodes[node.parent]
    return start if start != live.start else None
