"""Every method on Lake at one budget of sampled tokens: held-out success, waste and rollouts.

python benchmarks/methods_on_lake.py [--tokens 20000] [--seeds 3] [--methods grpo,dapo]

8 tasks x 8 samples a step, learning rate 3e-4, the methods own defaults otherwise; 200 held-out maps with
2 samples each at temperature 1, and greedy. Runs of one seed share noise, tasks and the warm start. A small
experiment: it shows that the methods run and what they cost here, not which is better elsewhere.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from _report import print_report

from rollwright.config import RunConfig
from rollwright.discovery import method_factories
from rollwright.training import Training

Row = dict[str, float]


def one(job: tuple[str, int, int]) -> Row:
    """Train one method with one seed and return its figures."""
    method, seed, num_tokens = job
    config = RunConfig(
        task="lake", method=method, seed=seed, num_steps=10_000, num_tasks=8, lr=3e-4, threads=1,
        eval_every=10_000, eval_tasks=200, eval_samples=2, budget={"sampled_tokens": float(num_tokens)},
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        rows: list[dict[str, float]] = []
        Training.start(config, Path(folder) / "run", rows.append).run()
    evaluations = [row for row in rows if row["kind"] == "evaluation"]
    first, last = evaluations[0], evaluations[-1]
    step = [row for row in rows if row["kind"] == "step"][-1]
    return {
        "before": first["sampled_success"],
        "after": last["sampled_success"],
        "greedy_after": last["greedy_success"],
        "updates": step["version"],
        "rollouts": step["spent_rollouts"],
        "trained_share": step["fate_trained"] / step["spent_sampled_tokens"],
    }


def main() -> None:
    """Print the figures, one JSON object as the last line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tokens", type=int, default=20_000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--methods", default=",".join(sorted(method_factories())))
    given = parser.parse_args()
    methods = given.methods.split(",")
    jobs = [(method, seed, given.tokens) for method in methods for seed in range(given.seeds)]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        rows = list(pool.map(one, jobs))
    figures: dict[str, float] = {"tokens": given.tokens, "seeds": given.seeds}
    for method in methods:
        mine = [row for job, row in zip(jobs, rows, strict=True) if job[0] == method]
        for name in mine[0]:
            figures[f"{method}_{name}"] = statistics.mean(row[name] for row in mine)
        figures[f"{method}_after_min"] = min(row["after"] for row in mine)
        figures[f"{method}_after_max"] = max(row["after"] for row in mine)
    print_report("methods_on_lake", figures, ("torch",))


if __name__ == "__main__":
    main()
