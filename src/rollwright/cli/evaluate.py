"""`rollwright eval`."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from rollwright.cli.text import number, with_interval
from rollwright.config import RunConfig, from_values
from rollwright.engine.shipped import find_model
from rollwright.errors import ConfigError, StoreError
from rollwright.store.layout import CHECKPOINTS, CONFIG
from rollwright.store.strict import dumps

if TYPE_CHECKING:
    from rollwright.drive.world import World
    from rollwright.training.evaluate import Evaluation
    from rollwright.training.parts import Parts


def evaluate(
    what: Path,
    /,
    *,
    task: str | None = None,
    num: int = 200,
    samples: int = 4,
    split: Literal["test", "train"] = "test",
    seed: int = 0,
    threads: int | None = None,
    device: str | None = None,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Measure a run or a model on held-out tasks, sampled at temperature 1 and greedy.

    Both are given, with 95% intervals over tasks: training that only sharpens a noisy model shows in
    the sampled success alone. Rollouts that could not be scored are counted, never read as wrong.

    For example:

    `rollwright eval runs/first`

    `rollwright eval runs/first --task lake --num 500 --samples 8`

    `rollwright eval path/to/model --task countdown`

    Args:
        what: A run folder (its newest checkpoint is measured), the folder of a Hugging Face model, or the
            name of a shipped model.
        task: The task; a run's own without it.
        num: How many tasks.
        samples: Samples per task at temperature 1.
        split: `test` is held out; `train` is what the run trained on.
        seed: Of the sampling noise.
        threads: Of PyTorch; one per core without it.
        device: `cpu`, `cuda`, ...; the best there is without it.
        as_json: Print one JSON object instead, for programs.
    """
    config, model = _what(what, task)
    config = dataclasses.replace(
        config,
        model=str(model),
        seed=seed,
        threads=threads,
        device=device or "auto",
        eval_tasks=num,
        eval_samples=samples,
        eval_every=1,
    )
    console = Console(stderr=as_json)
    results = _measure(config, split, console)
    if as_json:
        facts = {name: dataclasses.asdict(result) for name, result in results.items()}
        text, _ = dumps({"model": str(model), "task": config.task, "split": split, "seed": seed, **facts})
        sys.stdout.write(text + "\n")
    else:
        _print(console, f"{model} on {config.task}, {split} split", results)
    return 0


def _what(what: Path, task: str | None) -> tuple[RunConfig, Path]:
    """Return the config to build from, and the model."""
    if (what / CONFIG).is_file():
        from rollwright.learn.checkpoint import newest
        from rollwright.store.run import RunFolder

        config = RunFolder.view(what).config()
        model = newest(what / CHECKPOINTS)
        if model is None:
            raise StoreError(f"{what} has no checkpoint yet; it writes its first one when it starts")
        # Only the task, its limits and its grader matter here: budgets and the like would end it early.
        kept = ("task", "reward", "max_tokens", "context", "max_turns", "chat")
        values = {name: getattr(config, name) for name in kept}
        if task is not None and task != config.task:
            values = {"task": task}
        return from_values({name: value for name, value in values.items() if value is not None}), model
    find_model(what)  # the error comes before anything is loaded
    if task is None:
        raise ConfigError(f"{what} is a model, not a run: say what to measure it on with --task NAME")
    return from_values({"task": task}), what


def _measure(config: RunConfig, split: str, console: Console) -> dict[str, Evaluation]:
    from rollwright.training.evaluate import evaluate as measure
    from rollwright.training.parts import build
    from rollwright.tree import Sampling

    with console.status("loading the model"):
        parts = build(config)
    tasks = parts.task.ids(split)[: config.eval_tasks]
    stops = parts.settings.sampling.stop_strings
    results = {}
    with _bar(console) as bar:
        for name, temperature, samples in (("sampled", 1.0, config.eval_samples), ("greedy", 0.0, 1)):
            row = bar.add_task(name, total=len(tasks) * samples)
            world = _counted(parts, bar, row)
            sampling = Sampling(temperature, stop_strings=stops)
            results[name], _ = measure(parts.engine, world, parts.settings, tasks, samples, sampling)
    return results


def _bar(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}"))
    is_shown = console.is_terminal
    return Progress(*columns, TimeRemainingColumn(), console=console, transient=True, disable=not is_shown)


def _counted(parts: Parts, bar: Progress, row: TaskID) -> World:
    """Return a world that moves a bar on when a rollout was graded."""
    from rollwright.drive.world import World

    class Counted(World):
        def score(self, *arguments: Any) -> Any:
            bar.advance(row)
            return super().score(*arguments)

    return Counted(parts.task, parts.world.tokenizer, tuple(parts.world.eos_ids), parts.world.chat)


def _print(console: Console, title: str, results: dict[str, Evaluation]) -> None:
    from rollwright.cli.report import table_of

    console.print(title, highlight=False, markup=False, style="bold", soft_wrap=True)
    table = table_of("", "success", ">reward", ">length", ">tasks", ">rollouts", ">not scored")
    for name, result in results.items():
        counts = (result.num_tasks, result.num_rollouts, result.num_not_scored)
        numbers = map(number, (result.reward, result.length, *counts))
        table.add_row(name, with_interval(result.success, result.low, result.high), *numbers)
    console.print(table)
