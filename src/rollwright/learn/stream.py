"""An optimizer step whose groups come one after another: gradients are added up, weights move at the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from rollwright.errors import ConfigError, LearnerError
from rollwright.learn.gradient import Outcome, accumulate
from rollwright.learn.learner import Learner
from rollwright.learn.packing import MicroBatch, StepPlan
from rollwright.learn.rows import Row, rows_of
from rollwright.tree import Group


@runtime_checkable
class Separable(Protocol):
    """A reduce whose weights share one denominator, so that parts of a step can be added up."""

    def total(self, is_trained_T: NDArray[np.bool_], segment_T: NDArray[np.int64]) -> int: ...


class Stream:
    """Feed a learner groups as they are ready, and step once all are there.

    ∇L = Σ_parts total(part)·∇L(part) / Σ_parts total(part): the gradient of the whole batch, but for rounding

    So the backward passes overlap with the rollouts that are still made, and every token is of the version
    that the step improves. The batch may hold steps of several policies; the learner takes its own.

    Args:
        learner: its ``num_updates`` and ``num_epochs`` must be 1.

    Raises:
        ConfigError: the learner makes several updates of a batch, or its reduce does not add up.

    Source: the micro-batches of FlexMARL (2026): gradients are added up as an agent's samples arrive, and the
    weights move when the iteration ends.
    """

    def __init__(self, learner: Learner) -> None:
        cfg = learner.cfg
        if cfg.num_updates != 1 or cfg.num_epochs != 1:
            raise ConfigError(
                f"a stream makes one update: given num_updates = {cfg.num_updates}, num_epochs ="
                f" {cfg.num_epochs}; expected 1 and 1"
            )
        if not isinstance(learner.reduce, Separable):
            raise ConfigError(f"{learner.reduce} does not say its total, so parts of a step do not add up")
        self.learner, self.reduce = learner, learner.reduce
        self._clear()

    def _clear(self) -> None:
        self._outcomes: list[Outcome] = []
        self._plans: list[StepPlan] = []
        self._total = 0

    def add(self, groups: Sequence[Group]) -> int:
        """Take groups of this step and add their gradient; return the number of tokens trained of them.

        Raises:
            LearnerError: a step of the learner's own policy is of another version.
        """
        learner = self.learner
        for group in groups:
            self._check(group)
        rows = rows_of(groups, learner.version, learner.cfg)
        plan = learner.plan(rows)
        if not plan.num_tokens:
            return 0
        total = self.reduce.total(*_columns(rows))
        scaled = tuple(_scaled(plan.micro_batches, float(total)))
        is_more = any(earlier.micro_batches for earlier in self._plans)
        if scaled:
            self._outcomes += accumulate(learner.model, learner.objective, scaled, is_more=is_more)
        self._plans.append(replace(plan, micro_batches=scaled))
        self._total += total
        return plan.num_tokens

    def finish(self) -> dict[str, float]:
        """Step along the gradient of all that was added; return the figures, as `Learner.update` does.

        Raises:
            LearnerError: as `Learner.update`; the weights are as they were, and what was added is gone.
        """
        learner, total = self.learner, max(self._total, 1)
        plan = StepPlan(
            micro_batches=tuple(micro for plan in self._plans for micro in plan.micro_batches),
            num_tokens=sum(plan.num_tokens for plan in self._plans),
            num_trajectories=sum(plan.num_trajectories for plan in self._plans),
        )
        outcomes = [replace(outcome, loss=outcome.loss / total) for outcome in self._outcomes]
        self._clear()
        figures = {"loss": 0.0, "grad_norm": 0.0}
        if plan.micro_batches:
            for parameter in learner.model.parameters():
                if parameter.grad is not None:
                    parameter.grad /= total
            figures |= learner.apply(plan, outcomes, is_first=True)
        learner.version += 1
        return {
            **figures,
            "learner_tokens": float(plan.num_model_tokens),
            "num_trained_tokens": float(plan.num_tokens),
            "num_trained_trajectories": float(plan.num_trajectories),
            "num_updates": float(bool(plan.micro_batches)),
        }

    def _check(self, group: Group) -> None:
        learner = self.learner
        for node in group.nodes.values():
            if node.policy == learner.cfg.policy and node.version not in (None, learner.version):
                raise LearnerError(
                    f"node {node.id} is of version {node.version}; expected {learner.version}: a stream takes"
                    " samples of the version that it improves only. Use Learner.update for older ones"
                )


def _columns(rows: Sequence[Row]) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    sizes = [len(row.is_trained_R) for row in rows]
    return np.concatenate([row.is_trained_R for row in rows]), np.repeat(np.arange(len(rows)), sizes)


def _scaled(micro_batches: Sequence[MicroBatch], factor: float) -> Iterator[MicroBatch]:
    for micro in micro_batches:
        yield replace(micro, weight_T=micro.weight_T * factor)
