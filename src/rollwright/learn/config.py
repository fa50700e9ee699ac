"""Settings of the learner and its learning rate over time."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rollwright.errors import ConfigError

SCHEDULES = ("constant", "linear", "cosine")


@dataclass(frozen=True, slots=True)
class LearnerConfig:
    """How a batch of groups becomes new weights.

    Args:
        lr: AdamW's peak learning rate.
        betas, eps, weight_decay: AdamW's; decay acts on matrices only, not on norms and biases.
        max_grad_norm: the gradient's global norm is cut to this; None leaves it.
        micro_batch_tokens: tokens that go through the model at once. It changes speed and memory, never
            the result beyond rounding. None chooses: 4,096 on a CPU, 32,768 on an accelerator.
        num_updates: mini-batches, and so optimizer steps, that a batch's groups are dealt into.
        num_epochs: how often the batch is gone through.
        warmup_updates: optimizer steps over which the learning rate rises linearly from 0.
        schedule: constant, linear or cosine; the last two fall until ``total_updates``.
        total_updates: optimizer steps of the whole run; for schedules that fall.
        min_lr_ratio: where a falling schedule ends, as a share of ``lr``.
        max_token_age: tokens sampled more than this many versions ago are context only, not trained;
            None trains them all.
        ratio_tolerance: the largest |ratio − 1| allowed on the first optimizer step for tokens of the
            current version; None measures without refusing. Two exact fp32 computations of a sharp
            model differ by up to 2e-4 on the worst of 10⁵ tokens (each is 6e-5 off fp64), by 4e-7 on
            average; a token labelled with other weights is off by far more than 1e-2.
        ratio_mean_tolerance: the same for the mean over tokens, which a wrong temperature, a cut or a
            stale cache moves at once; None measures without refusing.
        policy: the name of the policy that this learner trains.
        others: names of policies that learn elsewhere in the same run: their steps are context only.
        seed: of the order in which groups are dealt into mini-batches.
    """

    lr: float = 3e-4
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    max_grad_norm: float | None = 1.0
    micro_batch_tokens: int | None = None
    num_updates: int = 1
    num_epochs: int = 1
    warmup_updates: int = 0
    schedule: str = "constant"
    total_updates: int | None = None
    min_lr_ratio: float = 0.0
    max_token_age: int | None = None
    ratio_tolerance: float | None = 1e-2
    ratio_mean_tolerance: float | None = 1e-4
    policy: str = "policy"
    others: tuple[str, ...] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        for name, low in (("num_updates", 1), ("num_epochs", 1), ("warmup_updates", 0)):
            self._at_least(name, low)
        for name, low in (("micro_batch_tokens", 1), ("max_token_age", 0)):
            self._at_least(name, low)
        if self.policy in self.others:
            raise ConfigError(
                f"learner: policy={self.policy!r} is among others={self.others}; expected other names"
            )
        for name in ("lr", "max_grad_norm", "ratio_tolerance", "ratio_mean_tolerance", "eps"):
            value = getattr(self, name)
            if value is not None and not (value > 0 and math.isfinite(value)):
                raise ConfigError(f"learner: {name}={value} was given, expected a finite number above 0")
        if self.schedule not in SCHEDULES:
            raise ConfigError(f"learner: schedule={self.schedule!r} was given, expected one of {SCHEDULES}")
        if self.schedule != "constant" and not (self.total_updates or 0) > self.warmup_updates:
            raise ConfigError(
                f"learner: schedule={self.schedule!r} falls until total_updates, which is"
                f" {self.total_updates}; expected more than warmup_updates={self.warmup_updates}"
            )

    def _at_least(self, name: str, low: int) -> None:
        value = getattr(self, name)
        if value is not None and value < low:
            raise ConfigError(f"learner: {name}={value} was given, expected at least {low}")


def lr_at(cfg: LearnerConfig, update: int) -> float:
    """Return the learning rate of optimizer step ``update``, counted from 0 over the whole run.

    lr·(u+1)/warmup during the warmup; then lr, or a fall to lr·min_lr_ratio at ``total_updates``.
    """
    if update < cfg.warmup_updates:
        return cfg.lr * (update + 1) / cfg.warmup_updates
    if cfg.schedule == "constant" or cfg.total_updates is None:
        return cfg.lr
    done = min((update - cfg.warmup_updates) / (cfg.total_updates - cfg.warmup_updates), 1.0)
    height = 1 - done if cfg.schedule == "linear" else 0.5 * (1 + math.cos(math.pi * done))
    return cfg.lr * (cfg.min_lr_ratio + (1 - cfg.min_lr_ratio) * height)
