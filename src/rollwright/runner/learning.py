"""From a step's finished groups to its batch, its update and its report."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rollwright import rng as randomness
from rollwright.errors import LawBroken
from rollwright.events import (
    AnyCommand,
    CancelTimer,
    EmitBatch,
    Finish,
    Published,
    Received,
    Report,
    Retire,
    SetTimer,
)
from rollwright.ledger import Fate, Unit
from rollwright.runner.answers import Answers
from rollwright.runner.batch import Fates, Metrics, close, freeze, mean, settle, split_stale, step_metrics
from rollwright.runner.bias import choice_metrics
from rollwright.runner.state import GroupState, Phase, StepState
from rollwright.stage import Receives
from rollwright.tree import Group

MAX_NOTES = 8  # kinds of failure that a step's report tells apart


class Learning(Answers):
    """The part of the runner that makes batches and takes what came of them."""

    def learn(self, step: StepState) -> list[AnyCommand]:
        """Make the batch of the oldest step and give it to the learner, or end the step without one."""
        done = [self.groups[group_id] for group_id in step.groups]
        if self.settings.is_evaluation:
            return self._end_evaluation(step, done)
        fresh = [freeze(group) for group in done if group.is_kept]
        self.replay_state, chosen = self._exchange(step, fresh)
        batch = [self._credit(group) for group in chosen]
        step.batch = tuple(group for group in batch if group.trajectories)
        step.report = step_metrics(done, step.batch, self.version) | self._choice(step)
        self._settle_untrained(step, done, {group.id for group in chosen})
        if step.batch:
            return [self.begin_learning(step), self.emit(step)]
        step.report["skipped_update"] = 1
        if not done and not self.groups:
            self.steps.clear()
            self.next_step = step.number  # it is done again, should the run be extended
            left = {unit: self.ledger.left(Unit(unit)) for unit in self.ledger.granted}
            return self.finish(f"nothing to roll out: no task was granted (budget left: {left})")
        return self._end_step(step)

    def _choice(self, step: StepState) -> Metrics:
        """Compare what was there with the step's batch; a rollout begun for a later step was not there."""
        chosen = {group.id for group in step.batch}
        there = [group for group in self.groups.values() if group.opened_step <= step.number]
        there += [group for group_id, group in self.held.items() if group_id in chosen]
        begun = (g for g in there if any(node.version is not None for node in g.nodes.values()))
        self.tasks_sampled.update(group.task for group in begun)
        return choice_metrics(there, step.batch, self.asks)

    def begin_learning(self, step: StepState) -> SetTimer:
        self.enter(step, Phase.LEARNING)
        timer, seconds = f"learn:{step.number}", self.settings.learn_deadline
        return SetTimer(timer=timer, seconds=seconds, what="the learner's update")

    def emit(self, step: StepState) -> EmitBatch:
        return EmitBatch(step=step.number, version=self.version, groups=step.batch)

    def _exchange(self, step: StepState, fresh: Sequence[Group]) -> tuple[Any, Sequence[Group]]:
        """Let Replay choose; a group that it would hold for too long makes the batch larger."""
        replay, state = self.method.replay, self.replay_state

        def exchange(num_tasks: int) -> tuple[Any, Sequence[Group]]:
            stream = randomness.generator(self.settings.seed, "replay", step.number)
            return replay.exchange(state, fresh, self.version, stream, num_tasks)

        after, chosen = exchange(self.settings.num_tasks)
        groups = {**self.held, **self.groups}
        late = {name for name in replay.holds(after) if self.may_not_pass(groups[name], step.number)}
        if late:
            order = [*replay.holds(state), *(group.id for group in fresh)]
            after, chosen = exchange(1 + max(order.index(name) for name in late))
        return after, chosen

    def may_not_pass(self, group: GroupState, number: int) -> bool:
        """Say whether the group must be trained in this step, or in an earlier one."""
        limit = self.settings.max_carry
        return limit is not None and group.opened_step + limit <= number

    def received(self, event: Received) -> None:
        """Give rollouts of another run to Replay, and count what became of them."""
        replay = self.method.replay
        if not isinstance(replay, Receives):
            raise LawBroken(
                f"method {self.method.name!r} was given rollouts of {event.source}, and takes none"
            )
        self.replay_state, refused = replay.receive(self.replay_state, event.groups)
        taken = len(event.groups) - sum(refused.values())
        counts = {"received": taken}
        for reason, num in [*event.refused.items(), *refused.items()]:
            counts[f"refused:{reason}"] = counts.get(f"refused:{reason}", 0) + num
        for name, num in counts.items():
            self.num_received[name] = self.num_received.get(name, 0) + num

    def _credit(self, group: Group) -> Group:
        group = split_stale(group, self.version, self.settings.max_age)
        for stage in self.method.credit:
            group = stage(group)
        return group

    def remember(self, group: GroupState) -> None:
        """Add a complete group to the task's history."""
        history = self.history.of(group.task)
        rewards = [t.reward for t in group.trajectories.values() if t.reward is not None]
        history.num_scored += len(rewards)
        history.reward_sum += math.fsum(rewards)
        history.square_sum += math.fsum(reward * reward for reward in rewards)
        history.last_mean = mean(rewards) if rewards else history.last_mean
        self.history.note_visit(group.task, not rewards, self.settings)

    def _settle_untrained(self, step: StepState, done: Sequence[GroupState], chosen: set[str]) -> None:
        """Settle what left the step untrained; trained groups wait for the learner, held ones stay held."""
        trained = {group.id for group in step.batch}
        holds = set(self.method.replay.holds(self.replay_state))
        for group_id, group in [*self.held.items(), *((group.id, group) for group in done)]:
            if group_id in trained:
                continue
            if group_id in holds:
                if group_id in self.groups:
                    self.held[group_id] = self.drop_group(group_id)
                continue
            fate, reason = Fate.FILTERED, group.drop_reason
            if group.is_kept:
                stale = group_id in chosen  # chosen, but nothing of it was young enough
                fate, reason = (Fate.STALE, "max_age") if stale else (fate, "replay_dropped")
            elif group.is_broken:
                fate = Fate.FAILED
            fates = settle(self.ledger, group, (), fate, reason)
            self.closed.append(close(step.number, self.version, group, None, fates))
            if self.held.pop(group_id, None) is None:
                self.drop_group(group_id)

    def _end_evaluation(self, step: StepState, done: Sequence[GroupState]) -> list[AnyCommand]:
        step.batch = tuple(freeze(group) for group in done)
        step.report = step_metrics(done, step.batch, self.version)
        for group in done:
            fates = settle(self.ledger, group, (), Fate.EVALUATION, "evaluation")
            self.closed.append(close(step.number, self.version, self.drop_group(group.id), None, fates))
        return [*self._leave(), self._report(step), *self.finish("evaluated")]

    def published(self, event: Published) -> list[AnyCommand]:
        """The learner consumed the batch: its tokens are trained, the version moves, the step ends."""
        step = self.oldest
        if step is None or self.phase is not Phase.LEARNING or event.step != step.number:
            self.num_late += 1
            return []
        improved, self.version = self.version, event.version
        self.ledger.spend(Unit.LEARNER_TOKENS, event.learner_tokens)
        for group in step.batch:
            state = self.held.pop(group.id, None)
            if state is None and group.id in self.groups:
                state = self.drop_group(group.id)
            fates: Fates = {}
            if state is not None:
                self.tasks_trained.add(state.task)
                leaves = [t.leaf for t in group.trajectories if t.reward is not None and not t.replayed]
                fates = settle(self.ledger, state, leaves, Fate.STALE, "max_age")
            self.closed.append(close(step.number, improved, state, group, fates))
        step.report.update({f"learn_{name}": value for name, value in event.metrics.items()})
        return [CancelTimer(timer=f"learn:{step.number}"), *self._end_step(step)]

    def _end_step(self, step: StepState) -> list[AnyCommand]:
        del self.steps[step.number]
        return [*self._leave(), self._report(step)]

    def _measure(self, step: StepState) -> Metrics:
        self.ledger.spent[Unit.SECONDS.value] = self.last_at
        self.ledger.check()
        report: Metrics = {**step.report, "version": self.version, "num_late": self.num_late}
        report.update({f"spent_{unit}": amount for unit, amount in self.ledger.spent.items()})
        report.update({f"fate_{fate}": amount for fate, amount in self.ledger.fates.items()})
        for name, amount in self.ledger.reasons.items():
            # "fate:kind:detail": the detail may hold a message, and a metric's name must not.
            metric = "reason_" + ":".join(name.split(":")[:3])
            report[metric] = (report.get(metric) or 0) + amount
        report["num_tasks_sampled"] = len(self.tasks_sampled)
        report["num_tasks_never_trained"] = len(self.tasks_sampled - self.tasks_trained)
        report.update({f"swarm_{name}": num for name, num in self.num_received.items()})
        report.update({f"quarantine:{task}": left for task, left in self.history.passes.items()})
        return report

    def _report(self, step: StepState) -> Report:
        metrics = self._measure(step)
        total = int((metrics.get("num_rollouts") or 0) + (metrics.get("num_failed") or 0))
        worst = sorted(step.failures.items(), key=lambda item: -item[1])
        notes = [f"{num} of {total} rollouts failed: {what}" for what, num in worst[:MAX_NOTES]]
        if rest := worst[MAX_NOTES:]:
            num = sum(num for _, num in rest)
            notes.append(f"{num} of {total} rollouts failed in {len(rest)} other ways")
        return Report(step=step.number, metrics=metrics, notes=tuple(notes))

    def _leave(self) -> list[AnyCommand]:
        leaving, self.leaving = self.leaving, []
        return [Retire(group=group_id) for group_id in leaving]

    def finish(self, reason: str) -> list[AnyCommand]:
        """End the run."""
        self.is_done, self.end_reason = True, reason
        self.ledger.check()
        return [Finish(reason=reason)]
