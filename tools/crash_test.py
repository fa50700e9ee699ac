"""Kill a real run with SIGKILL at random moments, resume it, and compare with an uninterrupted one.

    make crash-test

For each kill: every acknowledged record is still in the journal, byte for byte; the journal replays to
the same decisions; the same tasks were opened in the same order, none skipped, none repeated; every
rollout has the same tokens and logprobs; the final weights are equal, bit for bit.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rollwright.events import Observed
from rollwright.learn.checkpoint import newest
from rollwright.store.journal import read
from rollwright.store.layout import CHECKPOINTS
from rollwright.store.parquet import open_run

RUN = [sys.executable, "-m", "rollwright.cli.main", "train"]


def command(out: Path, method: str) -> list[str]:
    """The run that is killed: small, but with partial rollouts, evaluations and checkpoints."""
    options = {
        "--method": method,
        "--num-steps": "6",
        "--num-tasks": "8",
        "--seed": "3",
        "--chunk": "4",
        "--checkpoint-every": "2",
        "--eval-every": "3",
        "--eval-tasks": "20",
        "--threads": "2",
        "--out": str(out),
    }
    return [*RUN, "countdown", *[word for pair in options.items() for word in pair]]


def run(args: list[str]) -> None:
    """Run to the end; show its output only if it fails."""
    done = subprocess.run(args, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(args)} ended with {done.returncode}\n{done.stdout}\n{done.stderr}")


def kill_at_record(args: list[str], journal: Path, num_records: int, jitter: float) -> bool:
    """Start a run and SIGKILL it once its journal has so many records; False if it ended before."""
    process = subprocess.Popen(args, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None:
        size = journal.read_bytes().count(b"\n") if journal.exists() else 0
        if size > num_records:
            time.sleep(jitter)
            process.kill()
            process.wait()
            return True
        time.sleep(0.001)
    return False


def outcome(folder: Path) -> dict[str, object]:
    """What two equal runs have in common."""
    events = [event for event, _ in read(folder / "journal.jsonl")]
    opened = [e.ask for e in events if isinstance(e, Observed) and e.ask.endswith("/root")]
    rows = open_run(folder).sql(
        "select stream, task, list(tokens order by start), list(logprobs order by start)"
        " from nodes where origin = 'sampled' and kind = 'train' and num_steps > 0 group by all order by all"
    )
    tokens = {}
    for stream, task, parts, logprobs in rows.fetchall():
        joined = ([t for part in parts for t in part], [x for part in logprobs for x in part])
        tokens[f"{task} {stream}"] = joined
    path = newest(folder / CHECKPOINTS)
    assert path is not None
    weights = {file.name: file.read_bytes() for file in sorted(path.rglob("*.safetensors"))}
    return {"opened": opened, "rollouts": tokens, "weights": weights}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--method", default="grpo", help="one that does not race: see docs/benchmarks.md")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    base = Path(tempfile.mkdtemp(prefix="rollwright-crash-"))
    run(command(base / "whole", options.method))
    whole = outcome(base / "whole")
    num_records = (base / "whole" / "journal.jsonl").read_bytes().count(b"\n")
    print(f"uninterrupted: {num_records} records, {len(whole['rollouts'])} rollouts")  # type: ignore[arg-type]
    num_equal = 0
    for number in range(options.kills):
        folder = base / f"killed-{number}"
        at = rng.randrange(1, num_records - 1)
        was_killed = kill_at_record(
            command(folder, options.method), folder / "journal.jsonl", at, rng.random() / 20
        )
        kept = (folder / "journal.jsonl").read_bytes()
        kept = kept[: kept.rfind(b"\n") + 1]
        run([*RUN, "--resume", str(folder)])
        if not (folder / "journal.jsonl").read_bytes().startswith(kept):
            raise SystemExit(f"kill {number}: an acknowledged record is gone from {folder}")
        run([sys.executable, "-m", "rollwright.cli.main", "replay", str(folder)])
        got = outcome(folder)
        different = [name for name in whole if whole[name] != got[name]]
        if different:
            raise SystemExit(
                f"kill {number} at record {at}: {different} differ from the uninterrupted run in {base}"
            )
        num_equal += 1
        where = f"at record {kept.count(bytes([10]))}" if was_killed else "(it ended before)"
        print(f"kill {number + 1}/{options.kills} {where}: equal")
        shutil.rmtree(folder)
    shutil.rmtree(base)
    print(
        json.dumps(
            {"name": "crash_test", "kills": options.kills, "equal": num_equal, "method": options.method}
        )
    )


if __name__ == "__main__":
    main()
