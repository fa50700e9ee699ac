"""Make a run folder with a million rollouts and measure how fast `rollwright view` opens and scrolls it.

The folder holds real shards (the schema of docs/formats.md) of made-up rollouts: `make_run` writes them with
numpy, since a million real ones would take days. Measured are a process of its own from its start to the
first rows of the list, and the requests that scrolling, sorting and filtering send.

    python benchmarks/view_million.py [--rollouts 1000000] [--keep FOLDER]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rollwright.config import RunConfig, dump_config
from rollwright.store.layout import CONFIG, METRICS, SHARDS
from rollwright.store.schema import NODES, TRAJECTORIES

EACH, GROUPS_A_STEP, STEPS_A_SHARD = 8, 100, 10
PROMPT = tuple(range(1, 9))
WORDS = np.array(["so", "we", "try", "the", "next", "number", "then", "add", "two", "but", "not", "close"])


def make_run(path: Path, num_rollouts: int, seed: int = 0) -> Path:
    """Write a run folder with this many rollouts in groups of 8, 100 groups a step.

    Args:
        path: the folder; must not exist.
        num_rollouts: a multiple of 800.
        seed: of the made-up values.
    """
    num_steps = num_rollouts // (EACH * GROUPS_A_STEP)
    (path / SHARDS).mkdir(parents=True)
    rng = np.random.default_rng(seed)
    rows = []
    for first in range(0, num_steps, STEPS_A_SHARD):
        last = min(first + STEPS_A_SHARD, num_steps) - 1
        folder = path / SHARDS / f"train-{first:08d}-{last:08d}"
        folder.mkdir()
        trajectories, nodes, more = _shard(first, last, num_steps, rng)
        pq.write_table(trajectories, folder / "trajectories.parquet", compression="zstd")
        pq.write_table(nodes, folder / "nodes.parquet", compression="zstd")
        rows += more
    (path / METRICS).write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = RunConfig(task="countdown", method="grpo", num_steps=num_steps, num_tasks=GROUPS_A_STEP)
    (path / CONFIG).write_text(dump_config(config))
    return path


def _shard(
    first: int, last: int, num_steps: int, rng: np.random.Generator
) -> tuple[pa.Table, pa.Table, list]:
    steps = np.arange(first, last + 1)
    num_groups = len(steps) * GROUPS_A_STEP
    num = num_groups * EACH
    step_of_group = np.repeat(steps, GROUPS_A_STEP)
    index_in_step = np.tile(np.arange(GROUPS_A_STEP), len(steps))
    tasks = (step_of_group * GROUPS_A_STEP + index_in_step) % 20_000
    task = [f"countdown/train/{k}" for k in tasks]
    group = [f"{name}#{step // 200}" for name, step in zip(task, step_of_group, strict=True)]
    step = np.repeat(step_of_group, EACH)
    member = np.tile(np.arange(EACH), num_groups)
    share = 0.2 + 0.6 * step / max(1, num_steps)
    right = rng.random(num) < share
    lengths = np.clip(rng.lognormal(3.2, 0.5, num), 4, 120).astype(np.int32)
    fate = np.where(rng.random(num) < 0.05, "filtered", "trained")
    advantage = np.where(right, 1 - share, -share)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    key = {
        "step": step,
        "kind": np.full(num, "train"),
        "group_index": np.repeat(index_in_step, EACH),
        "group": np.repeat(np.array(group), EACH),
        "task": np.repeat(np.array(task), EACH),
    }
    leaf = [f"{name}/{k}.0" for name, k in zip(key["group"], member, strict=True)]
    phrases = [" ".join(line) for line in WORDS[rng.integers(0, len(WORDS), (512, 12))]]
    text = np.array(phrases)[rng.integers(0, 512, num)]
    trajectories = {
        **key,
        "leaf": leaf,
        "index": member,
        "fate": fate,
        "reason": np.where(fate == "filtered", "zero_variance", ""),
        "reward": right.astype(float),
        "status": np.where(right, "right", "wrong"),
        "rewards": [[]] * num,
        "score": right.astype(float),
        "terminated": np.ones(num, bool),
        "truncated": np.zeros(num, bool),
        "any_turn_cut": np.zeros(num, bool),
        "stop": np.full(num, "eos"),
        "num_turns": np.ones(num, int),
        "replayed": np.zeros(num, bool),
        "advantages": pa.ListArray.from_arrays(offsets, np.repeat(advantage, lengths)),
        "weight": np.ones(num),
        "baseline": share,
        "num_prompt": np.full(num, len(PROMPT)),
        "num_response": lengths,
        "num_sampled": lengths,
        "oldest_version": np.maximum(0, step - rng.integers(0, 3, num)),
        "newest_version": step,
        "batch_version": step,
        "extras": np.full(num, "{}"),
        "extras_non_finite": [[]] * num,
        "prompt_text": [f"reach {k % 97} from 3 4 7" for k in np.repeat(tasks, EACH)],
        "response_text": text,
    }
    nodes = _nodes(key, leaf, lengths, offsets, fate, text, group, task, step_of_group, index_in_step, rng)
    metrics = [_metrics(int(s), step == s, right, lengths, fate) for s in steps]
    return _table(trajectories, TRAJECTORIES), nodes, metrics


def _nodes(
    key, leaf, lengths, offsets, fate, text, group, task, step_of_group, index_in_step, rng
) -> pa.Table:
    """Return the roots, then the sampled nodes, in the order of their groups."""
    num, num_groups = len(leaf), len(group)
    total = int(offsets[-1])
    sampled = {
        **key,
        "node": leaf,
        "place": np.tile(np.arange(1, EACH + 1), num_groups),
        "parent": [f"{name}/root" for name in key["group"]],
        "at": np.full(num, len(PROMPT)),
        "origin": np.full(num, "sampled"),
        "stream": [name.removesuffix(".0").rpartition("#")[2] for name in leaf],
        "start": np.full(num, len(PROMPT)),
        "num_steps": lengths,
        "tokens": pa.ListArray.from_arrays(offsets, rng.integers(1, 40, total).astype(np.int32)),
        "policy": np.full(num, "policy"),
        "version": key["step"],
        "logprobs": pa.ListArray.from_arrays(offsets, -rng.exponential(0.3, total)),
        "entropies": pa.ListArray.from_arrays(offsets, rng.exponential(0.3, total)),
        "kept_masses": [None] * num,
        "top": [None] * num,
        "forced": np.zeros(num, int),
        "temperature": np.ones(num),
        "stop": np.full(num, "eos"),
        "reward": [None] * num,
        "replayed": np.zeros(num, bool),
        "fates": [[(name, n)] for name, n in zip(fate.tolist(), lengths.tolist(), strict=True)],
        "text": text,
    }
    empty = [None] * num_groups
    roots = {
        "step": step_of_group,
        "kind": np.full(num_groups, "train"),
        "group_index": index_in_step,
        "group": group,
        "task": task,
        "node": [f"{name}/root" for name in group],
        "place": np.zeros(num_groups, int),
        "origin": np.full(num_groups, "prompt"),
        "at": np.zeros(num_groups, int),
        "stream": np.full(num_groups, ""),
        "start": np.zeros(num_groups, int),
        "num_steps": np.full(num_groups, len(PROMPT)),
        "tokens": [PROMPT] * num_groups,
        "forced": np.zeros(num_groups, int),
        "replayed": np.zeros(num_groups, bool),
        "fates": [[]] * num_groups,
        "text": [f"reach {name.rpartition('/')[2]}" for name in task],
    }
    return pa.concat_tables([_table({name: roots.get(name, empty) for name in NODES.names}, NODES),
                             _table(sampled, NODES)])  # fmt: skip


def _table(columns: dict, schema: pa.Schema) -> pa.Table:
    arrays = [
        value if isinstance(value, pa.Array) else pa.array(value, type=schema.field(name).type)
        for name, value in ((name, columns[name]) for name in schema.names)
    ]
    return pa.Table.from_arrays([a.cast(f.type) for a, f in zip(arrays, schema, strict=True)], schema=schema)


def _metrics(step: int, here: np.ndarray, right: np.ndarray, lengths: np.ndarray, fate: np.ndarray) -> dict:
    tokens = int(lengths[here].sum())
    return {
        "kind": "step",
        "step": step,
        "reward_mean": float(right[here].mean()),
        "num_rollouts": int(here.sum()),
        "length_mean": float(lengths[here].mean()),
        "spent_sampled_tokens": tokens * (step + 1),
        "fate_trained": tokens * (step + 1),
        "version": step + 1,
    }


# ---------------------------------------------------------------- measuring


def measure(run: Path) -> dict[str, object]:
    """Open the run in a process of its own and return what was measured, in seconds and milliseconds."""
    words = [sys.executable, "-m", "rollwright.cli.main", "view", str(run), "--no-browser", "--port", "0"]
    client = httpx.Client(timeout=60)  # before the clock runs: it is not what is measured
    began = time.perf_counter()
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        address = next(word for line in process.stdout for word in line.split() if word.startswith("http://"))
        listening = time.perf_counter() - began
        client.base_url = address
        with client:
            first = _get(client, limit=100)
            opened = time.perf_counter() - began
            opened_cpu = _cpu_s(process.pid)
            total = first["total"]
            client.get("api/runs/0/overview").raise_for_status()
            whole = time.perf_counter() - began
            overview_ms, _ = _timed(lambda: client.get("api/runs/0/overview").raise_for_status())
            return {
                "rollouts": total,
                "listening_s": listening,
                "first_rows_s": opened,
                "first_rows_cpu_s": opened_cpu,
                "first_overview_s": whole,
                "overview_ms": overview_ms,
                **_scrolling(client, total),
                "sort_ms": _timed(lambda: _get(client, sort="num_sampled", desc=1))[0],
                "filter_ms": _timed(lambda: _get(client, where="reward = 1 and num_sampled > 60"))[0],
                "sort_groups_ms": _timed(lambda: _get(client, table="groups", sort="reward_mean"))[0],
                "text_filter_ms": _timed(lambda: _get(client, where="response_text like '%so so so%'"))[0],
                "rollout_ms": _timed(
                    lambda: client.get(f"api/runs/0/rollout/train/{total // 1600}/50/3").raise_for_status()
                )[0],
            }
    finally:
        process.terminate()
        process.wait(10)


def _get(client: httpx.Client, **params: object) -> dict:
    answer = client.get("api/runs/0/rows", params={"table": "rollouts", "limit": 100, **params})
    answer.raise_for_status()
    return answer.json()


def _cpu_s(pid: int) -> float | None:
    """Return the processor seconds that a process has used, which other work on the machine changes less."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except OSError:
        return None


def _timed(call) -> tuple[float, object]:
    began = time.perf_counter()
    value = call()
    return 1000 * (time.perf_counter() - began), value


def _scrolling(client: httpx.Client, total: int, num: int = 200) -> dict[str, float]:
    """Ask for pages as a dragged scroll bar does, sorted by another column, and return the latencies."""
    _get(client, sort="num_sampled", desc=1)
    places = np.random.default_rng(0).integers(0, total - 100, num)
    took = [
        _timed(lambda at=at: _get(client, sort="num_sampled", desc=1, offset=int(at)))[0] for at in places
    ]
    return {"scroll_p50_ms": float(np.median(took)), "scroll_max_ms": float(np.max(took))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rollouts", type=int, default=1_000_000)
    parser.add_argument(
        "--keep", type=Path, help="make the run here, or use the one that is here, and keep it"
    )
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        run = args.keep or Path(temporary) / "run"
        if not (run / CONFIG).exists():
            began = time.perf_counter()
            make_run(run, args.rollouts)
            print(f"made in {time.perf_counter() - began:.0f} s", flush=True)
        print(json.dumps(measure(run), indent=1))


if __name__ == "__main__":
    main()
