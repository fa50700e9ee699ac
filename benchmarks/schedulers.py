"""Schedulers on the virtual clock: throughput over the synchronous baseline, beside their papers' figures.

python benchmarks/schedulers.py [--only NAME ...] [--out FOLDER] [--common | --papers | --large]

Three parts. The first puts all schedulers on one setting: 64 workers (H800, Qwen3-8B), GRPO batches of
128 x 8, log-normal lengths with sigma 1 (median 2,000, limit 16,384). The second gives each paper the setting
that its abstract, its code, or what is said of its experiments elsewhere, names; what none of them names is
assumed and printed. No setting was fitted to the papers' figures: a miss is printed as a miss. The third
simulates 10,000 workers for 100 steps.
"""

from __future__ import annotations

import argparse
import dataclasses
import resource
import time
from operator import attrgetter
from pathlib import Path

from _report import Figure, print_report
from _scheduler_cases import Case, cases, known

from rollwright.drive.virtual.distributions import Constant, LogNormal
from rollwright.drive.virtual.engine_model import Broadcast, EngineModel
from rollwright.drive.virtual.model import LearnerModel, Model, ServiceModel, TaskModel
from rollwright.lab.simulate import simulate
from rollwright.lab.simulation.capacity import Demand, num_needed
from rollwright.lab.simulation.compare import Row, compare
from rollwright.lab.simulation.picture import draw_rows
from rollwright.lab.simulation.setup import Scheduler, Setup, standard
from rollwright.methods.grpo import grpo
from rollwright.runner import Settings

NOTHING = ServiceModel(Constant(0.0), Constant(0.0), Constant(0.0))


# ---------------------------------------------------------------- the three parts


def run_common(out: Path | None) -> dict[str, Figure]:
    """Print all schedulers on the issue's setting."""
    setup = Setup(num_steps=8, num_warm=3)
    names = ("sync", "april", "copris", "seer", "areal", "roll_flash", "libra", "misa_t")
    print("64 x H800, Qwen3-8B, GRPO 128 x 8, log-normal lengths (median 2,000, sigma 1, limit 16,384)\n")
    print(f"{'scheduler':<12}{'tokens/s':>10}{'x':>7}{'x rollouts':>12}{'tail':>7}{'age':>11}{'bias':>7}")

    def show(row: Row) -> None:
        age = f"{row.age_mean:.1f}/{row.age_max}"
        bias = row.report.length_distance or 0.0
        # Where rollouts and updates overlap, no time belongs to the rollouts alone.
        alone = "-" if standard(setup)[row.name].num_training else f"{row.rollout_speedup:.2f}"
        print(
            f"{row.name:<12}{row.tokens_per_second:>10,.0f}{row.speedup:>7.2f}{alone:>12}"
            f"{row.tail_ratio:>7.2f}{age:>11}{bias:>7.3f}",
            flush=True,
        )

    rows = compare(setup, known(setup, *names), show)
    if out is not None:
        draw_rows(rows, out / "schedulers.png", "64 × H800, Qwen3-8B, 128 × 8 rollouts, sigma 1")
    return {f"ratio_common_{row.name}": row.speedup for row in rows}


def run_cases(only: list[str]) -> dict[str, Figure]:
    """Print every paper's figure beside what its setting gives here."""
    figures: dict[str, Figure] = {}
    done: dict[tuple[int, str], Row] = {}  # cases share setups

    def measure(case: Case, scheduler: Scheduler) -> float:
        key = id(case.setup), scheduler.name
        if key not in done:
            [done[key]] = compare(case.setup, [scheduler])
        return float(attrgetter(case.measure)(done[key]))

    print(f"\n{'scheduler':<19}{'here':>7}{'paper':>16}   verdict")
    for case in [case for case in cases() if not only or case.name in only]:
        *baselines, last = [measure(case, scheduler) for scheduler in case.schedulers]
        is_time = case.measure.endswith("seconds")
        found = last / (min(baselines) if is_time else max(baselines))
        paper = f"{case.low:g}" if case.low == case.high else f"{case.low:g} to {case.high:g}"
        verdict = "below" if found < case.low else "above" if found > case.high else "within"
        print(f"{case.name:<19}{found:>7.2f}{paper:>16}   {verdict}: {case.claim}")
        print(f"{'':<19}{case.assumed}", flush=True)
        figures[f"ratio_{case.name}"] = found
    return figures


def run_large(num_tasks: int = 128) -> dict[str, Figure]:
    """Simulate 10,000 workers for 100 steps, GRPO with 8 rollouts of each task."""
    setup = Setup(10_000, num_tasks=num_tasks, num_steps=100)
    wall, cpu = time.perf_counter(), time.process_time()
    report = simulate(*standard(setup)["sync"].build(setup))
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    assert len(report.steps) == 100 and report.engine.num_requests >= 100 * 8 * num_tasks
    num = f"{report.num_events:,} events"
    print(f"\n10,000 workers, 100 steps of {num_tasks} x 8: {num} in {wall:.0f} s, {cpu:.0f} s of processor")
    return {
        "large_num_events": report.num_events,
        "large_wall_s": wall,
        "large_cpu_s": cpu,
        "large_peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "is_large_within_120_s": cpu <= 120,
    }


def run_capacity() -> dict[str, Figure]:
    """Print ECHO-2's rule and the knee of the simulated learner."""
    cast = Broadcast(6.0, 0.2, "chain", 16)
    engine = EngineModel(
        1, 8, step_seconds=0.02, sequence_seconds=0.001, prefill_seconds=1e-5, broadcast=cast
    )
    tasks, train, ahead = TaskModel(Constant(32), LogNormal(200, 1.0)), 8.0, 10
    # Σ of min(x, 2000) over the inverse of the distribution: its mean under the limit.
    mean = sum(min(tasks.response.at((k + 0.5) / 20000), 2000) for k in range(20000)) / 20000
    predicted = num_needed(engine, Demand(128, train, mean, staleness=12))

    def busy(num: int) -> float:
        model = Model(dataclasses.replace(engine, num_workers=num), tasks, NOTHING, LearnerModel(train, 0.0))
        settings = Settings(
            seed=0, tasks=tuple(f"t/{i}" for i in range(256)), num_steps=40, num_tasks=16, context=4000,
            max_tokens=2000, chunk=0, num_ahead=ahead, rollout_deadline=1e9,
        )  # fmt: skip
        steps = simulate(grpo(8), settings, model).steps[14 : 40 - ahead]
        learning = sum(step.learn_seconds for step in steps)
        return learning / (learning + sum(step.rollouts_seconds for step in steps))

    # More workers never make the learner wait longer, so the knee is found by halving.
    low, knee = predicted // 2, 2 * predicted  # too few, enough
    while knee - low > 1:
        middle = (low + knee) // 2
        low, knee = (low, middle) if busy(middle) > 0.99 else (middle, knee)
    print(f"\necho2: the rule needs {predicted} workers; the learner is always busy from {knee} on")
    return {
        "echo2_predicted": predicted,
        "echo2_knee": knee,
        "is_echo2_within_10": abs(predicted / knee - 1) <= 0.1,
    }


def main() -> None:
    """Print the parts, one JSON object as the last line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], help="names of the second table")
    parser.add_argument("--out", type=Path, help="folder for the picture of the first table")
    part = parser.add_mutually_exclusive_group()
    part.add_argument("--common", action="store_true", help="the first table alone")
    part.add_argument("--papers", action="store_true", help="the second table alone")
    part.add_argument("--large", action="store_true", help="10,000 workers alone")
    given = parser.parse_args()
    names = {case.name for case in cases()} | {"echo2"}
    if unknown := set(given.only) - names:
        parser.error(f"--only {' '.join(sorted(unknown))}: expected some of {' '.join(sorted(names))}")
    is_all = not (given.common or given.papers or given.large or given.only)
    wall, cpu = time.perf_counter(), time.process_time()
    figures: dict[str, Figure] = {}
    if given.common or is_all:
        figures |= run_common(given.out)
    if given.papers or given.only or is_all:
        figures |= run_cases(given.only)
        if not given.only or "echo2" in given.only:
            figures |= run_capacity()
    if given.large or is_all:
        figures |= run_large()
    figures |= {"wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}
    print()
    print_report("schedulers", figures)


if __name__ == "__main__":
    main()
