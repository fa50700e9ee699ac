"""Stands in for the worker of a comparison: writes in a moment what a run would write in minutes.

``lr`` of the config is how much success a run gains; each seed adds noise of its own, the same in every arm.
``device`` says what goes wrong: ``die`` ends with a traceback, ``refuse`` says that it failed, ``hang`` says
nothing, ``wait`` goes on until its input ends.
"""

from __future__ import annotations

import json
import random
import sys
import time
import tomllib
from pathlib import Path


def main() -> None:
    job = json.loads(sys.stdin.readline())
    config = tomllib.loads(job["config"])
    path = Path(job["folder"])
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.toml").write_text(job["config"])
    with (path / "starts.txt").open("a") as starts:
        starts.write("x")
    rng = random.Random(config["seed"])
    gain = 0.3 + 10 * config["lr"] + rng.gauss(0, 0.05)
    rows = []
    for k, amount in enumerate((0.0, *job["points"])):
        if k:
            rows.append({"kind": "step", "step": k - 1, "version": k, f"spent_{job['unit']}": amount})
        success = 0.2 + gain * k / len(job["points"])
        rows.append({"kind": "evaluation", "step": k, "sampled_success": success})
        rows[-1] |= {"sampled_right": [8] * 50, "sampled_scored": [10] * 50, "greedy_success": None}
    for row in rows:
        print(json.dumps(row), flush=True)
    trouble = config["device"]
    if trouble == "die":
        raise RuntimeError("nothing left of memory")
    if trouble == "refuse":
        print(json.dumps({"failed": "no such thing"}), flush=True)
        sys.exit(1)
    if trouble == "hang":
        time.sleep(60)
    if trouble == "wait":
        sys.stdin.read()
        print(json.dumps({"stopped": True}), flush=True)
        return
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (path / "compared.json").write_text(json.dumps({"reason": "spent"}))
    print(json.dumps({"done": "spent"}), flush=True)


main()
