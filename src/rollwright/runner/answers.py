"""What the runner makes of answers: chunks, observations, verdicts and failures."""

from __future__ import annotations

import msgspec

from rollwright.events import AnyCommand, CancelTimer, Failed, Observed, Sampled, Scored, SetTimer
from rollwright.ledger import Fate, Unit
from rollwright.runner.base import IDLE, Base
from rollwright.runner.state import AskState, GroupState, LiveAsk
from rollwright.tree import Node, Origin, StopReason

MAX_REWARD = 1e30  # what float32 holds with its square in float64; NaN and infinities are beyond it too


class Answers(Base):
    """The part of the runner that takes answers to its asks."""

    def answer(self, event: Sampled | Observed | Scored | Failed) -> list[AnyCommand]:
        """Take an answer; one to an ask that was closed meanwhile is counted as late."""
        live = self.asks.get(event.ask)
        if live is None or live.state in IDLE or _is_outdated(event, live):
            self.num_late += 1
            if isinstance(event, Sampled):
                self.ledger.sample(len(event.tokens))
                self.ledger.settle(len(event.tokens), Fate.FAILED, "late")
            return []
        group = self.groups[live.group]
        if isinstance(event, Sampled):
            if event.stop is not None or event.version != live.version:
                self.touch(group)
            return self._sampled(group, live, event)
        self.touch(group)
        if isinstance(event, Failed):
            return self.failed(group, live, event.kind, event.message)
        if isinstance(event, Scored):
            return self._scored(group, live, event)
        if live.kind == "reset":
            return self._opened(group, live, event)
        self.ledger.spend(Unit.ENV_STEPS, 1)
        return self.grower.take_observation(group, live, event)

    def _sampled(self, group: GroupState, live: LiveAsk, event: Sampled) -> list[AnyCommand]:
        self.ledger.sample(len(event.tokens))
        self.ledger.spend(Unit.PREFILLED, event.prefilled)
        self.grower.take_chunk(group, live, event)
        if event.stop is None:
            return []
        if event.stop is StopReason.FAILED:
            return self.failed(group, live, "engine", "the engine gave it up")
        if event.stop is not StopReason.INTERRUPTED:
            return self.grower.finish_tokens(group, live, event.stop)
        if live.is_flying:
            return self.resubmit(live)  # nobody asked for the interruption
        if live.on_abort == "carry":
            if live.tokens:
                self.grower.close_part(group, live, StopReason.INTERRUPTED)
            self.grower.turn(live, AskState.WAITING)
            return []
        if live.on_abort == "stop":
            return self.grower.finish_tokens(group, live, StopReason.PRUNED)
        return self.lose(group, live, "deadline", live.reason)

    def _opened(self, group: GroupState, live: LiveAsk, event: Observed) -> list[AnyCommand]:
        self.grower.forget(group, live)
        group.root, group.prompted = f"{group.id}/root", self.last_at
        group.nodes[group.root] = Node(group.root, None, 0, Origin.PROMPT, event.tokens)
        num = len(event.tokens)
        if not 0 < num < self.settings.context:
            why = f"prompt of {num} steps; expected 1 to {self.settings.context - 1} (the context)"
            return self._break(group, "prompt_length", "data", why)
        queued, group.queued_plans = group.queued_plans, []
        return [c for rollouts in queued for c in self.grower.start_plan(group, rollouts)]

    def _scored(self, group: GroupState, live: LiveAsk, event: Scored) -> list[AnyCommand]:
        self.ledger.spend(Unit.GRADER_CALLS, 1)
        trajectory = group.trajectories[live.parent]
        group.seconds[live.parent] = self.last_at - group.prompted
        reward, status = event.reward, event.status
        if reward is not None and not abs(reward) <= MAX_REWARD:
            self.note_failure(
                group, "grader", f"reward {reward}; expected None or a number within ±{MAX_REWARD:g}"
            )
            reward, status = None, "grader_error"
        group.trajectories[live.parent] = msgspec.structs.replace(
            trajectory, reward=reward, status=status, rewards=event.rewards, score=reward
        )
        if live.wait:
            return self.grower.deliver(group, live, live.parent)
        self.grower.forget(group, live)
        return []

    def failed(self, group: GroupState, live: LiveAsk, kind: str, message: str) -> list[AnyCommand]:
        """Retry a failed ask, or give it up as the settings say; it never becomes a reward."""
        is_carried = live.state is AskState.ABORTING and live.on_abort == "carry"
        if live.state is AskState.ABORTING and not is_carried:
            return self.redo(live)  # it was given up anyway
        if live.attempts < self.settings.retries_of(kind):
            live.attempts += 1
            return self.redo(live) if is_carried or not self.settings.backoff else self.pause(live, message)
        return self.lose(group, live, kind, message)

    def pause(self, live: LiveAsk, why: str) -> list[AnyCommand]:
        """Try a failed ask again when its timer fires."""
        self.grower.turn(live, AskState.PAUSED)
        seconds = self.settings.backoff * 2.0 ** (live.attempts - 1)
        return [SetTimer(timer=f"retry:{live.id}", seconds=seconds, what=f"retry after: {why}")]

    def unpause(self, live: LiveAsk) -> list[AnyCommand]:
        """Forget the timer of an ask that is given up or carried over."""
        return [CancelTimer(timer=f"retry:{live.id}")] if live.state is AskState.PAUSED else []

    def lost_worker(self, live: LiveAsk) -> list[AnyCommand]:
        """Do an ask again whose worker is gone, unless it was with too many of them."""
        limit = self.settings.retries_by_kind.get("worker")
        if live.state in IDLE:
            return []
        live.num_lost += 1
        if limit is None or live.num_lost <= limit or live.state is AskState.ABORTING:
            return self.redo(live)
        self.touch(self.groups[live.group])
        return self.lose(
            self.groups[live.group], live, "worker", f"{live.num_lost} workers were lost with it"
        )

    def lose(self, group: GroupState, live: LiveAsk, kind: str, message: str) -> list[AnyCommand]:
        """Give an ask up for good; the settings say what it takes with it."""
        live.reason = f"{kind}:{message}"
        self.history.of(group.task).num_failed += 1
        on_failure = self.settings.on_failure_of(kind)
        if on_failure == "stop":
            self.stop_reason = f"{kind} failure of {live.id}: {message}"
        if live.kind == "reset":
            self.grower.forget(group, live)
            return self._break(group, f"reset_failed:{kind}", kind, message)
        self.note_failure(group, kind, message)
        if on_failure == "drop_group":
            group.is_broken, group.drop_reason = True, f"failed_rollout:{kind}"
        if live.kind == "score":
            return self._scored(group, live, Scored(ask=live.id, reward=None, status=f"{kind}_error"))
        group.num_failed += 1
        if live.kind == "tokens":
            return self.grower.finish_tokens(group, live, StopReason.FAILED)
        parent = group.nodes[live.parent]
        node = self.grower.add_node(
            group,
            live.stream,
            parent,
            parent.num_steps,
            live.start,
            Origin.OBSERVATION,
            (),
            stop=StopReason.FAILED,
        )
        group.failed[node.id] = live.reason
        return self.grower.deliver(group, live, node.id)

    def _break(self, group: GroupState, reason: str, kind: str, message: str) -> list[AnyCommand]:
        group.is_broken, group.drop_reason, group.queued_plans = True, reason, []
        group.num_failed += group.num_granted
        self.note_failure(group, kind, message, group.num_granted)
        return []

    def redo(self, live: LiveAsk) -> list[AnyCommand]:
        """Take up an ask that nobody works on any more: what it had reported is all there is."""
        if live.state in IDLE:
            return []
        if live.is_flying:
            return self.resubmit(live)
        group = self.groups[live.group]
        self.touch(group)
        end = Sampled(ask=live.id, tokens=(), logprobs=(), version=live.version, stop=StopReason.INTERRUPTED)
        return self._sampled(group, live, end)

    def resubmit(self, live: LiveAsk) -> list[AnyCommand]:
        """Ask again for what is left of an ask, from its last acknowledged token."""
        self.grower.turn(live, AskState.FLYING)
        self.touch(self.groups[live.group])
        if live.kind != "tokens":
            return [live.command]
        live.num_resubmits += 1
        first = getattr(live.command, "first", None) if live.forced and not live.tokens else None
        if live.tokens:
            self.grower.close_part(self.groups[live.group], live, StopReason.INTERRUPTED)
        return [self.grower.submit_of(self.groups[live.group], live, first)]


def _is_outdated(event: Sampled | Observed | Scored | Failed, live: LiveAsk) -> bool:
    """Whether a chunk answers an earlier submit of the ask, by an engine that was given up."""
    return isinstance(event, Sampled) and event.attempt not in (None, live.num_resubmits)
