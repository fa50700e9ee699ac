"""What the tests of comparisons share: run folders as a comparison leaves them, without training."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rollwright.compare.budget import Budget
from rollwright.compare.plan import DONE, Plan, parse_arms
from rollwright.config import dump_config


def step_row(step: int, tokens: float, trained: float = 1.0, **more: Any) -> dict[str, Any]:
    """A row of metrics of one step, as a run writes it."""
    return {
        "kind": "step",
        "step": step,
        "version": step + 1,
        "spent_sampled_tokens": tokens,
        "spent_rollouts": tokens / 10,
        "spent_learner_tokens": 2 * tokens,
        "spent_seconds": tokens / 100,
        "fate_trained": trained * tokens,
        "fate_filtered": (1 - trained) * tokens,
        **more,
    }


def evaluation_row(version: int, right: Sequence[int], num: int = 4, **more: Any) -> dict[str, Any]:
    """A row of metrics of one evaluation: right samples of each task, of ``num`` each."""
    return {
        "kind": "evaluation",
        "step": version,
        "sampled_success": sum(right) / num / len(right),
        "sampled_right": list(right),
        "sampled_scored": [num] * len(right),
        "greedy_success": 0.5,
        "evaluation_s": 0.0,
        **more,
    }


def plan_of(methods: str = "grpo,dapo", num_seeds: int = 3, **more: Any) -> Plan:
    """A plan at 100 tokens with two evaluations."""
    given = {"num_points": 2, "settings": {"num_tasks": 4}, **more}
    return Plan(
        "lake", parse_arms(methods), Budget("sampled_tokens", 100.0), tuple(range(num_seeds)), **given
    )


def write_run(
    plan: Plan, out: Path, place: int, seed: int, rows: Sequence[dict[str, Any]], done: bool = True
) -> Path:
    """Write the folder of one run: config, metrics, and the mark of its end."""
    arm = plan.arms[place]
    path = plan.folder(out, arm, seed)
    path.mkdir(parents=True)
    (path / "config.toml").write_text(dump_config(plan.config(arm, seed)))
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    if done:
        (path / DONE).write_text(json.dumps({"reason": "the budget of sampled_tokens is spent"}))
    return path


def rising(first: int, last: int, num_tasks: int = 10) -> list[dict[str, Any]]:
    """Rows of a run whose right samples of each task rise from first to last (of 4) at 60 and 110 tokens."""
    middle = (first + last) // 2
    return [
        evaluation_row(0, [first] * num_tasks),
        step_row(0, 60),
        evaluation_row(1, [middle] * num_tasks),
        step_row(1, 110),
        evaluation_row(2, [last] * num_tasks),
    ]
