"""Grow one group's tree: start plans, turn their asks into commands, and answers into nodes."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import msgspec

from rollwright import rng as randomness
from rollwright.errors import ConfigError, LawBroken
from rollwright.events import AnyCommand, EnvStep, Fork, Observed, Sampled, Score, Submit
from rollwright.method import Method
from rollwright.runner.settings import Settings
from rollwright.runner.state import AskState, GroupState, LiveAsk, PlanState, short
from rollwright.stage import AnyAsk, Ask, AskEnv, AskScore, Hint, Plan, Prune, Want
from rollwright.tree import Node, NodeId, Origin, StopReason, TaskId, Trajectory, path_to


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


class Grower:
    """Carries out plans for every group. Holds the generators, which the state can rebuild."""

    def __init__(self, method: Method, settings: Settings, asks: dict[str, LiveAsk]) -> None:
        self.method, self.settings, self.asks = method, settings, asks
        self.plans: dict[tuple[str, int], Plan] = {}
        self.keys: dict[tuple[TaskId, str], int] = {}

    # ------------------------------------------------------------ plans

    def start_plan(self, group: GroupState, num: int) -> list[AnyCommand]:
        """Start a plan for ``num`` more rollouts of the group."""
        index = len(group.plans)
        group.plans.append(PlanState(num))
        generator = self._generator(group, index)
        return self._take(group, index, next(generator, None))

    def rebuild(self, group: GroupState) -> None:
        """Build the generators of a group's live plans again from what they received."""
        for index, plan in enumerate(group.plans):
            if plan.is_done:
                continue
            generator = self._generator(group, index)
            next(generator, None)
            for received in plan.received:
                generator.send([group.nodes[node] for node in received])

    def _generator(self, group: GroupState, index: int) -> Plan:
        num = group.plans[index].num
        stream = randomness.generator(self.settings.seed, "plan", group.id, index)
        plan = self.method.generate.plan(View(group, self.settings), num, stream)
        self.plans[group.id, index] = plan
        return plan

    def advance(self, group: GroupState, index: int) -> list[AnyCommand]:
        """Give the plan what it waits for, as long as it has it."""
        commands: list[AnyCommand] = []
        plan = group.plans[index]
        while not plan.is_done and plan.inbox and (plan.wait == "any" or not plan.in_flight):
            received, plan.inbox = plan.inbox, []
            plan.received.append(received)
            want: Want | None
            try:
                want = self.plans[group.id, index].send([group.nodes[node] for node in received])
            except StopIteration:
                want = None
            commands += self._take(group, index, want)
        return commands

    def _take(self, group: GroupState, index: int, want: Want | None) -> list[AnyCommand]:
        plan = group.plans[index]
        if want is None:
            if plan.in_flight:
                raise ConfigError(
                    f"the plan of {type(self.method.generate).__name__} for {group.id} returned while"
                    f" {len(plan.in_flight)} of its asks were in flight; it must wait for them"
                )
            plan.is_done = True
            self.plans.pop((group.id, index), None)
            return []
        plan.wait = want.wait
        commands: list[AnyCommand] = []
        for ask in want.asks:
            commands += self._ask(group, index, ask)
        if not plan.in_flight and not plan.inbox:
            # Nothing to wait for (for example only scores and prunes were asked): go on at once.
            if not want.asks and plan.received and not plan.received[-1]:
                raise ConfigError(
                    f"the plan of {type(self.method.generate).__name__} for {group.id} waits, but nothing of"
                    " it is in flight; it must return when it receives nothing and asks for nothing"
                )
            try:
                again = self.plans[group.id, index].send([])
            except StopIteration:
                again = None
            plan.received.append([])
            return commands + self._take(group, index, again)
        if plan.inbox:
            commands += self.advance(group, index)
        return commands

    def _ask(self, group: GroupState, index: int, ask: AnyAsk) -> list[AnyCommand]:
        plan = group.plans[index]
        if isinstance(ask, Ask):
            return [c for _ in range(ask.num) for c in self._ask_tokens(group, index, ask)]
        if isinstance(ask, AskEnv):
            parent = group.nodes[ask.parent]
            live = self._live(group, index, "env", self._stream(group, parent, parent.num_steps))
            live.parent, live.start = parent.id, parent.start + parent.num_steps
            live.command = EnvStep(ask=live.id, group=group.id, parent=parent.id)
            plan.in_flight.add(live.id)
            return [live.command]
        if isinstance(ask, AskScore):
            return self._ask_score(group, index, ask)
        if isinstance(ask, Hint):
            parent = group.nodes[ask.parent]
            stream = self._stream(group, parent, parent.num_steps)
            start = parent.start + parent.num_steps
            node = self.add_node(group, stream, parent, parent.num_steps, start, Origin.HINT, ask.tokens)
            plan.inbox.append(node.id)
            return []
        assert isinstance(ask, Prune)
        group.pruned[ask.leaf] = ask.reason
        return []

    def _live(self, group: GroupState, plan: int, kind: str, stream: str) -> LiveAsk:
        num = group.num_nodes.get(f"ask {stream}", 0)
        group.num_nodes[f"ask {stream}"] = num + 1
        ask_id = f"{group.id}/{short(stream)}:{num}"
        live = LiveAsk(ask_id, kind, group.id, plan, None, stream)  # type: ignore[arg-type]
        self.asks[ask_id] = live
        group.asks.add(ask_id)
        return live

    # ------------------------------------------------------------ tokens

    def _ask_tokens(self, group: GroupState, index: int, ask: Ask) -> list[AnyCommand]:
        parent = group.nodes[ask.parent]
        at = parent.num_steps if ask.at is None else ask.at
        if not 0 <= at <= parent.num_steps:
            raise LawBroken(f"ask at step {at} of node {parent.id}, which has {parent.num_steps}")
        stream = self._stream(group, parent, at)
        live = self._live(group, index, "tokens", stream)
        live.parent, live.at, live.start = parent.id, at, parent.start + at
        wanted = ask.max_tokens if ask.max_tokens is not None else self.settings.max_tokens
        room = self.settings.context - live.start
        live.max_tokens, live.is_cut_by_context = min(wanted, max(room, 0)), room < wanted
        live.sampling = ask.sampling or self.settings.sampling
        live.policy, live.forced = ask.policy, int(ask.first is not None)
        live.command = self.submit_of(live, ask.first, ask.num_top)
        plan = group.plans[index]
        if live.max_tokens == 0:
            stop = StopReason.CONTEXT if live.is_cut_by_context else StopReason.LENGTH
            plan.inbox.append(self.close_part(group, live, stop).id)
            self.forget(group, live)
            return []
        plan.in_flight.add(live.id)
        return [live.command]

    def _stream(self, group: GroupState, parent: Node, at: int) -> str:
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

    def submit_of(self, live: LiveAsk, first: int | None = None, num_top: int | None = None) -> Submit:
        """Return the submit for what is left of an ask, from its last closed node."""
        if num_top is None:
            assert isinstance(live.command, Submit)
            num_top = live.command.num_top
        group_task = live.group.rpartition("#")[0]
        key = self.keys.get((group_task, live.stream))
        if key is None:
            key = randomness.stream_key(self.settings.seed, group_task, live.stream)
            self.keys[group_task, live.stream] = key
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

    def finish_tokens(self, group: GroupState, live: LiveAsk, stop: StopReason) -> list[AnyCommand]:
        """Close the ask's last node and give it to the plan."""
        if stop is StopReason.LENGTH and live.is_cut_by_context:
            stop = StopReason.CONTEXT
        node = self.close_part(group, live, stop)
        if stop is StopReason.PRUNED:
            group.pruned[node.id] = live.reason
        if stop is StopReason.FAILED:
            group.failed[node.id] = live.reason
        return self.deliver(group, live, node.id)

    def fork_live(self, group: GroupState, live: LiveAsk, at: int, num: int) -> list[AnyCommand]:
        """Branch a live ask after ``at`` of its own steps; the ask itself goes on unchanged."""
        assert isinstance(live.command, Submit)
        if live.tokens:
            self.close_part(group, live, StopReason.INTERRUPTED)
        made = sum(group.nodes[part].num_steps for part in live.parts)
        if not 0 <= at <= made:
            raise LawBroken(f"fork at step {at} of ask {live.id}, which has {made} steps")
        parent, offset = self._point(group, live, at)
        ask = Ask(
            parent,
            at=offset,
            # One more than fits where the context is the limit, so that the fork's end says so too.
            max_tokens=live.max_tokens + made - at + live.is_cut_by_context,
            sampling=live.sampling,
            policy=live.policy,
            num_top=live.command.num_top,
        )
        submits = [command for _ in range(num) for command in self._ask_tokens(group, live.plan, ask)]
        forks = [Fork(**msgspec.structs.asdict(command)) for command in submits]
        return [*forks, *self.advance(group, live.plan)]

    def _point(self, group: GroupState, live: LiveAsk, at: int) -> tuple[NodeId, int]:
        """Return (node, number of its steps) for the point after ``at`` of an ask's own steps."""
        if at == 0:
            first = group.nodes[live.parts[0]] if live.parts else None
            return (live.parent, live.at) if first is None else (first.parent or group.root, first.at)
        for part in live.parts:
            node = group.nodes[part]
            if at <= node.num_steps:
                group.continued.add(node.id)
                return node.id, at
            at -= node.num_steps
        raise AssertionError("the point lies inside the ask")

    # ------------------------------------------------------------ environments and scores

    def take_observation(self, group: GroupState, live: LiveAsk, event: Observed) -> list[AnyCommand]:
        """Add what the environment said; text that does not fit ends the trajectory as truncated."""
        parent = group.nodes[live.parent]
        tokens, stop = event.tokens, None
        if event.terminated or event.truncated:
            stop = StopReason.TERMINATED if event.terminated else StopReason.TRUNCATED
        elif count_turns(group, parent.id) >= self.settings.max_turns:
            stop = StopReason.TURNS
        if live.start + len(tokens) >= self.settings.context and stop is None:
            tokens, stop = (), StopReason.CONTEXT
        if live.start + len(tokens) > self.settings.context:
            tokens = ()  # the episode is over: its last words need no room
        node = self.add_node(
            group,
            live.stream,
            parent,
            parent.num_steps,
            live.start,
            Origin.OBSERVATION,
            tokens,
            stop=stop,
            reward=event.reward,
        )
        return self.deliver(group, live, node.id)

    def _ask_score(self, group: GroupState, index: int, ask: AskScore) -> list[AnyCommand]:
        group.trajectories[ask.leaf] = describe(group, ask.leaf)
        leaf = group.nodes[ask.leaf]
        live = self._live(group, index, "score", leaf.stream)
        live.parent, live.wait = leaf.id, ask.wait
        live.command = Score(ask=live.id, group=group.id, leaf=leaf.id)
        if ask.wait:
            group.plans[index].in_flight.add(live.id)
        return [live.command]

    # ------------------------------------------------------------ common

    def deliver(self, group: GroupState, live: LiveAsk, node: NodeId) -> list[AnyCommand]:
        """The ask is answered by ``node``: forget it and let its plan go on."""
        self.forget(group, live)
        plan = group.plans[live.plan]
        plan.in_flight.discard(live.id)
        plan.inbox.append(node)
        return self.advance(group, live.plan)

    def forget(self, group: GroupState, live: LiveAsk) -> None:
        self.asks.pop(live.id, None)
        group.asks.discard(live.id)

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


__all__ = ["AskState", "Grower", "View", "count_turns", "describe"]
