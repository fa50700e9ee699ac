"""Wall time to the same number of learner steps, in turn and overlapping, with the learning curves.

python benchmarks/async_vs_sync.py [--steps N] [--repeats N] [--threads N] [--picture FILE]

The demo's task and settings (Countdown, GRPO, 32 prompts x 8 samples): most answers are short and some run
to the limit, so a step in turn waits for a few long ones. The arms take turns, each in a process of its own
with the same number of threads and, but for the order of work, the same config. Nothing is evaluated and no
checkpoint is written while the clock runs; success on held-out tasks is measured after it. Each arm says how
much of the cores other processes took meanwhile: with more than a few percent its time is not to be used.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from _report import print_report

ARMS: dict[str, dict[str, Any]] = {
    "in turn": {"driver": "inline"},
    "inline, 1 ahead": {"driver": "inline", "num_ahead": 1},
    "async, in turn": {"driver": "async"},
    "async, 1 ahead": {"driver": "async", "num_ahead": 1},
    "async, 2 ahead": {"driver": "async", "num_ahead": 2},
}


def run_arm(name: str, num_steps: int, seed: int, eval_tasks: int, threads: int) -> None:
    """Run one arm in this process and print what came of it as one JSON line."""
    from rollwright.cli.demo import preset
    from rollwright.config import RunConfig
    from rollwright.training import Training

    off = {"num_steps": num_steps, "eval_every": 0, "checkpoint_every": 0, "eval_tasks": eval_tasks}
    cfg = RunConfig(**{**vars_of(preset(seed)), **off, "threads": threads, **ARMS[name]})
    rows: list[dict[str, Any]] = []

    def on_row(row: dict[str, Any]) -> None:
        rows.append({**row, "wall": time.perf_counter() - start})

    with tempfile.TemporaryDirectory() as folder:
        training = Training.start(cfg, Path(folder) / "run", on_row)
        start, busy, own = time.perf_counter(), busy_seconds(), time.process_time()
        training.run()
        seconds, own = time.perf_counter() - start, time.process_time() - own
        others = (busy_seconds() - busy - own) / seconds / (os.cpu_count() or 1)
        sampled, greedy = training.evaluate()
    steps = [row for row in rows if row["kind"] == "step"]
    keys = ("wall", "reward_mean", "age_max", "age_mean", "length_p50", "length_p99", "spent_sampled_tokens")
    curve = [{key: row[key] for key in keys} for row in steps]
    result = {"curve": curve, "sampled": sampled.success, "greedy": greedy.success}
    print(json.dumps({**result, "cpu": own, "others": max(0.0, others)}))


def busy_seconds() -> float:
    """Return the processor seconds that the machine has worked so far, all processes together."""
    try:
        with Path("/proc/stat").open() as file:
            user, nice, system, _, _, irq, soft, *_ = map(int, file.readline().split()[1:])
    except OSError:
        return time.process_time()  # no Linux: nothing is known of the others
    return (user + nice + system + irq + soft) / os.sysconf("SC_CLK_TCK")


def vars_of(config: Any) -> dict[str, Any]:
    """Return a config's fields."""
    return {name: getattr(config, name) for name in type(config).__slots__}


def measure(name: str, options: argparse.Namespace, seed: int) -> dict[str, Any]:
    """Run one arm in a process of its own."""
    words = ["--arm", name, "--steps", str(options.steps), "--seed", str(seed)]
    words += ["--eval-tasks", str(options.eval_tasks), "--threads", str(options.threads)]
    done = subprocess.run([sys.executable, __file__, *words], check=True, capture_output=True, text=True)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def draw(results: dict[str, list[dict[str, Any]]], path: Path) -> None:
    """Draw reward against learner steps and against seconds, one line for each arm (the first repeat)."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4), sharey=True)
    for name, runs in results.items():
        curve = runs[0]["curve"]
        rewards = [row["reward_mean"] for row in curve]
        left.plot(range(1, len(curve) + 1), rewards, label=name)
        right.plot([row["wall"] for row in curve], rewards, label=name)
    left.set(xlabel="learner steps", ylabel="mean reward of the step's rollouts")
    right.set(xlabel="seconds")
    right.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main() -> None:
    """Print the figures, one JSON object as the last line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2, help="of PyTorch, in every arm")
    parser.add_argument("--eval-tasks", type=int, default=200)
    parser.add_argument("--arms", nargs="+", default=list(ARMS), choices=list(ARMS))
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--arm", help="run this one only, in this process")
    options = parser.parse_args()
    if options.arm:
        run_arm(options.arm, options.steps, options.seed, options.eval_tasks, options.threads)
        return
    results: dict[str, list[dict[str, Any]]] = {}
    for repeat in range(options.repeats):
        for name in options.arms:
            found = measure(name, options, options.seed + repeat)
            results.setdefault(name, []).append(found)
            last = found["curve"][-1]
            print(
                f"{name:16} seed {options.seed + repeat}: {last['wall']:.1f} s to {options.steps} steps,"
                f" reward {last['reward_mean']:.3f}, oldest {last['age_max']:.0f},"
                f" held-out {found['sampled']:.3f} sampled, {found['greedy']:.3f} greedy;"
                f" {found['cpu']:.1f} s of processor time, others took {found['others']:.0%} of the cores",
                flush=True,
            )
    figures: dict[str, float] = {"num_steps": options.steps, "repeats": options.repeats}
    base = results[options.arms[0]]
    for name, runs in results.items():
        key = name.replace(", ", "_").replace(" ", "_")
        walls = [run["curve"][-1]["wall"] for run in runs]
        figures[f"{key}_s"] = statistics.median(walls)
        speedups = [b["curve"][-1]["wall"] / wall for b, wall in zip(base, walls, strict=True)]
        figures[f"ratio_{key}"] = statistics.median(speedups)
        figures[f"{key}_cpu_s"] = statistics.median(run["cpu"] for run in runs)
        figures[f"{key}_others_share"] = statistics.mean(run["others"] for run in runs)
        figures[f"{key}_held_out"] = statistics.mean(run["sampled"] for run in runs)
    if options.picture:
        draw(results, options.picture)
    print_report("async_vs_sync", figures, ("torch",))


if __name__ == "__main__":
    main()
