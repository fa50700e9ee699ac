"""Measure a policy on held-out tasks: sampled and greedy, with intervals, through the same runner."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rollwright.drive.inline import InlineDriver
from rollwright.drive.world import World
from rollwright.engine.api import Engine
from rollwright.errors import DataError
from rollwright.lab.statistics import interval
from rollwright.method import Method
from rollwright.runner import Runner, Settings
from rollwright.stages.allocate.even import Even
from rollwright.stages.generate.take_turns import TakeTurns
from rollwright.stages.replay.fresh import Fresh
from rollwright.stages.select.shuffled import Shuffled
from rollwright.tree import Group, Sampling, TaskId


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Success on held-out tasks.

    Args:
        success: mean over tasks of the share of right rollouts, in [0, 1]; None if nothing was scored.
        low, high: 95% interval over tasks.
        reward: mean raw reward.
        num_tasks, num_rollouts, num_not_scored: counts.
        length: mean sampled tokens of a rollout.
        num_tokens: tokens sampled for it.
        right, scored: right and scored rollouts of each task, in the order of the tasks' ids.
    """

    success: float | None
    low: float | None
    high: float | None
    reward: float | None
    num_tasks: int
    num_rollouts: int
    num_not_scored: int
    length: float
    num_tokens: int
    right: tuple[int, ...] = ()
    scored: tuple[int, ...] = ()


def evaluate(
    engine: Engine,
    world: World,
    settings: Settings,
    tasks: Sequence[TaskId],
    num_samples: int = 1,
    sampling: Sampling | None = None,
    drive: Callable[[Runner], object] | None = None,
    policies: Sequence[str] = ("policy",),
) -> tuple[Evaluation, list[Group]]:
    """Roll out each task ``num_samples`` times and grade; the tokens get the fate evaluation.

    The noise depends on the run's seed and the task, not on the version: two evaluations in one run
    share it.

    Args:
        drive: runs the runner to its end where another driver than the inline one does it.
        policies: who speaks, by turns (`TakeTurns`).

    Raises:
        DataError: there are no tasks.
    """
    if not tasks:
        raise DataError("evaluation: there are no held-out tasks; expected at least one")
    generate = TakeTurns(tuple(policies))
    method = Method("evaluation", Shuffled(), Even(num_samples), generate, Fresh(), None, None)
    settings = dataclasses.replace(
        settings,
        tasks=tuple(tasks),
        num_steps=1,
        num_tasks=len(tasks),
        sampling=sampling or settings.sampling,
        budget={},
        on_failure="drop_sample",
        chunk=0,
        is_evaluation=True,
    )
    runner = Runner(method, settings, engine.version)
    if drive is None:
        InlineDriver(runner, engine, world).run()
    else:
        drive(runner)
    groups = list(runner.batch)
    for group in groups:
        engine.retire(group.id)
        world.retire(group.id)
    return summarise(groups, int(runner.ledger.spent["sampled_tokens"])), groups


def summarise(groups: Sequence[Group], num_tokens: int) -> Evaluation:
    """Take the verdicts of evaluated groups together; rollouts without a score are counted, not zero."""
    shares, rewards, lengths = [], [], []
    right, counts = [], []
    num_not_scored = 0
    # By id, not as they were picked: runs of different seeds then agree on which task is which.
    for group in sorted(groups, key=lambda group: group.task):
        scored = [t for t in group.trajectories if t.reward is not None]
        num_not_scored += len(group.trajectories) - len(scored)
        lengths += [int(group.response(t).is_sampled.sum()) for t in group.trajectories]
        counts.append(len(scored))
        right.append(sum(t.status == "right" for t in scored))
        if scored:
            shares.append(right[-1] / len(scored))
            rewards += [t.reward for t in scored if t.reward is not None]
    low, high = interval(shares) if shares else (None, None)
    return Evaluation(
        success=math.fsum(shares) / len(shares) if shares else None,
        low=low,
        high=high,
        reward=math.fsum(rewards) / len(rewards) if rewards else None,
        num_tasks=len(shares),
        num_rollouts=len(lengths),
        num_not_scored=num_not_scored,
        length=sum(lengths) / max(len(lengths), 1),
        num_tokens=num_tokens,
        right=tuple(right),
        scored=tuple(counts),
    )
