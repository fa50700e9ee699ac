"""GRPO against itself: how often does `rollwright compare` find a difference where there is none?

python benchmarks/compare_null.py [--seeds 24] [--tokens 1500] [--comparisons 2000] [--pairs 10] [--out
FOLDER]

Trains GRPO on Lake with many seeds, then makes comparisons of them: the seeds are split at random into two
arms of ``pairs`` runs each (unpaired noise, the harder null), looked at after every pair. Found differences
are false. Then one arm's success is multiplied by 1.3: found differences are right. Runs lie in FOLDER and
are not made again.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from pathlib import Path

import numpy as np
from _report import print_report

from rollwright.compare.budget import Budget
from rollwright.compare.plan import Plan, parse_arms, save
from rollwright.compare.result import floor_of, outcomes
from rollwright.compare.run import Comparison
from rollwright.compare.sequential import SequentialTest
from rollwright.rng import generator


def make_runs(num_seeds: int, num_tokens: int, out: Path, jobs: int | None) -> tuple[list[float], float]:
    """Train GRPO with each seed and return success at the budget, and what one rollout of it is worth."""
    settings = {"num_tasks": 4, "eval_tasks": 50, "lr": 3e-4}
    budget = Budget("sampled_tokens", float(num_tokens))
    plan = Plan("lake", parse_arms("grpo"), budget, tuple(range(num_seeds)), 1, settings)
    save(plan, out)
    comparison = Comparison(plan, out, SequentialTest())
    comparison.run(jobs)
    if comparison.failed:
        raise SystemExit(f"runs failed: {comparison.failed}")
    runs = list(comparison.runs.values())
    return list(outcomes(plan, runs)["grpo"].values()), floor_of(runs)


def main() -> None:
    """Print the figures, one JSON object as the last line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, default=24)
    parser.add_argument("--tokens", type=int, default=1500)
    parser.add_argument("--comparisons", type=int, default=2000)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=None)
    parser.add_argument("--out", type=Path, default=None)
    given = parser.parse_args()
    if 2 * given.pairs > given.seeds:
        parser.error(f"{given.pairs} pairs need {2 * given.pairs} seeds, given {given.seeds}")
    with tempfile.TemporaryDirectory() as folder:
        values, floor = make_runs(given.seeds, given.tokens, given.out or Path(folder) / "null", given.jobs)
    test, rng = SequentialTest(), generator(0, "benchmark", "null")
    wrong, right, at = 0, 0, []
    naive = 0
    for _ in range(given.comparisons):
        picked = rng.permutation(given.seeds)[: 2 * given.pairs]
        one, two = np.array(values)[picked[: given.pairs]], np.array(values)[picked[given.pairs :]]
        wrong += test.is_found(test.looks(two - one, floor)[-1])
        planted = test.looks(np.minimum(1.3 * two, 1.0) - one, floor)
        right += test.is_found(planted[-1])
        at += [next((look.num for look in planted if test.is_found(look)), math.inf)]
        naive += any(_is_large(two[:n] - one[:n]) for n in range(2, given.pairs + 1))
    figures = {
        "seeds": given.seeds,
        "tokens": given.tokens,
        "success_mean": float(np.mean(values)),
        "success_deviation": float(np.std(values, ddof=1)),
        "comparisons": given.comparisons,
        "pairs": given.pairs,
        "stated_rate": test.alpha,
        "false_rate": wrong / given.comparisons,
        "false_rate_of_a_t_test_at_every_look": naive / given.comparisons,
        "found_rate_of_1.3_times": right / given.comparisons,
        "median_pairs_to_find_1.3_times": float(np.median(at)),
    }
    print_report("compare_null", figures, ("torch",))


def _is_large(x: np.ndarray) -> bool:
    """Whether a plain t-test at 5% would call the differences of these pairs not 0."""
    from rollwright.lab.student import student_quantile

    deviation = float(x.std(ddof=1))
    return bool(abs(x.mean()) > student_quantile(0.975, len(x) - 1) * deviation / math.sqrt(len(x)))


if __name__ == "__main__":
    main()
