"""`rollwright rescore`: a new dump beside the old, right in every number."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rollwright.check.source import open_source
from rollwright.cli.main import main
from rollwright.store.parquet import shards


def leaves(path: Path) -> list[dict]:
    return [leaf for group in open_source(path).groups() for leaf in group.trajectories]


def test_the_same_run_leaves_as_json_lines(turns, tmp_path, capsys):
    """Metamorphic: what check says of a run, it says of the run's export, but for what the config told it."""
    assert main(["export", str(turns), "--to", "jsonl", "--out", str(tmp_path / "x.jsonl")]) == 0
    capsys.readouterr()
    assert main(["check", str(tmp_path / "x.jsonl"), "--json"]) == 0
    found = {v["invariant"]: v["verdict"] for v in json.loads(capsys.readouterr().out)["verdicts"]}
    told = {"kept_mass", "advantages", "begin_token", "end_tokens", "ratio"}
    assert {name for name, word in found.items() if word == "unknown"} == told


def test_rescored_by_length(turns, tmp_path, capsys):
    """Oracle: the same function on the text of the shards, and the textbook formula of the advantage."""
    (tmp_path / "reward.py").write_text("def reward(completion):\n    return float(len(completion))\n")
    before = (shards(turns)[0] / "trajectories.parquet").read_bytes()
    out = tmp_path / "new.jsonl"
    assert main(["rescore", str(turns), "--reward", f"{tmp_path}/reward.py:reward", "--out", str(out)]) == 0
    assert "rewards changed" in capsys.readouterr().out
    assert (shards(turns)[0] / "trajectories.parquet").read_bytes() == before
    nodes = {node["node"]: node for group in open_source(turns).groups() for node in group.nodes}
    for group in open_source(out).groups():
        rewards = [leaf["reward"] for leaf in group.trajectories]
        mean = sum(rewards) / len(rewards)
        spread = (sum((r - mean) ** 2 for r in rewards) / (len(rewards) - 1)) ** 0.5
        for leaf in group.trajectories:
            length, node = 0, leaf["leaf"]
            while node is not None:
                row = nodes[node]
                length += len(row["text"]) if row["origin"] == "sampled" else 0
                node = row["parent"]
            assert leaf["reward"] == length and leaf["status"] != "not_scored"
            expected = 0.0 if spread == 0 else (length - mean) / (spread + 1e-6)
            assert max(leaf["advantages"], key=abs) == pytest.approx(expected)
    assert main(["rescore", str(turns), "--reward", f"{tmp_path}/reward.py:reward", "--out", str(out)]) == 2


def test_a_failing_reward_is_no_zero(turns, tmp_path, capsys):
    """Oracle: None and its status. Kills: an exception that becomes a reward."""
    (tmp_path / "reward.py").write_text("def reward(completion):\n    raise ValueError('no')\n")
    out = tmp_path / "new.jsonl"
    assert main(["rescore", str(turns), "--reward", f"{tmp_path}/reward.py:reward", "--out", str(out)]) == 0
    assert {(leaf["reward"], leaf["status"]) for leaf in leaves(out)} == {(None, "grader_error")}
