"""What the tests of the lab share: hand-made journals, and runs of the simulator with a journal."""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rollwright.config import RunConfig
from rollwright.discovery import load_method
from rollwright.drive.inline import InlineDriver
from rollwright.drive.virtual import EngineModel, LogNormal, Model, TaskModel, VirtualDriver
from rollwright.drive.world import World
from rollwright.events import (
    AnyCommand,
    AnyEvent,
    CancelTimer,
    EmitBatch,
    Observed,
    Published,
    Report,
    Reset,
    Sampled,
    Score,
    Scored,
    SetTimer,
    Submit,
)
from rollwright.lab.simulate import Recorder
from rollwright.runner import Runner, Settings
from rollwright.store.journal import Journal
from rollwright.store.layout import JOURNAL, LOCK
from rollwright.store.run import RunFolder
from rollwright.testing.fake import FakeEngine, ToyTask, ToyTokenizer
from rollwright.training.parts import plan_of
from rollwright.tree import Group, Node, Origin, Sampling, StopReason, Trajectory

Record = tuple[AnyEvent, Sequence[AnyCommand]]


def write(folder: Path, records: Sequence[Record]) -> Path:
    """Write a journal of these records and return its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with Journal.open(folder / JOURNAL) as journal:
        for event, commands in records:
            journal.append(event, commands)
    return folder


def submit(name: str, start: int = 2, parent: str | None = None, attempt: int = 0) -> Submit:
    """Ask for tokens of the stream ``"<group>/<stream>"``, its first ask."""
    group = name.rpartition("/")[0]
    return Submit(
        ask=f"{name}:0",
        group=group,
        parent=parent or f"{group}/root",
        at=start,
        stream=1,
        start=start,
        max_tokens=99,
        sampling=Sampling(),
        attempt=attempt,
    )


def sampled(name: str, num: int, at: float, stop: StopReason | None = StopReason.EOS, **more: Any) -> Sampled:
    return Sampled(ask=f"{name}:0", tokens=(1,) * num, logprobs=(-1.0,) * num, stop=stop, at=at, **more)


def score(name: str) -> Score:
    return Score(ask=f"{name}:1", group=name.rpartition("/")[0], leaf=f"{name}.0")


def scored(name: str, reward: float | None, at: float) -> Scored:
    status = "grader_error" if reward is None else "right" if reward else "wrong"
    return Scored(ask=f"{name}:1", reward=reward, status=status, at=at)


def reset(group: str) -> Reset:
    return Reset(ask=f"{group}/root", group=group, task=group.rpartition("#")[0])


def prompted(group: str, at: float) -> Observed:
    return Observed(ask=f"{group}/root", tokens=(1, 2), at=at)


def batch(step: int, names: Sequence[str]) -> EmitBatch:
    """A batch of these streams, a group for each of their groups."""
    members: dict[str, list[str]] = {}
    for name in names:
        members.setdefault(name.rpartition("/")[0], []).append(name)
    groups = []
    for group, streams in members.items():
        root = Node(f"{group}/root", None, 0, Origin.PROMPT, (1, 2))
        nodes = {root.id: root}
        for name in streams:
            nodes[f"{name}.0"] = Node(f"{name}.0", root.id, 2, Origin.SAMPLED, (), logprobs=())
        trajectories = tuple(Trajectory(f"{name}.0", k, score=1.0) for k, name in enumerate(streams))
        groups.append(Group(group, group.rpartition("#")[0], nodes, trajectories))
    return EmitBatch(step=step, version=step, groups=tuple(groups))


def published(step: int, at: float) -> Published:
    return Published(step=step, version=step + 1, at=at)


def opened(step: int, seconds: float = 100.0) -> SetTimer:
    return SetTimer(timer=f"rollouts:{step}", seconds=seconds, what="rollouts of the step")


def learning(step: int, seconds: float = 50.0) -> list[AnyCommand]:
    timer = SetTimer(timer=f"learn:{step}", seconds=seconds, what="the learner's update")
    return [CancelTimer(timer=f"rollouts:{step}"), timer]


def report(step: int, **metrics: float) -> list[AnyCommand]:
    return [CancelTimer(timer=f"learn:{step}"), Report(step=step, metrics=metrics)]


def simulated(
    folder: Path, method: str = "grpo", model: Model | None = None, **changes: Any
) -> tuple[Any, Any]:
    """Record a run of the simulator with long-tailed lengths; return its driver and its recorder."""
    fields: dict[str, Any] = {
        "seed": 1,
        "tasks": tuple(f"t/{k}" for k in range(40)),
        "num_steps": 6,
        "num_tasks": 4,
        "context": 2048,
        "max_tokens": 1500,
        "chunk": 64,
    }
    model = model or Model(
        engine=EngineModel(num_workers=1, num_slots=64), tasks=TaskModel(response=LogNormal(100, 1))
    )
    runner, recorder = Runner(load_method(method), Settings(**{**fields, **changes})), Recorder()
    folder.mkdir(parents=True, exist_ok=True)
    with Journal.open(folder / JOURNAL) as journal:
        driver = VirtualDriver(
            runner, model, journal=journal, on_command=recorder.watch, on_closed=recorder.close
        )
        driver.run()
    return driver, recorder


def toy(folder: Path, method: str, num_steps: int = 4, max_turns: int = 2, bad: str = "\n") -> Runner:
    """Record a run of the toy task on the fake engine; return a runner of the same run, before its start."""
    task = ToyTask(num_tasks=12, max_turns=max_turns, bad=bad)
    settings = Settings(
        seed=1,
        tasks=tuple(task.ids("train")),
        num_steps=num_steps,
        num_tasks=4,
        context=task.context,
        max_tokens=task.max_tokens,
        max_turns=max_turns,
        is_dialogue=max_turns > 1,
        chunk=5,
    )

    def train(batch: EmitBatch) -> Published:
        return Published(step=batch.step, version=batch.version + 1)

    folder.mkdir(parents=True, exist_ok=True)
    with Journal.open(folder / JOURNAL) as journal:
        runner = Runner(load_method(method), settings)
        InlineDriver(runner, FakeEngine(), World(task, ToyTokenizer(), (0,)), train, journal).run()
    return Runner(load_method(method), settings)


TOY = f"{Path(__file__).with_name('toy_task.py')}:toy"


def toy_folder(path: Path, method: str = "grpo", num_steps: int = 3, **changes: Any) -> Path:
    """Record a whole run folder of the toy task, as `Training` would, but without a model."""
    config = RunConfig(task=TOY, method=method, num_steps=num_steps, num_tasks=3, chunk=4, **changes)
    chosen, task, settings = plan_of(config)
    runner = Runner(chosen, settings)
    world = World(task, ToyTokenizer(), (0,))

    def train(batch: EmitBatch) -> Published:
        return Published(step=batch.step, version=batch.version + 1)

    with RunFolder.create(path, config) as folder, folder.journal() as journal:
        metrics = folder.metrics()

        def report(report: Report) -> None:
            metrics.append({"kind": "step", "step": report.step, **report.metrics})

        InlineDriver(runner, FakeEngine(), world, train, journal, report).run()
        metrics.close()
    return path


def cut(source: Path, target: Path, num_records: int | None = None, num_bytes: int | None = None) -> Path:
    """Copy a run folder with only the beginning of its journal."""
    shutil.copytree(source, target)
    data = (source / JOURNAL).read_bytes()
    if num_records is not None:
        num_bytes = sum(map(len, data.splitlines(keepends=True)[: num_records + 1]))
    (target / JOURNAL).write_bytes(data[:num_bytes])
    return target


def lock(folder: Path, pid: int, host: str | None = None) -> None:
    """Write a lock file as a process of this pid would."""
    text = json.dumps({"pid": pid, "host": host or socket.gethostname()})
    (folder / LOCK).write_text(text)
