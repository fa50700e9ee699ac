"""`rollwright compare`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypedDict, Unpack

from cyclopts import Parameter
from rich.console import Console

from rollwright.cli.flags import Flags, group_of, overrides
from rollwright.errors import ConfigError, RollwrightError

if TYPE_CHECKING:
    from rollwright.compare.plan import Plan
    from rollwright.compare.run import Comparison

# The comparison sets these itself (`rollwright.compare.plan.TAKEN`).
_OWN = ("method", "seed", "budget", "out", "resume", "eval_every", "method_options")
_make: Any = TypedDict
RunFlags: Any = _make(
    "RunFlags", {name: kind for name, kind in Flags.__annotations__.items() if name not in _OWN}, total=False
)


def compare(
    task: str | None = None,
    /,
    *,
    methods: str | None = None,
    budget: str | None = None,
    seeds: str | None = None,
    points: int = 8,
    target: float | None = None,
    alpha: float = 0.05,
    drop_one: Annotated[bool, Parameter(negative="")] = False,
    until_decided: Annotated[bool, Parameter(negative="")] = False,
    jobs: int | None = None,
    out: Annotated[Path | None, Parameter(group=group_of("out"))] = None,
    resume: Annotated[Path | None, Parameter(group=group_of("out"))] = None,
    **flags: Unpack[RunFlags],  # type: ignore[misc]
) -> int:
    """Compare methods on TASK at one budget, seed by seed, and say what the seeds can tell.

    Runs with one seed share noise, prompts and held-out tasks, and are looked at as pairs. Every run has its
    own folder; a comparison that was stopped goes on with `--resume`, and takes more seeds at any time
    without more errors. The report lies in its folder: report.html, result.json, points.parquet.

    For example:

    `rollwright compare lake --methods grpo,dapo --budget 20k-tokens --seeds 5`

    `rollwright compare lake --methods grpo,grpo:each=16,grpo@lr=1e-3 --budget 500-rollouts --seeds 3,7,11`

    `rollwright compare countdown --methods dapo --drop-one --budget 50k-tokens --seeds 5 --until-decided`

    `rollwright compare --resume compares/first --seeds 20`

    Args:
        task: A task's name (`rollwright tasks` lists them).
        methods: Names with commas between, the first is the baseline. `name:option=value` sets an option of
            the method, `name@key=value` a setting of the run.
        budget: Of every run: an amount and `tokens` (sampled), `rollouts`, `learner-tokens` or `seconds`.
        seeds: How many (from 0), or the seeds themselves with commas between.
        points: Evaluations along the budget.
        target: Success whose price is measured; halfway from start to the best end without it.
        alpha: Chance of any false finding, however often one looks.
        drop_one: Add the method without each of its parts (it must be the only one).
        until_decided: Begin no more seeds of a method once it is told from the baseline.
        jobs: Runs side by side; as many as there are cores for without it.
        out: Folder of the comparison; a new one under compares/ without it.
        resume: Folder of a comparison to go on with, or to report again.
    """
    console = Console()
    plan, folder = _plan(
        task, methods, budget, seeds, points, drop_one, out, resume, overrides(flags), console
    )
    from rollwright.compare.plan import check, save
    from rollwright.compare.run import Comparison
    from rollwright.compare.sequential import SequentialTest

    test = SequentialTest(alpha)
    with console.status("checking every arm"):
        check(plan)
    save(plan, folder)
    comparison = Comparison(plan, folder, test, until_decided)
    is_stopped = _run(comparison, console, jobs)
    _report(comparison, console, target)
    if is_stopped:
        console.print(
            f"stopped. Go on with: rollwright compare --resume {folder}", soft_wrap=True, highlight=False
        )
        return 130
    return 1 if comparison.failed else 0


def _plan(
    task: str | None,
    methods: str | None,
    budget: str | None,
    seeds: str | None,
    points: int,
    drop_one: bool,
    out: Path | None,
    resume: Path | None,
    settings: dict[str, Any],
    console: Console,
) -> tuple[Plan, Path]:
    """Return the plan, whole: new, or as a folder has it with what was added."""
    import dataclasses

    from rollwright.compare.budget import parse_budget
    from rollwright.compare.plan import PLAN, Plan, as_seeds, extend, load, parse_arms

    if resume is not None:
        refused = [name for name, value in (("TASK", task), ("--budget", budget), ("--out", out)) if value]
        if refused or settings or drop_one:
            names = ", ".join([*refused, *settings, *(["--drop-one"] if drop_one else [])])
            raise ConfigError(
                f"--resume goes on with a comparison as it was started; given with it: {names}. Expected at "
                "most --seeds and --methods to add, and how to report"
            )
        old = load(resume)
        new = dataclasses.replace(
            old,
            seeds=as_seeds(seeds) if seeds else old.seeds,
            arms=parse_arms(methods) if methods else old.arms,
        )
        return extend(old, new), resume
    missing = [
        name for name, value in (("TASK", task), ("--methods", methods), ("--budget", budget)) if not value
    ]
    if missing or task is None or methods is None or budget is None:
        raise ConfigError(f"compare: {', '.join(missing)} not given; see `rollwright compare --help`")
    arms = parse_arms(methods)
    if drop_one:
        arms = _ablated(arms, console)
    values = {key: list(value) if isinstance(value, tuple) else value for key, value in settings.items()}
    plan = Plan(task, arms, parse_budget(budget), as_seeds(seeds or "5"), points, values)
    folder = out or _new_folder(plan)
    if (folder / PLAN).is_file():
        plan = extend(load(folder), plan)
    return plan, folder


def _ablated(arms: tuple[Any, ...], console: Console) -> tuple[Any, ...]:
    from rollwright.ablation import parts, without
    from rollwright.compare.plan import ablate
    from rollwright.discovery import load_method

    if len(arms) != 1:
        raise ConfigError(
            f"--drop-one: given {len(arms)} methods; expected one, whose parts are left out in turn"
        )
    method = load_method(arms[0].method, **arms[0].options)
    found = []
    for name in parts(method):
        try:
            without(method, name)
            found.append(name)
        except ConfigError as error:  # another part needs it, so there is no such arm
            console.print(f"not left out: {error}", soft_wrap=True, highlight=False, markup=False)
    if not found:
        raise ConfigError(f"--drop-one: {arms[0].label} is plain GRPO, which has no part to leave out")
    return ablate(arms[0], found)


def _new_folder(plan: Plan) -> Path:
    name = f"{time.strftime('%Y%m%d-%H%M%S')}-{plan.task.replace('/', '-').replace(':', '-')}"
    path, number = Path("compares") / name, 1
    while path.exists():
        number += 1
        path = Path("compares") / f"{name}-{number}"
    return path


def _run(comparison: Comparison, console: Console, jobs: int | None) -> bool:
    """Make the runs that are missing; say whether it was stopped before all were made."""
    from rollwright.cli.compare_display import Display

    with Display(comparison, console) as display:
        comparison.on_row, comparison.on_end = display.row, display.end
        try:
            comparison.run(jobs)
        except KeyboardInterrupt:
            return True
    return False


def _report(comparison: Comparison, console: Console, target: float | None) -> None:
    from rollwright.cli.compare_display import print_result
    from rollwright.compare.export import write
    from rollwright.compare.result import result_of

    with console.status("reading the runs"):
        runs = list(comparison.runs.values())
        result = result_of(comparison.plan, runs, comparison.test, target, comparison.failed)
    files = write(result, comparison.out)
    print_result(console, result)
    if not any(arm.num_done for arm in result.arms) and comparison.failed:
        first = next(iter(comparison.failed.values()))
        raise RollwrightError(f"no run of the comparison came to its end; the first failed with: {first}")
    console.print(f"\nreport: {files[0]}", soft_wrap=True, highlight=False, markup=False)
