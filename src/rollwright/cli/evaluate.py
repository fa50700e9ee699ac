"""`rollwright eval`."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from rollwright.cli.evaluate_report import print_found
from rollwright.config import RunConfig, from_values
from rollwright.engine.shipped import find_model
from rollwright.errors import ConfigError, StoreError
from rollwright.store.layout import CHECKPOINTS, CONFIG
from rollwright.store.strict import dumps

if TYPE_CHECKING:
    from rollwright.evaluate.exchange import Exchange
    from rollwright.evaluate.measuring import Bench, Taken


def evaluate(
    what: Path,
    /,
    *,
    task: str | None = None,
    num: int = 200,
    samples: int = 4,
    split: Literal["test", "train"] = "test",
    perturb: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    base: Path | None = None,
    difficulty: Annotated[bool, Parameter(negative="")] = False,
    seed: int = 0,
    threads: int | None = None,
    device: str | None = None,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Measure a run or a model on held-out tasks, sampled at temperature 1 and greedy.

    Both are given, with 95% intervals over tasks: training that only sharpens a noisy model shows in
    the sampled success alone. With several samples a task, pass@k, votes (cons@k), best-of-k by mean logprob
    and first-finish@k follow, without bias. Rollouts that could not be scored are counted, never read as
    wrong.

    For example:

    `rollwright eval runs/first --samples 8`

    `rollwright eval runs/first --perturb temperature=1.5 --perturb "prefix=Well. "`

    `rollwright eval runs/first --base path/to/its/start`

    `rollwright eval path/to/model --task countdown --difficulty`

    Args:
        what: A run folder (its newest checkpoint is measured), the folder of a Hugging Face model, or the
            name of a shipped model.
        task: The task; a run's own without it.
        num: How many tasks.
        samples: Samples per task at temperature 1.
        split: `test` is held out; `train` is what the run trained on.
        perturb: `key=value`, two or more: measure under each alone and under all together, and count the
            tasks that change. Keys: temperature, top_p, top_k, min_p, max_tokens, max_turns, context, prefix,
            suffix, task_options.NAME.
        base: The model before training: how many of its samples one sample is worth.
        difficulty: Predict each task's success from its prompt alone, and name the tasks that are far off.
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
    found = _measure(config, split, console, perturb, base, difficulty)
    if as_json:
        facts = {
            name: dataclasses.asdict(value) for name, value in found.items() if not isinstance(value, list)
        }
        lists = {
            name: [dataclasses.asdict(one) for one in v] for name, v in found.items() if isinstance(v, list)
        }
        head = {"model": str(model), "task": config.task, "split": split, "seed": seed}
        text, _ = dumps({**head, **facts, **lists})
        sys.stdout.write(text + "\n")
    else:
        print_found(console, f"{model} on {config.task}, {split} split", found)
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


def _measure(
    config: RunConfig,
    split: str,
    console: Console,
    perturb: Sequence[str],
    base: Path | None,
    difficulty: bool,
) -> dict[str, Any]:
    """Return what was found by name: two evaluations, their measures, and what else was asked for."""
    from rollwright.evaluate.measuring import Bench, parse_perturbations
    from rollwright.evaluate.samples import report

    if perturb:
        parse_perturbations(perturb)  # a mistake is told before anything is sampled
    if base is not None:
        find_model(base)
    with console.status("loading the model"):
        bench = Bench(config, split)
    num = len(bench.tasks)
    with _bar(console) as bar:
        sampled = bench.take(
            config.eval_samples, 1.0, on_graded=_row(bar, "sampled", num * config.eval_samples)
        )
        greedy = bench.take(1, 0.0, on_graded=_row(bar, "greedy", num))
        found: dict[str, Any] = {"sampled": sampled.evaluation, "greedy": greedy.evaluation}
        found["measures"] = report(list(sampled.samples.values()))
        if perturb:
            row = _row(bar, "perturbed", num * config.eval_samples * (len(perturb) + 1))
            found["perturbed"] = bench.compose(perturb, config.eval_samples, row)
        if base is not None:
            found["exchange"] = _exchange(
                dataclasses.replace(config, model=str(base)), split, sampled, bar, num
            )
    if difficulty:
        found |= _difficulty(bench, sampled)
    bench.close()
    return found


def _exchange(config: RunConfig, split: str, after: Taken, bar: Progress, num: int) -> Exchange:
    """Return what a sample is worth in samples of the model before training, of which 8 times as many are
    taken..


    """
    from rollwright.evaluate.exchange import exchange
    from rollwright.evaluate.measuring import Bench
    from rollwright.evaluate.samples import by_task, ks_up_to

    bench = Bench(config, split)
    num_base = 8 * config.eval_samples
    before = by_task(
        list(bench.take(num_base, 1.0, on_graded=_row(bar, "base", num * num_base)).samples.values())
    )
    bench.close()
    mine = by_task(list(after.samples.values()))
    tasks = [task for task in mine if task in before]
    pairs = [[(len(g[t]), sum(bool(s.is_right) for s in g[t])) for t in tasks] for g in (before, mine)]
    ks = [ks_up_to(min((count for count, _ in counts), default=0)) for counts in pairs]
    return exchange(pairs[0], pairs[1], ks[0], ks[1])


_FOLDS = 5


def _difficulty(bench: Bench, sampled: Taken) -> dict[str, Any]:
    """Return how well the prompts alone tell success, and the tasks that are far off."""
    import numpy as np

    from rollwright.evaluate.difficulty import out_of_group, quality, suspects
    from rollwright.evaluate.measuring import FEATURES, prompt_features
    from rollwright.evaluate.samples import by_task

    groups = by_task(list(sampled.samples.values()))
    features = dict(zip(bench.tasks, prompt_features(bench.parts.model, bench.prompts()), strict=True))
    tasks = list(groups)
    shares = np.array([np.mean([bool(s.is_right) for s in groups[task]]) for task in tasks])
    folds = [str(k % _FOLDS) for k in range(len(tasks))]
    predicted = out_of_group(np.array([features[task] for task in tasks]), shares, folds, FEATURES)
    nums = [len(groups[task]) for task in tasks]
    return {"difficulty": quality(predicted, shares), "suspects": suspects(tasks, predicted, shares, nums)}


def _bar(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}"))
    is_shown = console.is_terminal
    return Progress(*columns, TimeRemainingColumn(), console=console, transient=True, disable=not is_shown)


def _row(bar: Progress, name: str, total: int) -> Callable[[], object]:
    """Return what moves a new bar on when a rollout was graded."""
    row = bar.add_task(name, total=total)
    return lambda: bar.advance(row)
