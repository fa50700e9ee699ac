"""Build the parts of a run from its config."""

from __future__ import annotations

import copy
import inspect
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch

from rollwright.chat import ChatFormat, load_template
from rollwright.config import RunConfig
from rollwright.discovery import load_method, method_factories
from rollwright.drive.asynchronous import AsyncDriver, Limits
from rollwright.drive.inline import InlineDriver, Sink
from rollwright.drive.world import World
from rollwright.engine.api import Engine
from rollwright.engine.checkpoint import Tokenizer, load_model, load_tokenizer
from rollwright.engine.drafts.registry import new_drafter
from rollwright.engine.inprocess import LocalEngine
from rollwright.engine.model import Decoder
from rollwright.engine.shipped import find_model
from rollwright.errors import ConfigError
from rollwright.events import AnyEvent, EmitBatch, Published, Report
from rollwright.grade.reward import load_rewards
from rollwright.learn.checkpoint import load_checkpoint, save_checkpoint
from rollwright.learn.config import LearnerConfig
from rollwright.learn.learner import Learner
from rollwright.method import Method
from rollwright.runner import Runner, Settings
from rollwright.tasks.api import Task
from rollwright.tasks.registry import load_task, shipped_checkpoint
from rollwright.tree import Sampling


@dataclass
class Parts:
    """What a run is made of.

    Args:
        model: the learner's weights.
        engine: samples for training; its model is the learner's, or a copy where both work at once.
    """

    config: RunConfig
    path: Path
    method: Method
    task: Task
    tokenizer: Tokenizer
    model: Decoder
    engine: LocalEngine
    learner: Learner
    world: World
    settings: Settings

    def driver(
        self,
        runner: Runner,
        train: Callable[[EmitBatch], Published],
        journal: Sink,
        on_report: Callable[[Report], None],
        started_at: float,
    ) -> Driver:
        """Return what carries out the runner's commands with these parts."""
        if self.config.driver == "inline":
            return InlineDriver(
                runner, self.engine, self.world, train, journal, on_report, time.monotonic, started_at
            )
        overlap, waits = self.config.overlap, self.config.deadlines
        limits = Limits(
            num_graders=overlap.graders,
            num_environments=overlap.environments,
            grader_s=waits.grader_s,
            environment_s=waits.environment_s,
            engine_s=waits.engine_s,
            publish=overlap.publish,
        )
        return AsyncDriver(
            runner=runner,
            engine=self.engine,
            world=self.world,
            train=train,
            load=self.copy_weights,
            journal=journal,
            on_report=on_report,
            started_at=started_at,
            limits=limits,
        )

    def copy_weights(self) -> None:
        """Give the engine's model the learner's weights, whole; nothing to do where they are the same."""
        if self.engine.model is not self.model:
            with torch.no_grad():
                mine = zip(self.engine.model.parameters(), self.model.parameters(), strict=True)
                for to, source in mine:
                    to.copy_(source)

    def publish(self, version: int) -> None:
        """Put the learner's weights into the engine, as this version."""
        self.copy_weights()
        self.engine.publish(version)

    def engine_metrics(self) -> dict[str, float]:
        """Return what the engine says of itself since the process began: of drafts, where it checks any."""
        drafting = getattr(self.engine, "drafting", None)
        return {} if drafting is None else drafting.report.metrics()

    def evaluator(self) -> Engine:
        """Return an engine that has the learner's weights and nothing of the training in flight."""
        if self.config.driver == "inline" and not self.settings.num_ahead:
            return self.engine
        return LocalEngine(self.model, self.tokenizer, version=self.learner.version)

    def drive_evaluation(self, runner: Runner, engine: Engine) -> None:
        """Run a runner that evaluates to its end."""
        InlineDriver(runner, engine, self.world).run()

    def save(self, folder: Path, keep: int) -> None:
        """Write a checkpoint of the learner into the folder of checkpoints."""
        save_checkpoint(folder, self.learner, {}, keep, self.path)

    def load(self, checkpoint: Path) -> int:
        """Fill the learner from a checkpoint; return its version."""
        load_checkpoint(checkpoint, self.learner)
        return self.learner.version

    def catch_up(self, batches: Sequence[EmitBatch]) -> None:
        """Train again, in order, what was trained after the checkpoint that was loaded."""
        for batch in batches:
            self.learner.update(batch.groups, batch.version)

    def close(self) -> None:
        """Give back what the parts hold beside memory."""


class Driver(Protocol):
    """Carries out a runner's commands (`rollwright.drive`)."""

    arrivals: Callable[[], Iterable[AnyEvent]] | None
    arrivals_s: float

    def run(self, is_resumed: bool = False, extend_to: int | None = None) -> str | None: ...
    def stop(self) -> None: ...


def model_path(config: RunConfig) -> Path:
    """Return the checkpoint to start from: the given one, or the task's shipped warm start."""
    if config.model is not None:
        return find_model(config.model)
    shipped = shipped_checkpoint(config.task)
    if shipped is None:
        raise ConfigError(
            f"task {config.task!r} ships no model; give one with --model, or make one with"
            f" `rollwright warmstart {config.task}`"
        )
    return shipped


def task_of(config: RunConfig) -> Task:
    """Return the task of a run, graded by its reward functions where it names any.

    Raises:
        ConfigError, DataError: the task or a reward function cannot be had.
    """
    rewards = None if config.reward is None else load_rewards(config.reward, config.rewards)
    return load_task(config.task, reward=rewards, **config.task_options)


def plan_of(config: RunConfig) -> tuple[Method, Task, Settings]:
    """Return what a run's decisions depend on; no model is needed for it.

    A method that asks for ``max_tokens`` and is not told is given the most that a rollout may sample.

    Raises:
        ConfigError, DataError: the method or the task cannot be had.
    """
    task = task_of(config)
    settings = settings_of(config, task)
    options = dict(config.method_options)
    factory = method_factories().get(config.method)
    if factory is not None and "max_tokens" in inspect.signature(factory).parameters:
        options.setdefault("max_tokens", settings.max_tokens * settings.max_turns)
    return load_method(config.method, **options), task, settings


def build(config: RunConfig) -> Parts:
    """Build every part of a run, as its driver needs them.

    Raises:
        ConfigError, ModelError, DataError: a name or value that cannot run, before anything is sampled.
    """
    if config.driver == "ray":
        if len(policies := plan_of(config)[0].policies) > 1:
            raise ConfigError(f"driver 'ray' trains one policy; method {config.method!r} has {policies}")
        # Nothing of Ray is imported by any other run.
        from rollwright.training.on_ray import build_on_ray

        return build_on_ray(config)
    parts = build_here(config)
    if config.server.url:
        from rollwright.training.served import ServedParts

        return ServedParts.of(parts)
    if len(parts.method.policies) == 1:
        return parts
    from rollwright.training.several import SeveralParts

    return SeveralParts.of(parts)


def build_here(config: RunConfig) -> Parts:
    """Build every part in this process; see `build`."""
    torch.set_num_threads(config.threads or os.cpu_count() or 1)
    method, task, settings = plan_of(config)
    path = model_path(config)
    model = load_model(path).to(device_of(config.device))
    tokenizer = load_tokenizer(path)
    learner = make_learner(model, method, config)
    eos_ids = sorted({*tokenizer.eos_ids, *model.cfg.eos_ids})
    template = load_template(path) if config.chat == "auto" else None
    chat = None if template is None else ChatFormat(template, tokenizer)
    return Parts(
        config=config,
        path=path,
        method=method,
        task=task,
        tokenizer=tokenizer,
        model=model,
        # A learner that works at the same time must not change the weights that are sampled from.
        engine=LocalEngine(
            copy.deepcopy(model) if config.driver == "async" else model,
            tokenizer,
            drafter=new_drafter(config.drafts.kind) if config.drafts.kind else None,
            draft_tokens=config.drafts.tokens,
        ),
        learner=learner,
        world=World(task, tokenizer, eos_ids, chat),
        settings=settings,
    )


def device_of(name: str) -> torch.device:
    """Return a device that works here.

    Raises:
        ConfigError: PyTorch knows no such device, or this machine has none.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:  # PyTorch asserts where it was built without CUDA
        why = str(error).splitlines()[0]
        raise ConfigError(
            f"device: given {name!r}, which cannot be used here ({why}); expected 'auto', 'cpu', 'cuda', ..."
        ) from error
    return device


def settings_of(config: RunConfig, task: Task) -> Settings:
    """Return the runner's settings; what the config leaves open is the task's."""
    max_turns = config.max_turns or task.max_turns
    s = config.sampling
    return Settings(
        seed=config.seed,
        tasks=tuple(task.ids("train")),
        num_steps=config.num_steps,
        num_tasks=config.num_tasks,
        context=config.context or task.context,
        max_tokens=config.max_tokens or task.max_tokens,
        max_turns=max_turns,
        is_dialogue=task.max_turns > 1,
        sampling=Sampling(s.temperature, s.top_p, s.top_k, s.min_p, (), tuple(task.stop_strings)),
        budget=dict(config.budget),
        retries=config.retries,
        on_failure=config.on_failure,
        max_age=config.max_age,
        rollout_deadline=config.deadlines.rollouts_s,
        learn_deadline=config.deadlines.learner_s,
        retries_by_kind=dict(config.failures.retries),
        on_failure_by_kind=dict(config.failures.on_failure),
        backoff=config.failures.backoff_s,
        min_group=config.failures.min_group,
        quarantine_after=config.failures.quarantine_after,
        quarantine_visits=config.failures.quarantine_visits,
        num_ahead=config.num_ahead,
        max_carry=config.max_carry,
        chunk=config.chunk,
        keep_noise=config.drafts.keep_noise,
    )


def make_learner(model: Decoder, method: Method, config: RunConfig) -> Learner:
    """Return the learner of a run, in whichever process it is."""
    return Learner(model, method.objective, method.reduce, _learner_config(config))


def published_of(batch: EmitBatch, metrics: Mapping[str, float]) -> Published:
    """Return the event that says what an update made of a batch."""
    return Published(
        step=batch.step,
        version=batch.version + 1,
        learner_tokens=int(metrics["learner_tokens"]),
        metrics={name: float(value) for name, value in metrics.items()},
    )


def _learner_config(config: RunConfig) -> LearnerConfig:
    return LearnerConfig(
        lr=config.lr,
        betas=config.betas,
        weight_decay=config.weight_decay,
        max_grad_norm=config.max_grad_norm,
        micro_batch_tokens=config.micro_batch_tokens,
        num_updates=config.num_updates,
        seed=config.seed,
    )
