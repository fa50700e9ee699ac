"""Grow one group's tree: start plans, turn their asks into commands, and answers into nodes."""

from __future__ import annotations

import msgspec

from rollwright import rng as randomness
from rollwright.errors import ConfigError, LawBroken
from rollwright.events import AnyCommand, EnvStep, Fork, Observed, Score, Submit
from rollwright.method import Method
from rollwright.runner.nodes import Nodes
from rollwright.runner.settings import Settings
from rollwright.runner.state import GroupState, LiveAsk, PlanState
from rollwright.runner.view import View, count_turns, describe
from rollwright.stage import AnyAsk, Ask, AskEnv, AskScore, Hint, Plan, Prune, Want
from rollwright.tree import NodeId, Origin, StopReason


class Grower(Nodes):
    """Carries out plans for every group. Holds the generators, which the state can rebuild."""

    def __init__(self, method: Method, settings: Settings, asks: dict[str, LiveAsk]) -> None:
        super().__init__(settings, asks)
        self.method = method
        self.plans: dict[tuple[str, int], Plan] = {}

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
            live = self.new_ask(group, index, "env", self.stream_of(group, parent, parent.num_steps))
            live.parent, live.start = parent.id, parent.start + parent.num_steps
            live.command = EnvStep(ask=live.id, group=group.id, parent=parent.id)
            plan.in_flight.add(live.id)
            return [live.command]
        if isinstance(ask, AskScore):
            return self._ask_score(group, index, ask)
        if isinstance(ask, Hint):
            parent = group.nodes[ask.parent]
            stream = self.stream_of(group, parent, parent.num_steps)
            start = parent.start + parent.num_steps
            node = self.add_node(group, stream, parent, parent.num_steps, start, Origin.HINT, ask.tokens)
            plan.inbox.append(node.id)
            return []
        assert isinstance(ask, Prune)
        group.pruned[ask.leaf] = ask.reason
        return []

    # ------------------------------------------------------------ tokens

    def _ask_tokens(self, group: GroupState, index: int, ask: Ask) -> list[AnyCommand]:
        parent = group.nodes[ask.parent]
        at = parent.num_steps if ask.at is None else ask.at
        if not 0 <= at <= parent.num_steps:
            raise LawBroken(f"ask at step {at} of node {parent.id}, which has {parent.num_steps}")
        stream = self.stream_of(group, parent, at)
        live = self.new_ask(group, index, "tokens", stream)
        live.parent, live.at, live.start = parent.id, at, parent.start + at
        wanted = ask.max_tokens if ask.max_tokens is not None else self.settings.max_tokens
        room = self.settings.context - live.start
        live.max_tokens, live.is_cut_by_context = min(wanted, max(room, 0)), room < wanted
        live.sampling = ask.sampling or self.settings.sampling
        live.policy, live.forced = ask.policy, int(ask.first is not None)
        live.priority = ask.priority
        live.command = self.submit_of(group, live, ask.first, ask.num_top)
        plan = group.plans[index]
        if live.max_tokens == 0:
            stop = StopReason.CONTEXT if live.is_cut_by_context else StopReason.LENGTH
            plan.inbox.append(self.close_part(group, live, stop).id)
            self.forget(group, live)
            return []
        plan.in_flight.add(live.id)
        return [live.command]

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
            priority=live.priority,
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
        live = self.new_ask(group, index, "score", leaf.stream)
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
