"""What the tests of the command line share: running it in this process, and a recorded toy run."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from rollwright.cli.main import main
from rollwright.config import RunConfig
from rollwright.discovery import load_method
from rollwright.drive.inline import InlineDriver
from rollwright.drive.world import World
from rollwright.events import Published, Report
from rollwright.runner import Runner, Settings
from rollwright.store.run import RunFolder
from rollwright.testing.fake import FakeEngine, ToyTask, ToyTokenizer

COMMAND = [sys.executable, "-m", "rollwright.cli.main"]  # for a process of its own
SMALL = (
    *("countdown", "--num-tasks", "2", "--max-tokens", "40", "--method-options.each", "4", "--seed", "3"),
    *("--threads", "1", "--device", "cpu", "--checkpoint-every", "2", "--lr", "1e-2"),
)


class Result(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Result]


@pytest.fixture
def rollwright(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command in this process."""

    def run(*words: object) -> Result:
        capsys.readouterr()
        code = main([str(word) for word in words])
        return Result(code, *capsys.readouterr())

    return run


@dataclasses.dataclass(frozen=True)
class Recorded:
    path: Path
    runner: Runner
    reports: list[Report]
    groups: list  # every closed group with its fates, in order


def record(path: Path, method: str = "dapo", bad: str = "\n", num_steps: int = 12) -> Recorded:
    """Record a run of the toy task on the fake engine, as `Training` records one."""
    task = ToyTask(num_tasks=60, share=0.4, bad=bad)
    config = RunConfig(task="toy", method=method, num_steps=num_steps, num_tasks=4, budget={"rollouts": 9e9})
    settings = Settings(
        seed=1,
        tasks=tuple(task.ids("train")),
        num_steps=num_steps,
        num_tasks=4,
        context=task.context,
        max_tokens=task.max_tokens,
        chunk=5,
        budget=config.budget,
    )
    folder = RunFolder.create(path, config)
    runner = Runner(load_method(method), settings)
    journal, metrics = folder.journal(), folder.metrics()
    shards = folder.shards(steps_per_shard=5, decode=ToyTokenizer().decode)
    reports: list[Report] = []
    groups: list = []

    def report(report: Report) -> None:
        closed = runner.take_closed()
        groups.extend(closed)
        for step in sorted({c.step for c in closed}):
            mine = [c for c in closed if c.step == step]
            fates = {leaf: fate for c in mine for leaf, fate in c.fates.items()}
            shards.add(step, [c.group for c in mine], fates, version=report.step)
        metrics.append({"kind": "step", "step": report.step, **report.metrics})
        reports.append(report)

    def train(batch) -> Published:
        return Published(step=batch.step, version=batch.version + 1, learner_tokens=7)

    world = World(task, ToyTokenizer(), (0,))
    InlineDriver(runner, FakeEngine(), world, train, journal, report).run()
    journal.close()
    shards.flush()
    metrics.close()
    folder.close()
    return Recorded(path, runner, reports, groups)


@pytest.fixture(scope="session")
def toy_run(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """A finished DAPO run: 12 steps of 4 prompts."""
    return record(tmp_path_factory.mktemp("toy") / "run")


@pytest.fixture(scope="session")
def recorder() -> Callable[..., Recorded]:
    """Record another toy run; see `record`."""
    return record


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory) -> Path:
    """A random decoder of two narrow layers, as a Hugging Face folder."""
    from rollwright.engine.checkpoint import save_model
    from rollwright.engine.model import new_model
    from rollwright.tasks._recipe import Recipe
    from rollwright.tasks.tokenizer import character_tokenizer, save_tokenizer
    from rollwright.tasks.warmstart import decoder_config

    path = tmp_path_factory.mktemp("model") / "tiny"
    path.mkdir()
    tokenizer = character_tokenizer()
    recipe = Recipe(width=32, num_layers=2, num_heads=2, inner=64)
    save_tokenizer(tokenizer, path)
    save_model(new_model(decoder_config(recipe, tokenizer.get_vocab_size()), 0), path)
    return path


@pytest.fixture
def train(rollwright: Run, tiny_model: Path) -> Run:
    """Train the tiny model on a small, repeatable run, in this process."""
    return lambda *words: rollwright("train", *SMALL, "--model", tiny_model, *words)


@pytest.fixture
def process(tiny_model: Path) -> list[str]:
    """The same command for a process of its own."""
    return [*COMMAND, "train", *SMALL, "--model", str(tiny_model)]
