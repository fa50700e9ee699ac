"""The learner: groups with credit in, new weights out."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace

import torch

from rollwright.engine.model import Decoder
from rollwright.errors import LearnerError
from rollwright.learn.checks import check_finite, check_ratio, step_metrics
from rollwright.learn.config import LearnerConfig, lr_at
from rollwright.learn.gradient import Outcome, accumulate, with_current, with_proximal, with_reference
from rollwright.learn.packing import StepPlan, plan_step
from rollwright.learn.rows import Row, rows_of
from rollwright.rng import generator
from rollwright.stages.objective import READABLE, Objective
from rollwright.stages.reduce import Reduce
from rollwright.tree import Group

MICRO_BATCH_TOKENS = {"cpu": 4096}
MICRO_BATCH_TOKENS_ELSEWHERE = 32768


class Learner:
    """Trains a decoder in place on groups with credit.

    Args:
        model: its parameter tensors are changed in place, so an engine that reads them needs no copy.
        objective: the loss of a token.
        reduce: its weight in the optimizer step.
        cfg: settings.
        ref_model: frozen reference, for an objective that reads ``logp_ref``; by default a copy of the
            model as it is now. It is part of a checkpoint.

    Attributes:
        version: the version of the weights: that of the last update + 1.
        num_steps: optimizer steps made so far; the learning rate depends on it.

    Raises:
        LearnerError: the objective reads something that the learner does not have.
    """

    def __init__(
        self,
        model: Decoder,
        objective: Objective,
        reduce: Reduce,
        cfg: LearnerConfig | None = None,
        ref_model: Decoder | None = None,
    ) -> None:
        self.model, self.objective, self.reduce = model, objective, reduce
        self.cfg = cfg or LearnerConfig()
        if unknown := objective.reads - READABLE:
            raise LearnerError(f"{objective} reads {sorted(unknown)}; the learner gives {sorted(READABLE)}")
        self.ref_model: Decoder | None = None
        if "logp_ref" in objective.reads:
            self.ref_model = (ref_model or copy.deepcopy(model)).requires_grad_(False)
        self.optimizer = make_optimizer(model, self.cfg)
        self.version = 0
        self.num_steps = 0

    def update(self, groups: Sequence[Group], version: int) -> dict[str, float]:
        """Improve the weights of ``version`` on the groups; return the figures.

        The groups are dealt into ``num_updates`` mini-batches of whole groups (in an order that depends
        on the seed and version only), or into fewer if there are fewer groups. A mini-batch in which no
        token can move the weights makes no optimizer step, so that momentum alone moves nothing.

        Args:
            groups: with credit; a trajectory without score is left out.
            version: the version of the weights now.

        Returns:
            Figures: loss, grad_norm, entropy, ratio_*, kl_old, what the objective diagnoses, lr (means
            over the optimizer steps); ratio_max_dev (first step, tokens of this version); learner_tokens
            (tokens that went through the model), num_trained_tokens, num_trained_trajectories,
            num_updates (optimizer steps made).

        Raises:
            LearnerError: the input breaks a law, the first ratio is off, or a loss or gradient is not
                finite; the weights are as the last whole optimizer step left them.
        """
        rows = rows_of(groups, version, self.cfg)
        plans = [self.plan(minibatch) for minibatch in deal(rows, len(groups), version, self.cfg)]
        live = [plan for plan in plans if plan.micro_batches] * self.cfg.num_epochs
        if "logp_prox" in self.objective.reads and len(live) > 1:  # else it is logp_new itself
            proximal = {id(p): with_proximal(self.model, p.micro_batches) for p in live}
            live = [replace(plan, micro_batches=proximal[id(plan)]) for plan in live]
        figures = [self._step(plan, is_first=i == 0) for i, plan in enumerate(live)]
        self.version = version + 1
        return {
            "loss": 0.0,
            "grad_norm": 0.0,
            **_means(figures),
            "learner_tokens": float(sum(plan.num_model_tokens for plan in live)),
            "num_trained_tokens": float(sum(plan.num_tokens for plan in plans)),
            "num_trained_trajectories": float(sum(plan.num_trajectories for plan in plans)),
            "num_updates": float(len(live)),
        }

    def plan(self, rows: Sequence[Row]) -> StepPlan:
        """Return the rows of one optimizer step, weighed and packed."""
        default = MICRO_BATCH_TOKENS.get(self.model.embed.device.type, MICRO_BATCH_TOKENS_ELSEWHERE)
        budget = self.cfg.micro_batch_tokens or default
        plan = plan_step(rows, self.objective, self.reduce, budget, self.model.embed)
        plan = replace(plan, micro_batches=with_current(self.model, plan.micro_batches))
        if self.ref_model is None:
            return plan
        return replace(plan, micro_batches=with_reference(self.ref_model, plan.micro_batches))

    def _step(self, plan: StepPlan, is_first: bool) -> dict[str, float]:
        """Make one optimizer step, or raise with the weights untouched."""
        return self.apply(plan, accumulate(self.model, self.objective, plan.micro_batches), is_first)

    def apply(self, plan: StepPlan, outcomes: Sequence[Outcome], is_first: bool) -> dict[str, float]:
        """Check the gradient that lies in the parameters and step along it, or raise and clear it.

        Raises:
            LearnerError: it is not finite, or the first ratio is off.
        """
        try:
            grad_norm = self._clip()
            check_finite(outcomes, grad_norm)
            limits = self.cfg.ratio_tolerance, self.cfg.ratio_mean_tolerance
            deviation = check_ratio(outcomes, *limits) if is_first else None
        except LearnerError:
            self.optimizer.zero_grad(set_to_none=True)
            raise
        figures = {**step_metrics(plan, outcomes), "grad_norm": grad_norm, "lr": self._apply()}
        return figures if deviation is None else {**figures, "ratio_max_dev": deviation}

    def _clip(self) -> float:
        """Cut the gradient to ``max_grad_norm`` and return the norm that it had."""
        parameters = [p for p in self.model.parameters() if p.grad is not None]
        limit = self.cfg.max_grad_norm or float("inf")
        return float(torch.nn.utils.clip_grad_norm_(parameters, limit))

    def _apply(self) -> float:
        lr = lr_at(self.cfg, self.num_steps)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.num_steps += 1
        return lr


def _means(figures: Sequence[dict[str, float]]) -> dict[str, float]:
    """Return the mean of each figure over the steps that have it."""
    name_to_values: dict[str, list[float]] = {}
    for step in figures:
        for name, value in step.items():
            name_to_values.setdefault(name, []).append(value)
    return {name: sum(values) / len(values) for name, values in name_to_values.items()}


def make_optimizer(model: Decoder, cfg: LearnerConfig) -> torch.optim.AdamW:
    """Return AdamW over the model's parameters; weight decay acts on matrices only."""
    trained = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in trained if p.ndim >= 2], "weight_decay": cfg.weight_decay},
        {"params": [p for p in trained if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=cfg.lr, betas=cfg.betas, eps=cfg.eps, fused=True)


def deal(rows: Sequence[Row], num_groups: int, version: int, cfg: LearnerConfig) -> list[list[Row]]:
    """Deal whole groups into mini-batches of nearly equal numbers of groups."""
    num = min(cfg.num_updates, max(num_groups, 1))
    if num == 1:
        return [list(rows)]
    order = generator(cfg.seed, "mini-batches", version).permutation(num_groups)
    group_to_minibatch = {int(group): place % num for place, group in enumerate(order)}
    return [[row for row in rows if group_to_minibatch[row.group] == i] for i in range(num)]
