"""What a simulation assumes: plain values with units. docs/simulator.md has the equations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from rollwright.drive.placement import LeastLoaded, Placement
from rollwright.drive.virtual.distributions import Constant, Distribution, LogNormal, check
from rollwright.drive.virtual.engine_model import EngineModel


@dataclass(frozen=True, slots=True)
class Hard:
    """Some trajectories are hard: they take more turns, and their tools fail more often.

    Args:
        share: of the trajectories that are hard, in [0, 1].
        end_share: probability that the episode ends after a turn of a hard one; the task's own holds for
            the others.
        error_share: probability that a tool returns an error in a hard one.
        easy_error_share: the same for the others.
        factor: what a turn's length is multiplied with.
    """

    share: float = 0.1
    end_share: float = 0.05
    error_share: float = 0.7
    easy_error_share: float = 0.1
    factor: float = 1.0

    def __post_init__(self) -> None:
        for name in ("share", "end_share", "error_share", "easy_error_share"):
            check(self, name, getattr(self, name), 0 <= getattr(self, name) <= 1, "in [0, 1]")
        check(self, "factor", self.factor, self.factor > 0, "> 0")


@dataclass(frozen=True, slots=True)
class TaskModel:
    """Prompts, environments and rewards.

    A rollout of task k sampled by version v is right with probability
    sigmoid(``logit`` + ``logit_spread`` · z_k + ``logit_gain`` · v), z_k standard normal and fixed by the
    task's id; one that was cut by its length or its context is wrong.

    Args:
        prompt: tokens of a prompt.
        response: tokens that a turn would have without limits; the end token counts.
        observation: tokens that an environment says after a turn.
        end_share: probability that the environment ends the episode after a turn.
        logit, logit_spread, logit_gain: see above.
        alike: how alike the lengths of one task are, in [0, 1]: the correlation of the normal variables
            behind them. The distribution over all tasks stays ``response``.
        growth: turns that begin under version v are (1 + growth)^v times as long, > -1.
        hard: trajectories of another kind among the others; None is none.
    """

    prompt: Distribution = field(default_factory=lambda: Constant(128))
    response: Distribution = field(default_factory=lambda: LogNormal(400.0, 1.0))
    observation: Distribution = field(default_factory=lambda: Constant(32))
    end_share: float = 0.25
    logit: float = 0.0
    logit_spread: float = 1.5
    logit_gain: float = 0.0
    alike: float = 0.0
    growth: float = 0.0
    hard: Hard | None = None

    def __post_init__(self) -> None:
        check(self, "end_share", self.end_share, 0 <= self.end_share <= 1, "in [0, 1]")
        check(self, "logit_spread", self.logit_spread, self.logit_spread >= 0, "≥ 0")
        check(self, "alike", self.alike, 0 <= self.alike <= 1, "in [0, 1]")
        check(self, "growth", self.growth, self.growth > -1, "> -1")


@dataclass(frozen=True, slots=True)
class ServiceModel:
    """How long prompts, environment steps and grades take.

    Args:
        reset, env_step, grade: seconds of one call.
        num_envs, num_graders: calls that run at once, the others wait in line; None is any number.
    """

    reset: Distribution = field(default_factory=lambda: Constant(0.0))
    env_step: Distribution = field(default_factory=lambda: Constant(0.1))
    grade: Distribution = field(default_factory=lambda: Constant(0.05))
    num_envs: int | None = None
    num_graders: int | None = None

    def __post_init__(self) -> None:
        for name in ("num_envs", "num_graders"):
            num = getattr(self, name)
            if num is not None:
                check(self, name, num, num >= 1, "≥ 1, or None")


@dataclass(frozen=True, slots=True)
class LearnerModel:
    """An update takes ``step_seconds + token_seconds · tokens / num_workers``.

    Args:
        step_seconds: what does not depend on the batch.
        token_seconds: one worker's time for a token of a trajectory, prompt or response.
        num_workers: workers that share the tokens.
        streams: gradients of a group are made as soon as it is complete, beside the rollouts, and only
            what is left then makes the update wait.
        prefix_early: what of a prompt's tokens does not depend on the response is worked through beside the
            rollouts of the step, on their own workers: it costs nothing as far as it fits into the time in
            which their arithmetic is free.
        prefix_share: share of the work on a prompt's token that does not wait for the response, in [0, 1].
            A half: forward and logprobs, 4 of 8 · params operations; the backward pass waits.
        spare: share of the free arithmetic that this work can use beside decoding, in [0, 1].
        price: of one worker, per hour.
    """

    step_seconds: float = 1.0
    token_seconds: float = 0.00002
    num_workers: int = 1
    streams: bool = False
    prefix_early: bool = False
    prefix_share: float = 0.5
    spare: float = 0.5
    price: float = 0.0

    def __post_init__(self) -> None:
        for name in ("step_seconds", "token_seconds", "price"):
            check(self, name, getattr(self, name), getattr(self, name) >= 0, "≥ 0")
        check(self, "num_workers", self.num_workers, self.num_workers >= 1, "≥ 1")
        for name in ("prefix_share", "spare"):
            check(self, name, getattr(self, name), 0 <= getattr(self, name) <= 1, "in [0, 1]")


@dataclass(frozen=True, slots=True)
class StepCost:
    """What a step took, for planners.

    Args:
        rollout_seconds: work of the rollouts, summed over workers.
        step_seconds: from one update's end to the next one's.
        train_seconds: work of the update, summed over workers.
    """

    rollout_seconds: float
    step_seconds: float
    train_seconds: float


@runtime_checkable
class Planner(Protocol):
    """Moves workers between rollouts and training."""

    def num_training(self, costs: list[StepCost], num_workers: int, now: int) -> int:
        """Return how many of all workers shall train from now on.

        Args:
            costs: of the steps so far, the last one last; empty before the first.
            num_workers: workers that roll out or train.
            now: workers that train at present.
        """
        ...


@dataclass(frozen=True, slots=True)
class Model:
    """Everything that a simulation assumes about the world around the runner.

    Args:
        engine: the engines.
        tasks: prompts, environments and rewards.
        services: how long they take.
        learner: how long updates take.
        placement: which ask goes where.
        others: engines of other kinds beside ``engine``.
        mix: other task models by the first part of a task's id.
        planner: moves workers of ``engine`` to the learner and back; None leaves them where they are.
    """

    engine: EngineModel = field(default_factory=EngineModel)
    tasks: TaskModel = field(default_factory=TaskModel)
    services: ServiceModel = field(default_factory=ServiceModel)
    learner: LearnerModel = field(default_factory=LearnerModel)
    placement: Placement = field(default_factory=LeastLoaded)
    others: tuple[EngineModel, ...] = ()
    mix: tuple[tuple[str, TaskModel], ...] = ()
    planner: Planner | None = None

    def tasks_of(self, task: str) -> TaskModel:
        """Return the model of a task, by the first part of its id."""
        kind = task.partition("/")[0]
        return next((tasks for name, tasks in self.mix if name == kind), self.tasks)
