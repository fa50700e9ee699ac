"""Simulate 10,000 rollouts with long-tailed lengths through the real runner, on one core.

python benchmarks/virtual_rollouts.py [--rollouts N] [--workers N] [--method NAME] [--failures SECONDS]

Each step is GRPO's 128 prompts x 8 rollouts; turn lengths are log-normal (median 400, sigma 1, cap 4096),
the engine reports every 64 tokens. The ledger is checked against what the engine made.
"""

from __future__ import annotations

import argparse
import resource
import time

from _report import print_report

from rollwright.discovery import load_method
from rollwright.drive.virtual import EngineModel, LogNormal, Model, TaskModel
from rollwright.lab.simulate import simulate
from rollwright.runner import Settings

EACH, NUM_TASKS = 8, 128
LIMIT_S = 10.0  # what 10,000 rollouts may take


def main() -> None:
    """Print the figures, one JSON object as the last line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rollouts", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--method", default="grpo")
    parser.add_argument("--failures", type=float, help="mean seconds until a worker fails; default: never")
    given = parser.parse_args()
    method = load_method(given.method, each=EACH)
    settings = Settings(
        seed=0,
        tasks=tuple(f"model/train/{i}" for i in range(1000)),
        num_steps=-(-given.rollouts // (EACH * NUM_TASKS)),
        num_tasks=NUM_TASKS,
        context=8192,
        max_tokens=4096,
        rollout_deadline=1e6,
        learn_deadline=1e6,
    )
    model = Model(
        engine=EngineModel(num_workers=given.workers, failure_seconds=given.failures),
        tasks=TaskModel(response=LogNormal(400.0, 1.0)),
    )
    wall, cpu = time.perf_counter(), time.process_time()
    report = simulate(method, settings, model)  # raises if ledger and engine disagree
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print("\n".join(report.lines()))
    num_rollouts = sum(leaves.num for leaves in report.leaves.values())
    figures = {
        "method": given.method,
        "num_rollouts": num_rollouts,
        "num_workers": given.workers,
        "num_events": report.num_events,
        "sampled_tokens": int(report.spent["sampled_tokens"]),
        "fates_add_up": sum(report.fates.values()) == report.spent["sampled_tokens"],
        "wall_s": wall,
        "cpu_s": cpu,
        "events_per_s": report.num_events / wall,
        "rollouts_per_s": num_rollouts / wall,
        "is_within_10_s_per_10000": wall <= LIMIT_S * max(1.0, given.rollouts / 10_000),
        "virtual_s": report.seconds,
        "peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    print_report("virtual_rollouts", figures, ("msgspec",))


if __name__ == "__main__":
    main()
