"""Measure what chance and the demonstrators reach on the built-in dialogues, on held-out instances.

python tools/task_baselines.py --num 500 --seed 0
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import numpy as np

from rollwright.lab.statistics import interval
from rollwright.rng import generator
from rollwright.tasks.registry import load_task

NAMES = ("wordle", "keys", "search", "shop")


def random_turns(name: str, task: Any, state: Any, rng: np.random.Generator) -> Iterator[str]:
    """Yield turns of a policy that knows the form of a turn and nothing else."""
    while True:
        if name == "wordle":
            yield str(rng.choice(state.words))
        elif name == "keys":
            yield str(rng.choice(list("LDRU")))
        elif name == "search":  # searching at random tells nothing; any name may be the answer
            yield f"= {rng.choice(list(task.corpus.facts))}"
        else:
            yield str(rng.choice(["done", "no", "pending", "shipped", "delivered"]))


def play(task: Any, task_id: str, turns: Iterator[str]) -> float:
    """Return the score of an episode of these turns."""
    state, said = task.reset(task_id), []
    for turn in turns:
        state, seen = task.step(state, turn)
        said.append(turn)
        if seen.terminated or len(said) == task.max_turns:
            break
    verdict = task.grade(task_id, state, said, False)
    assert verdict.score is not None, verdict
    return verdict.score


def main() -> None:
    """Print a table row for each task."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--num", type=int, default=500, help="held-out instances")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    for name in given.names:
        task = load_task(name)
        ids = task.ids("test")[: given.num]
        cells = []
        for kind in ("random", 0.0, task.recipe.noise, 1.0):
            rng = generator(given.seed, "baseline", name, str(kind))
            scores = []
            for task_id in ids:
                if kind == "random":
                    turns = random_turns(name, task, task.reset(task_id), rng)
                else:
                    turns = iter(task.demonstrate(task_id, rng, kind)[::2])
                scores.append(play(task, task_id, turns))
            low, high = interval(scores)
            share = 100 * sum(scores) / len(scores)
            noise = "" if kind == "random" else f"noise {kind:g}: "
            cells.append(f"{noise}{share:.1f}% [{100 * low:.1f}, {100 * high:.1f}]")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
