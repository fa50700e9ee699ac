"""A cluster and a workload by a few numbers, and the schedulers that may run on it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from rollwright.discovery import load_method
from rollwright.drive.place.cache_aware import CacheAware
from rollwright.drive.place.feedback_queue import FeedbackQueue
from rollwright.drive.place.kv_shares import KVShares
from rollwright.drive.placement import LeastLoaded, Placement
from rollwright.drive.virtual.accelerators import roofline, training
from rollwright.drive.virtual.balance import Balance
from rollwright.drive.virtual.distributions import Constant, Distribution, LogNormal
from rollwright.drive.virtual.engine_model import Drafts
from rollwright.drive.virtual.model import Model, Planner, ServiceModel, TaskModel
from rollwright.errors import ConfigError
from rollwright.method import Method
from rollwright.runner import Settings
from rollwright.stage import Generate


@dataclass(frozen=True, slots=True)
class Setup:
    """A cluster and a workload.

    Args:
        num_workers: workers in all, for rollouts and training.
        accelerator, shape: names of `rollwright.drive.virtual.accelerators`.
        num_devices: devices of a worker.
        num_tasks, each: groups of a batch, rollouts of a group.
        tasks: lengths, environments, rewards.
        max_tokens: sampled tokens in one turn.
        max_turns: sampled turns of a rollout; more than 1 makes it a dialogue.
        services: prompts, environment steps and grades.
        num_steps: learner steps; the first ``num_warm`` of them are not measured.
        seed: of everything.
        switch_seconds: what an update takes beside its tokens: weights and memory change hands.
        engine, learner: fields of `EngineModel` and `LearnerModel` that shall be otherwise.
        kinds: first parts of the tasks' ids, in turn; more than one mixes workloads (`Model.mix`).
        mix: task models by kind.
    """

    num_workers: int = 64
    accelerator: str = "H800"
    shape: str = "Qwen3-8B"
    num_devices: int = 1
    num_tasks: int = 128
    each: int = 8
    tasks: TaskModel = field(
        default_factory=lambda: TaskModel(prompt=Constant(256), response=LogNormal(2000, 1.0))
    )
    max_tokens: int = 16384
    max_turns: int = 1
    services: ServiceModel = field(default_factory=ServiceModel)
    num_steps: int = 12
    num_warm: int = 4
    seed: int = 0
    switch_seconds: float = 5.0
    engine: dict[str, Any] = field(default_factory=dict)
    learner: dict[str, Any] = field(default_factory=dict)
    kinds: tuple[str, ...] = ("model",)
    mix: tuple[tuple[str, TaskModel], ...] = ()

    def __post_init__(self) -> None:
        if self.num_workers < 1:
            raise ConfigError(f"Setup: num_workers = {self.num_workers}; expected at least 1")
        if not 0 <= self.num_warm < self.num_steps:
            raise ConfigError(
                f"Setup: num_warm = {self.num_warm} of num_steps = {self.num_steps}; expected fewer, so that"
                " some steps are measured"
            )

    def with_lengths(self, response: Distribution) -> Setup:
        """Return the setup with other lengths of turns."""
        return dataclasses.replace(self, tasks=dataclasses.replace(self.tasks, response=response))


@dataclass(frozen=True, slots=True)
class Scheduler:
    """One way to run a setup.

    Args:
        name: what it is called.
        method: a registered method.
        options: of the method; ``each`` comes from the setup.
        num_training: workers set aside for training; 0 lets all workers do both in turn.
        num_ahead, max_carry: as in `Settings`.
        per_worker: options that are so many for each worker that rolls out (CoPRIS' ``num_flying``).
        generate: another stage in the method's place; None is the method's own.
        placement, planner: as in `Model`.
        engine, learner: fields of the models that it changes.
        buckets: pools of workers: (name, share of the workers that roll out, devices of a worker, slots).
    """

    name: str
    method: str = "grpo"
    options: dict[str, Any] = field(default_factory=dict)
    num_training: int = 0
    num_ahead: int = 0
    max_carry: int | None = None
    per_worker: dict[str, float] = field(default_factory=dict)
    generate: Generate | None = None
    placement: Placement = field(default_factory=LeastLoaded)
    planner: Planner | None = None
    engine: dict[str, Any] = field(default_factory=dict)
    learner: dict[str, Any] = field(default_factory=dict)
    buckets: tuple[tuple[str, float, int, int], ...] = ()

    def build(self, setup: Setup) -> tuple[Method, Settings, Model]:
        """Return what `rollwright.lab.simulate.simulate` takes.

        Raises:
            ConfigError: no worker is left for rollouts.
        """
        num_rolling = setup.num_workers - self.num_training
        if num_rolling < 1:
            raise ConfigError(
                f"{self.name}: {self.num_training} of {setup.num_workers} workers train; leave one at least"
            )
        per_worker = {name: max(1, round(num * num_rolling)) for name, num in self.per_worker.items()}
        method = load_method(self.method, each=setup.each, **self.options, **per_worker)
        if self.generate is not None:
            method = dataclasses.replace(method, generate=self.generate)
        return method, self._settings(setup), self._model(setup, num_rolling)

    def _settings(self, setup: Setup) -> Settings:
        num = 64 * setup.num_tasks
        kinds = setup.kinds
        prompt = setup.tasks.prompt.at(0.999)
        return Settings(
            seed=setup.seed,
            tasks=tuple(f"{kinds[i % len(kinds)]}/train/{i}" for i in range(num)),
            num_steps=setup.num_steps,
            num_tasks=setup.num_tasks,
            context=int(prompt + setup.max_turns * (setup.max_tokens + 4096)) + 2,
            max_tokens=setup.max_tokens,
            max_turns=setup.max_turns,
            is_dialogue=setup.max_turns > 1,
            num_ahead=self.num_ahead,
            max_carry=self.max_carry,
            rollout_deadline=1e9,
            learn_deadline=1e9,
            chunk=0,
        )

    def _model(self, setup: Setup, num_rolling: int) -> Model:
        changes = {**setup.engine, **self.engine}
        engines = [roofline(setup.accelerator, setup.shape, num_rolling, setup.num_devices, **changes)]
        if self.buckets:
            engines = []
            for name, share, num_devices, num_slots in self.buckets:
                num = max(1, round(share * num_rolling * setup.num_devices / num_devices))
                fields = {**changes, "pool": name, "num_slots": num_slots}
                engines.append(roofline(setup.accelerator, setup.shape, num, num_devices, **fields))
        num_training = (self.num_training or setup.num_workers) * setup.num_devices
        learner = training(
            setup.accelerator,
            setup.shape,
            num_training,
            **{"step_seconds": setup.switch_seconds, **setup.learner, **self.learner},
        )
        return Model(
            engine=engines[0],
            tasks=setup.tasks,
            services=setup.services,
            learner=learner,
            placement=self.placement,
            others=tuple(engines[1:]),
            mix=setup.mix,
            planner=self.planner,
        )


def standard(setup: Setup) -> dict[str, Scheduler]:
    """Return the schedulers that `rollwright simulate` knows, by name.

    ``sync`` is the baseline: all workers roll out, then all of them train. Those that overlap set a quarter
    of the workers aside for training; ``libra`` moves workers between both, and joins the devices of a
    quarter of them by four.
    """
    quarter = max(1, setup.num_workers // 4)
    share = 1 / len(setup.kinds)
    per_worker = setup.num_tasks * setup.each / setup.num_workers
    drafts = Drafts(num=3, accept=0.6, max_live=32)
    chunk = max(256, setup.max_tokens // 8)
    known = [
        Scheduler("sync"),
        Scheduler("april", "april", {"oversample": 2.0}),
        Scheduler("copris", "copris", per_worker={"num_flying": per_worker}),
        Scheduler("seer", "seer", {"chunk": chunk}, engine={"fetch_seconds": 2e-6, "drafts": drafts}),
        Scheduler("war", placement=CacheAware(), engine={"drafts": drafts}),
        Scheduler("rollplex", learner={"prefix_early": True}),
        Scheduler("async", "areal", num_training=quarter, num_ahead=1),
        Scheduler("areal", "april", {"oversample": 2.0}, quarter, num_ahead=1, max_carry=3),
        Scheduler("roll_flash", "april", {"oversample": 1.25}, quarter, num_ahead=1, max_carry=1),
        Scheduler(
            "libra",
            "areal",
            num_training=1,
            num_ahead=2,
            placement=FeedbackQueue(),
            planner=Balance(start=0.25),
            buckets=(("short", 0.75, setup.num_devices, 256), ("long", 0.25, 4 * setup.num_devices, 64)),
        ),
        Scheduler("misa_t", placement=KVShares(tuple((kind, share) for kind in setup.kinds))),
    ]
    return {scheduler.name: scheduler for scheduler in known}
