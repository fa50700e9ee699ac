"""A runner's state as plain values, to be printed or written as JSON."""

from __future__ import annotations

from typing import Any

import msgspec

from rollwright.ledger import Ledger
from rollwright.runner import Runner, Wait
from rollwright.runner.state import GroupState, LiveAsk
from rollwright.tree import Origin


class AskRow(msgspec.Struct, frozen=True):
    """An answer that is owed.

    Args:
        ask, kind, task, state: what it is; kinds and states as in `rollwright.runner.state`.
        tokens: sampled by it so far.
        versions: that sampled them, oldest first.
        since: seconds of the run at which it was last given out.
        submits, attempts: how often it was submitted again, and retried after a failure.
    """

    ask: str
    kind: str
    task: str
    state: str
    tokens: int
    versions: tuple[int, ...]
    since: float
    submits: int
    attempts: int


class GroupRow(msgspec.Struct, frozen=True):
    """A group of the step: rollouts granted, scored, failed; asks it waits for; the filters' word."""

    group: str
    opened_step: int
    granted: int
    scored: int
    failed: int
    asks: int
    tokens: int
    is_complete: bool
    is_kept: bool | None
    drop_reason: str
    is_carried: bool
    is_held: bool

    @property
    def verdict(self) -> str:
        """The filters' word: kept, why it was dropped, or nothing yet."""
        if self.is_kept is None:
            return ""
        return "kept" if self.is_kept else self.drop_reason or "dropped"


class StepRow(msgspec.Struct, frozen=True):
    """A step that is open: its phase, since when in seconds of the run, rounds of Allocate, and groups."""

    step: int
    phase: str
    round: int
    groups: int
    since: float


class State(msgspec.Struct, frozen=True):
    """Everything that a run's next decision depends on, but for the plans' own course.

    Args:
        phase, step, version: where it is; the step counts from 0 and is the oldest that is not over.
        steps: those that are open; several are when rollouts run ahead.
        seconds: of the run, at the last event.
        end_reason: why it ended, empty while it has not.
        waits, groups, asks: see their classes.
        ledger: units and fates.
        tasks: history of every task that was visited, by id.
    """

    phase: str
    step: int
    version: int
    seconds: float
    end_reason: str
    steps: list[StepRow]
    waits: list[Wait]
    groups: list[GroupRow]
    asks: list[AskRow]
    ledger: Ledger
    tasks: dict[str, Any]


def state_of(runner: Runner) -> State:
    """Return the state of a runner."""
    tasks = {task: runner.history.of(task) for task in runner.settings.tasks}
    return State(
        phase=runner.phase.value,
        step=runner.step_number,
        version=runner.version,
        seconds=runner.last_at,
        end_reason=runner.end_reason,
        steps=[
            StepRow(step.number, step.phase.value, step.round, len(step.groups), step.since)
            for step in runner.steps.values()
        ],
        waits=runner.waits(),
        groups=[
            *(group_row(group) for group in runner.groups.values()),
            *(group_row(group, is_held=True) for group in runner.held.values()),
        ],
        asks=ask_rows(runner),
        ledger=runner.ledger,
        tasks={task: msgspec.to_builtins(history) for task, history in tasks.items() if history.visits},
    )


def ask_rows(runner: Runner) -> list[AskRow]:
    """Return every ask that is open, in the order in which they were made."""
    return [_ask_row(runner, live) for live in runner.asks.values()]


def _ask_row(runner: Runner, live: LiveAsk) -> AskRow:
    group = runner.groups[live.group]
    parts = [group.nodes[part] for part in live.parts]
    versions = {part.version for part in parts if part.version is not None}
    if live.tokens:
        versions.add(live.version)
    return AskRow(
        ask=live.id,
        kind=live.kind,
        task=group.task,
        state=live.state.value,
        tokens=sum(part.num_steps for part in parts) + len(live.tokens),
        versions=tuple(sorted(versions)),
        since=live.since,
        submits=live.num_resubmits,
        attempts=live.attempts,
    )


def group_row(group: GroupState, is_held: bool = False) -> GroupRow:
    """Return a group in a line."""
    rewards = [t.reward for t in group.trajectories.values()]
    return GroupRow(
        group=group.id,
        opened_step=group.opened_step,
        granted=group.num_granted,
        scored=sum(reward is not None for reward in rewards),
        failed=group.num_failed,
        asks=len(group.asks),
        tokens=sum(node.num_steps for node in group.nodes.values() if node.origin is Origin.SAMPLED),
        is_complete=group.is_complete,
        is_kept=group.is_kept,
        drop_reason=group.drop_reason,
        is_carried=group.is_carried,
        is_held=is_held,
    )
