"""Every method on Lake at one budget of sampled tokens: held-out success, waste and rollouts.

python benchmarks/methods_on_lake.py [--tokens 20000] [--seeds 3] [--methods grpo,dapo] [--out FOLDER]

8 tasks x 8 samples a step, learning rate 3e-4, the methods own defaults otherwise; 200 held-out maps with
2 samples each at temperature 1, and greedy. Runs of one seed share noise, tasks and the warm start. A small
experiment: it shows that the methods run and what they cost here, not which is better elsewhere. It is
`rollwright compare` with GRPO as the baseline; with --out its report stays.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

from _report import print_report

from rollwright.compare.budget import Budget
from rollwright.compare.export import write
from rollwright.compare.plan import Plan, parse_arms, save
from rollwright.compare.result import ArmResult, Result, result_of
from rollwright.compare.run import Comparison
from rollwright.compare.sequential import SequentialTest
from rollwright.discovery import method_factories


def compared(methods: str, num_tokens: int, num_seeds: int, out: Path) -> Result:
    """Make the runs that are missing, write the report, and return what it says."""
    settings = {"num_tasks": 8, "lr": 3e-4, "eval_tasks": 200, "eval_samples": 2}
    seeds = tuple(range(num_seeds))
    plan = Plan("lake", parse_arms(methods), Budget("sampled_tokens", float(num_tokens)), seeds, 1, settings)
    save(plan, out)
    comparison = Comparison(plan, out, SequentialTest())
    comparison.run()
    result = result_of(plan, list(comparison.runs.values()), comparison.test, failed=comparison.failed)
    write(result, out)
    return result


def figures_of(arm: ArmResult, result: Result) -> dict[str, float]:
    """Return the figures of one method, means over its seeds."""
    mine = [run for run in result.runs if run.label == arm.label and run.state == "done"]
    after = [run.points[-1].success for run in mine]
    return {
        "before": statistics.mean(run.points[0].success for run in mine),
        "after": statistics.mean(after),
        "greedy_after": statistics.mean(run.points[-1].greedy or 0.0 for run in mine),
        "updates": statistics.mean(run.num_updates for run in mine),
        "rollouts": arm.spent["rollouts"],
        "trained_share": arm.fates["trained"].mean,
        "after_min": min(after),
        "after_max": max(after),
    }


def main() -> None:
    """Print the figures, one JSON object as the last line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tokens", type=int, default=20_000)
    parser.add_argument("--seeds", type=int, default=3)
    others = sorted({*method_factories()} - {"grpo"})
    parser.add_argument("--methods", default=",".join(["grpo", *others]))
    parser.add_argument("--out", type=Path, default=None)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        out = given.out or Path(folder) / "lake"
        result = compared(given.methods, given.tokens, given.seeds, out)
        for arm in result.arms:
            for seed, why in arm.failed.items():
                print(f"left out: {arm.label} seed {seed}: {why}")
        figures: dict[str, float] = {"tokens": given.tokens, "seeds": given.seeds}
        for arm in result.arms:
            if arm.num_done:
                figures |= {f"{arm.label}_{name}": value for name, value in figures_of(arm, result).items()}
    for one in result.contrasts:
        print(one.sentence)
    print_report("methods_on_lake", figures, ("torch",))


if __name__ == "__main__":
    main()
