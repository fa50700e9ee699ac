"""`rollwright warmstart`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from rollwright.cli.text import duration, number, with_interval
from rollwright.errors import StoreError


def warmstart(
    task: str,
    /,
    *,
    out: Path | None = None,
    seed: int = 0,
    steps: int | None = None,
    noise: float | None = None,
    batch: int | None = None,
    num_eval: int = 400,
    num_samples: int = 4,
    threads: int | None = None,
) -> int:
    """Make a small model for a task, from scratch, out of imperfect demonstrations.

    A model must solve a task now and then before it can learn from its own rollouts. This trains a
    decoder of under a million parameters on what the task's own imperfect solver shows, saves it as a
    Hugging Face folder, and measures it on held-out tasks. The built-in tasks ship such models.

    For example:

    `rollwright warmstart countdown`

    `rollwright warmstart my_task.py:factory --steps 300 --noise 0.5 --out models/mine`

    Then: `rollwright train countdown --model models/countdown`

    Args:
        task: A task's name, `jsonl:FILE.jsonl`, or `FILE.py:FUNCTION`.
        out: Folder for the model, new or empty; `models/TASK` without it.
        seed: Of the weights and the demonstrations.
        steps: Optimiser steps, at least 1; the task's recipe without it.
        noise: How imperfect the demonstrations are, from 0 to 1; the task's recipe without it.
        batch: Demonstrations a step; the task's recipe without it.
        num_eval: Held-out tasks to measure the model on.
        num_samples: Samples of each of them at temperature 1.
        threads: Of PyTorch; one per core without it.
    """
    folder = out or Path("models") / re.sub(r"[^\w.-]+", "-", task).strip("-")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise StoreError(f"{folder} is not empty; nothing is overwritten. Choose another folder with --out")
    console = Console()
    settings = {"seed": seed, "steps": steps, "noise": noise, "batch": batch}
    record = _train(console, task, folder, threads, num_eval=num_eval, num_samples=num_samples, **settings)
    _print(console, task, folder, record)
    return 0


def _train(console: Console, task: str, folder: Path, threads: int | None, **settings: Any) -> dict[str, Any]:
    import torch

    from rollwright.tasks.warmstart import warmstart as make

    if threads is not None:
        torch.set_num_threads(threads)
    columns = (
        TextColumn("step {task.completed}/{task.total}"),
        BarColumn(),
        TextColumn("loss {task.fields[loss]}"),
    )
    is_shown = console.is_terminal
    with Progress(*columns, TimeRemainingColumn(), console=console, disable=not is_shown) as bar:
        row = bar.add_task("", total=settings["steps"], loss="-")

        def progress(done: int, total: int, loss: float) -> None:
            bar.update(row, completed=done, total=total, loss=number(loss))
            if not is_shown and (done % 50 == 0 or done == total):
                console.print(f"step {done}/{total}  loss {number(loss)}", highlight=False)
            if done == total:
                console.print("measuring it on held-out tasks")

        record: dict[str, Any] = make(task, folder, progress=progress, **settings)
    return record


def _print(console: Console, task: str, folder: Path, record: dict[str, Any]) -> None:
    from rollwright.cli.report import table_of

    console.print(
        f"{folder}: {number(record['num_parameters'])} parameters, trained in {duration(record['seconds'])}",
        soft_wrap=True,
        highlight=False,
    )
    table = table_of("held out", "success", ">length", ">tasks", ">not scored")
    for name, result in record["held_out"].items():
        table.add_row(
            name,
            with_interval(result["success"], result["low"], result["high"]),
            *(number(result[key]) for key in ("length", "num_tasks", "num_not_scored")),
        )
    console.print(table)
    console.print(f"train it: rollwright train {task} --model {folder}", soft_wrap=True, highlight=False)
