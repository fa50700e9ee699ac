"""The course of a step: pick, allocate, roll out in rounds, close, make the batch, go on."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rollwright import rng as randomness
from rollwright.events import (
    AnyCommand,
    CancelTimer,
    EmitBatch,
    Finish,
    Published,
    Report,
    Reset,
    Retire,
    SetTimer,
)
from rollwright.ledger import Fate, Unit
from rollwright.runner.answers import Answers
from rollwright.runner.batch import Fates, Metrics, close, freeze, mean, settle, split_stale, step_metrics
from rollwright.runner.state import AskState, GroupState, LiveAsk, Phase
from rollwright.stage import Grant, Left
from rollwright.tree import Group, TaskId

MAX_NOTES = 8  # kinds of failure that a step's report tells apart


class Steps(Answers):
    """The part of the runner that moves from step to step."""

    def begin_step(self) -> list[AnyCommand]:
        """Start the next step, carried work first, or finish the run."""
        self.step_number += 1
        self.history.step, self.round, self.batch = self.step_number, 0, ()
        self.is_overdue, self.failures = False, {}
        exhausted = self.ledger.exhausted
        if self.step_number >= self.num_steps:
            return self.finish("all steps done")
        if exhausted or self.stop_reason:
            return self.finish(self.stop_reason or f"the budget of {exhausted} is spent")
        self.phase = Phase.ROLLOUTS
        commands: list[AnyCommand] = [self.set_rollout_timer()]
        for group in self.groups.values():
            group.is_carried = True
            self.touch(group)
        for live in [live for live in self.asks.values() if live.state is AskState.WAITING]:
            live.on_abort = "carry"
            commands += self.resubmit(live)
        return commands + self._ask_allocate()

    def _ask_allocate(self) -> list[AnyCommand]:
        if self.round and (self.ledger.exhausted or self.stop_reason or self.is_overdue):
            return self._end_rollouts()
        left = Left(self.ledger.left(Unit.ROLLOUTS), self.ledger.left(Unit.SAMPLED))
        grant = self.method.allocate.grant(self.view(), left)
        self.round += 1
        commands = self.open_granted(grant)
        self.look()
        return commands if commands or self.incomplete else self._end_rollouts()

    def open_granted(self, grant: Grant, *labels: object) -> list[AnyCommand]:
        """Open the new tasks and the extra rollouts of a grant; ``labels`` tell a round's grants apart."""
        commands: list[AnyCommand] = []
        if grant.new_tasks:
            stream = randomness.generator(self.settings.seed, "select", self.step_number, self.round, *labels)
            picked = self.method.select.pick(self.history, grant.new_tasks, stream)
            self.history.num_picked += len(picked)
            commands += [command for task in picked for command in self._open(task, grant.each)]
        for group_id, num in grant.extra.items():
            commands += self._grant(self.groups[group_id], num)
        return commands

    def _open(self, task: TaskId, num: int) -> list[AnyCommand]:
        history = self.history.of(task)
        visit = history.visits
        group = GroupState(f"{task}#{visit}", task, visit, self.num_opened, self.step_number)
        history.visits, history.last_step = visit + 1, self.step_number
        self.num_opened += 1
        self.groups[group.id] = group
        ask = f"{group.id}/root"
        command = Reset(ask=ask, group=group.id, task=task)
        self.asks[ask] = LiveAsk(ask, "reset", group.id, -1, command)
        group.asks.add(ask)
        return [command, *self._grant(group, num)]

    def _grant(self, group: GroupState, num: int) -> list[AnyCommand]:
        self.touch(group)
        if num <= 0 or group.is_broken:
            return []
        group.num_granted += num
        group.is_kept = None
        self.ledger.spend(Unit.ROLLOUTS, num)
        if not group.root:
            group.queued_plans.append(num)
            return []
        return self.grower.start_plan(group, num)

    def settle_rounds(self) -> list[AnyCommand]:
        """Ask for more, or end the step, when nothing is in flight."""
        commands: list[AnyCommand] = []
        if self.phase is Phase.CLOSING and not self.num_aborting:
            commands += self._end_rollouts()
        self.look()
        while self.phase is Phase.ROLLOUTS and not self.incomplete:
            commands += self._ask_allocate()
        return commands

    def set_rollout_timer(self) -> SetTimer:
        timer, seconds = f"rollouts:{self.step_number}", self.settings.rollout_deadline
        return SetTimer(timer=timer, seconds=seconds, what="rollouts of the step")

    @property
    def num_aborting(self) -> int:
        return sum(live.state is AskState.ABORTING for live in self.asks.values())

    # ------------------------------------------------------------ the batch

    def _end_rollouts(self) -> list[AnyCommand]:
        commands: list[AnyCommand] = [CancelTimer(timer=f"rollouts:{self.step_number}")]
        self.look()
        done = [group for group in self.groups.values() if group.is_complete]
        for group in done:
            self._remember(group)
        if self.settings.is_evaluation:
            return commands + self._end_evaluation(done)
        fresh = [freeze(group) for group in done if group.is_kept]
        stream = randomness.generator(self.settings.seed, "replay", self.step_number)
        self.replay_state, chosen = self.method.replay.exchange(
            self.replay_state, fresh, self.version, stream, self.settings.num_tasks
        )
        batch = [self._credit(group) for group in chosen]
        self.batch = tuple(group for group in batch if group.trajectories)
        self.step_report = step_metrics(done, self.batch, self.version)
        self._settle_untrained(done, {group.id for group in chosen})
        if self.batch:
            emit = EmitBatch(step=self.step_number, version=self.version, groups=self.batch)
            return [*commands, self._begin_learning(), emit]
        self.step_report["skipped_update"] = 1
        if not done and not self.asks:
            left = {unit: self.ledger.left(Unit(unit)) for unit in self.ledger.granted}
            return commands + self.finish(f"nothing to roll out: no task was granted (budget left: {left})")
        return commands + self._end_step()

    def _begin_learning(self) -> SetTimer:
        self.phase = Phase.LEARNING
        timer, seconds = f"learn:{self.step_number}", self.settings.learn_deadline
        return SetTimer(timer=timer, seconds=seconds, what="the learner's update")

    def _credit(self, group: Group) -> Group:
        group = split_stale(group, self.version, self.settings.max_age)
        for stage in self.method.credit:
            group = stage(group)
        return group

    def _remember(self, group: GroupState) -> None:
        history = self.history.of(group.task)
        rewards = [t.reward for t in group.trajectories.values() if t.reward is not None]
        history.num_scored += len(rewards)
        history.reward_sum += math.fsum(rewards)
        history.last_mean = mean(rewards) if rewards else history.last_mean

    def _settle_untrained(self, done: Sequence[GroupState], chosen: set[str]) -> None:
        """Settle what left the step untrained; trained groups wait for the learner, held ones stay held."""
        trained = {group.id for group in self.batch}
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
            self.closed.append(close(self.step_number, self.version, group, None, fates))
            if self.held.pop(group_id, None) is None:
                self.drop_group(group_id)

    def _end_evaluation(self, done: Sequence[GroupState]) -> list[AnyCommand]:
        self.batch = tuple(freeze(group) for group in done)
        self.step_report = step_metrics(done, self.batch, self.version)
        for group in done:
            fates = settle(self.ledger, group, (), Fate.EVALUATION, "evaluation")
            self.closed.append(close(self.step_number, self.version, self.drop_group(group.id), None, fates))
        return [*self._leave(), self._report(), *self.finish("evaluated")]

    def published(self, event: Published) -> list[AnyCommand]:
        """The learner consumed the batch: its tokens are trained, the version moves, the step ends."""
        if self.phase is not Phase.LEARNING or event.step != self.step_number:
            self.num_late += 1
            return []
        improved, self.version = self.version, event.version
        self.ledger.spend(Unit.LEARNER_TOKENS, event.learner_tokens)
        for group in self.batch:
            state = self.held.pop(group.id, None)
            if state is None and group.id in self.groups:
                state = self.drop_group(group.id)
            fates: Fates = {}
            if state is not None:
                leaves = [t.leaf for t in group.trajectories if t.reward is not None and not t.replayed]
                fates = settle(self.ledger, state, leaves, Fate.STALE, "max_age")
            self.closed.append(close(self.step_number, improved, state, group, fates))
        self.step_report.update({f"learn_{name}": value for name, value in event.metrics.items()})
        return [CancelTimer(timer=f"learn:{self.step_number}"), *self._end_step()]

    def _measure(self) -> Metrics:
        self.ledger.spent[Unit.SECONDS.value] = self.last_at
        self.ledger.check()
        report: Metrics = {**self.step_report, "version": self.version, "num_late": self.num_late}
        report.update({f"spent_{unit}": amount for unit, amount in self.ledger.spent.items()})
        report.update({f"fate_{fate}": amount for fate, amount in self.ledger.fates.items()})
        for name, amount in self.ledger.reasons.items():
            # "fate:kind:detail": the detail may hold a message, and a metric's name must not.
            metric = "reason_" + ":".join(name.split(":")[:3])
            report[metric] = (report.get(metric) or 0) + amount
        return report

    def _report(self) -> Report:
        metrics = self._measure()
        total = int((metrics.get("num_rollouts") or 0) + (metrics.get("num_failed") or 0))
        worst = sorted(self.failures.items(), key=lambda item: -item[1])
        notes = [f"{num} of {total} rollouts failed: {what}" for what, num in worst[:MAX_NOTES]]
        if rest := worst[MAX_NOTES:]:
            num = sum(num for _, num in rest)
            notes.append(f"{num} of {total} rollouts failed in {len(rest)} other ways")
        return Report(step=self.step_number, metrics=metrics, notes=tuple(notes))

    def _leave(self) -> list[AnyCommand]:
        leaving, self.leaving = self.leaving, []
        return [Retire(group=group_id) for group_id in leaving]

    def _end_step(self) -> list[AnyCommand]:
        return [*self._leave(), self._report(), *self.begin_step()]

    def reopen(self) -> list[AnyCommand]:
        """Go on after an end that a restart or an extension may undo, or end again for the same reason."""
        if self.settings.is_evaluation:
            return self.finish(self.end_reason)
        if self.batch:  # the learner did not answer
            deadline = self._begin_learning()
            return [deadline, EmitBatch(step=self.step_number, version=self.version, groups=self.batch)]
        self.stop_reason = ""
        self.step_number -= 1
        return self.begin_step()

    def finish(self, reason: str) -> list[AnyCommand]:
        """End the run."""
        self.phase, self.end_reason = Phase.DONE, reason
        self.ledger.check()
        return [Finish(reason=reason)]
