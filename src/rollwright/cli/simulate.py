"""`rollwright simulate`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Group, Parameter
from rich.console import Console
from rich.text import Text

from rollwright.cli.report import table_of
from rollwright.cli.text import number, percent
from rollwright.errors import ConfigError

if TYPE_CHECKING:
    from rollwright.lab.simulation.compare import Row
    from rollwright.lab.simulation.setup import Scheduler, Setup

_CLUSTER, _WORK = Group("Cluster", sort_key=1), Group("Workload", sort_key=2)
_OUT = Group("Output", sort_key=3)
_COLUMNS = ("scheduler", ">tok/s", ">×", ">step s", ">tail s", ">idle", ">learner", ">age", ">bias")

_LEGEND = (
    "tok/s: response tokens trained on; tail: the last tenth of a step's rollouts; idle: of the engines;",
    "learner: its idle time; age: versions, mean/most; bias: distance of trained lengths from all begun.",
)


def simulate(
    schedulers: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    /,
    *,
    workers: Annotated[int, Parameter(group=_CLUSTER)] = 64,
    accelerator: Annotated[str, Parameter(group=_CLUSTER)] = "H800",
    shape: Annotated[str, Parameter(group=_CLUSTER)] = "Qwen3-8B",
    devices: Annotated[int, Parameter(group=_CLUSTER)] = 1,
    failures: Annotated[float | None, Parameter(group=_CLUSTER)] = None,
    dissemination: Annotated[float | None, Parameter(group=_CLUSTER)] = None,
    price: Annotated[float, Parameter(group=_CLUSTER)] = 0.0,
    num_tasks: Annotated[int, Parameter(group=_WORK)] = 128,
    each: Annotated[int, Parameter(group=_WORK)] = 8,
    lengths: Annotated[str, Parameter(group=_WORK)] = "lognormal:2000:1",
    alike: Annotated[float, Parameter(group=_WORK)] = 0.0,
    max_tokens: Annotated[int, Parameter(group=_WORK)] = 16384,
    max_turns: Annotated[int, Parameter(group=_WORK)] = 1,
    env_seconds: Annotated[float, Parameter(group=_WORK)] = 2.0,
    grade_seconds: Annotated[float, Parameter(group=_WORK)] = 0.05,
    steps: Annotated[int, Parameter(group=_WORK)] = 12,
    warm: Annotated[int, Parameter(group=_WORK)] = 4,
    seed: Annotated[int, Parameter(group=_WORK)] = 0,
    out: Annotated[Path | None, Parameter(group=_OUT)] = None,
    as_json: Annotated[bool, Parameter(name="--json", negative="", group=_OUT)] = False,
) -> int:
    """Simulate schedulers on a cluster: the real controller on a virtual clock, in seconds instead of days.

    Engines, environments, graders and the learner are modelled by the roofline of a named accelerator;
    everything that decides is what runs in `rollwright train`. The first scheduler is what the others are
    compared with. Times are virtual.

    For example:

    `rollwright simulate sync april copris seer --workers 16`

    `rollwright simulate sync async --lengths run:runs/first --max-tokens 64 --out sim`

    Args:
        schedulers: Their names; none is all of them. `sync` is GRPO, rollouts and training in turn.
        workers: Workers in all, for rollouts and training.
        accelerator: Name of the device; a wrong one lists those that are known.
        shape: Name of the model that is run; a wrong one lists those that are known.
        devices: Devices of one worker.
        failures: Mean seconds until a worker fails; it is back after a minute.
        dissemination: Seconds to copy the weights over one link, passed on in a chain from worker to worker.
        price: Of one worker, per hour.
        num_tasks: Groups that a batch is made of.
        each: Rollouts of a group.
        lengths: Tokens of a turn: lognormal:MEDIAN:SIGMA, pareto:LEAST:TAIL, constant:TOKENS, or
            run:FOLDER, as a run measured them.
        alike: How alike the lengths of one task are, 0 to 1.
        max_tokens: Tokens that one turn may have.
        max_turns: Turns of a rollout; with more than one, an environment answers each.
        env_seconds: Median seconds of an environment step, log-normal with sigma 1.
        grade_seconds: Seconds of a grade.
        steps: Learner steps.
        warm: Of them, the first ones that are not measured.
        seed: Of lengths, rewards and failures.
        out: Folder for the picture (simulation.png) and the full reports (simulation.json).
        as_json: Print one JSON object instead, for programs.
    """
    from rollwright.lab.simulation.compare import compare
    from rollwright.lab.simulation.setup import standard

    setup = _setup(locals())
    known = standard(setup)
    chosen = _choose(schedulers or list(known), known)
    console = Console(stderr=as_json)
    with console.status("simulating") as status:
        rows = compare(setup, chosen, lambda row: status.update(f"simulating: {row.name} is done"))
    if out is not None:
        _write(rows, out, f"{workers} × {accelerator}, {shape}, {num_tasks} × {each} rollouts, {lengths}")
    if as_json:
        _print_json(rows)
    else:
        _print(console, rows, out)
    return 0


def _setup(given: dict[str, Any]) -> Setup:
    from rollwright.drive.virtual.distributions import Constant, LogNormal
    from rollwright.drive.virtual.engine_model import Broadcast
    from rollwright.drive.virtual.model import ServiceModel, TaskModel
    from rollwright.lab.simulation.lengths import parse_lengths
    from rollwright.lab.simulation.setup import Setup

    wait = given["dissemination"]
    return Setup(
        num_workers=given["workers"],
        accelerator=given["accelerator"],
        shape=given["shape"],
        num_devices=given["devices"],
        num_tasks=given["num_tasks"],
        each=given["each"],
        tasks=TaskModel(Constant(256), parse_lengths(given["lengths"]), alike=given["alike"]),
        max_tokens=given["max_tokens"],
        max_turns=given["max_turns"],
        services=ServiceModel(
            env_step=LogNormal(given["env_seconds"], 1.0), grade=Constant(given["grade_seconds"])
        ),
        num_steps=given["steps"],
        num_warm=given["warm"],
        seed=given["seed"],
        engine={
            "failure_seconds": given["failures"],
            "broadcast": None if wait is None else Broadcast(wait),
            "price": given["price"],
        },
        learner={"price": given["price"]},
    )


def _choose(names: list[str], known: dict[str, Scheduler]) -> list[Scheduler]:
    from rollwright.errors import UnknownName

    for name in names:
        if name not in known:
            raise UnknownName("scheduler", name, known)
    if len(set(names)) < len(names):
        raise ConfigError(f"schedulers {names}: one is named twice; name each once")
    return [known[name] for name in names]


def _write(rows: list[Row], out: Path, title: str) -> None:
    import msgspec

    from rollwright.errors import StoreError
    from rollwright.lab.simulation.picture import draw_rows
    from rollwright.store.tail import reason

    draw_rows(rows, out / "simulation.png", title)
    try:
        (out / "simulation.json").write_bytes(msgspec.json.encode(rows))
    except OSError as error:
        raise StoreError(f"cannot write {out / 'simulation.json'}: {reason(error)}") from error


def _print_json(rows: list[Row]) -> None:
    import msgspec

    sys.stdout.write(msgspec.json.encode(rows).decode() + "\n")


def _print(console: Console, rows: list[Row], out: Path | None) -> None:
    has_price = any(row.report.cost for row in rows)
    table = table_of(*_COLUMNS, *([">cost"] if has_price else []))
    for row in rows:
        report = row.report
        cells = [
            row.name,
            number(round(row.tokens_per_second)),
            f"{row.speedup:.2f}",
            f"{row.step_seconds:,.1f}",
            f"{row.tail_seconds:,.1f}",
            percent(report.engine_idle_share),
            percent(report.learner_idle_share),
            f"{row.age_mean:.1f}/{row.age_max}",
            f"{report.length_distance or 0:.3f}",
        ]
        table.add_row(*cells, *([f"{report.cost:.2f}"] if has_price else []))
    console.print(table)
    for text in _LEGEND:
        console.print(Text(text, style="dim"), soft_wrap=True)
    if out is not None:
        console.print(Text(f"Picture and reports are in {out}."))
