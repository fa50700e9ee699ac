"""Runs written by hand through the store's own writer: one that is well, and the same with a fault."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rollwright.ledger import Fate
from rollwright.store.layout import METRICS
from rollwright.store.parquet import ShardWriter
from rollwright.store.rows import RowFile
from rollwright.tree import Group, Node, Origin, StopReason, Trajectory

NUM_STEPS, NUM_GROUPS, EACH = 12, 5, 8  # 60 groups, 480 rollouts; groups 1 and 3 of each step are trees
NUM_TASKS = 15  # four visits each
Roll = dict[str, Any]
Plant = Callable[[Roll, int, int, int], Mapping[str, Any] | None]


def well(step: int, group: int, k: int, rng: np.random.Generator) -> Roll:
    """One rollout of the run that is well: half of them right, lengths that tell nothing, all of one age."""
    right = (group + k) % 2
    return {
        "tokens": rng.integers(200, 400, int(rng.integers(20, 60))),
        "reward": float(right),
        "rewards": {"format": 0.1, "answer": float(right)},
        "status": "right" if right else "wrong",
        "truncated": False,
        "fate": (Fate.FILTERED, "surplus") if group == 4 else (Fate.TRAINED, ""),
        "age": 0,
        "entropy": 0.5,
        "fork": k < 4,  # of a tree: behind its first or its second branch
    }


def nothing(roll: Roll, step: int, group: int, k: int) -> None:
    return None


def write(folder: Path, plant: Plant = nothing, num_steps: int = NUM_STEPS, **metrics: float | None) -> Path:
    """Write the run that is well, but for what `plant` changes of each rollout.

    Args:
        plant: is given a rollout, its step, group and number, and returns fields to change.
        metrics: of each of the steps; None leaves one out.
    """
    rng = np.random.default_rng(7)
    writer = ShardWriter(folder, steps_per_shard=12, decode=lambda tokens: "".join(map(chr, tokens)))
    folder.mkdir(parents=True, exist_ok=True)
    rows = RowFile(folder / METRICS)
    figures = {"learn_clip_fraction": 0.01, "learn_ratio_max": 1.2, "learn_ratio_min": 0.8}
    figures |= {"learn_ratio_max_dev": 1e-5, **metrics}
    for step in range(num_steps):
        groups, fates = [], {}
        for number in range(NUM_GROUPS):
            rolls = []
            for k in range(EACH):
                roll = well(step, number, k, rng)
                rolls.append(roll | dict(plant(roll, step, number, k) or {}))
            group, own = build(step, number, rolls)
            groups.append(group)
            fates |= own
        writer.add(step, groups, fates, version=step)
        rows.append({"kind": "step", "step": step} | {n: v for n, v in figures.items() if v is not None})
    writer.flush()
    rows.close()
    return folder


def build(step: int, number: int, rolls: list[Roll]) -> tuple[Group, dict[str, tuple[Fate, str]]]:
    """Return a group: odd ones are trees, a stem that parts inside a node into two branches."""
    task = f"t/train/{(step * NUM_GROUPS + number) % NUM_TASKS}"
    name = f"{task}#{step}"
    nodes = {f"{name}/root": Node(f"{name}/root", None, 0, Origin.PROMPT, (1, 2))}

    def sampled(node: str, parent: str, at: int, tokens: np.ndarray, roll: Roll) -> None:
        run = tuple(int(token) for token in tokens)
        num = len(run)
        nodes[node] = Node(
            node, parent, at, Origin.SAMPLED, run, node, 2, policy="policy", version=step - roll["age"],
            logprobs=(-roll["entropy"],) * num, entropies=(roll["entropy"],) * num, temperature=1.0,
            stop=StopReason.LENGTH if roll["truncated"] else StopReason.EOS,
        )  # fmt: skip

    is_tree = number % 2 == 1
    trajectories, fates = [], {}
    if is_tree:  # root - stem (6 steps); branch 1 goes on after all 6, branch 2 leaves after 3
        stem = {**rolls[0], "truncated": False}
        sampled(f"{name}/stem", f"{name}/root", 2, np.arange(300, 306), stem)
    for k, roll in enumerate(rolls):
        leaf = f"{name}/{k}"
        if is_tree:
            sampled(leaf, f"{name}/stem", 6 if roll["fork"] else 3, roll["tokens"], roll)
        else:
            sampled(leaf, f"{name}/root", 2, roll["tokens"], roll)
        trajectories.append(
            Trajectory(
                leaf, k, roll["reward"], roll["status"], roll["rewards"], roll["reward"],
                terminated=not roll["truncated"], truncated=roll["truncated"], stop=nodes[leaf].stop,
            )
        )  # fmt: skip
        fates[leaf] = roll["fate"]
    return Group(name, task, nodes, tuple(trajectories)), fates
