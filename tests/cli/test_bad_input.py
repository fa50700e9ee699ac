"""Bad input: a clear error or a counted "not scored", never a zero in silence, and nothing is lost."""

from __future__ import annotations

import json
import re
import resource
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from rollwright.lab.summary import summarise


def test_no_model(rollwright, tmp_path) -> None:
    """Oracle: exit code, the path in the message, and no run folder that would refuse the next try."""
    result = rollwright("train", "countdown", "--model", tmp_path / "none", "--out", tmp_path / "run")
    assert result.code == 1 and str(tmp_path / "none") in result.err and "Traceback" not in result.err
    assert not (tmp_path / "run").exists()


def test_a_model_of_the_wrong_shape(rollwright, tiny_model, tmp_path) -> None:
    """Oracle: the tensor's name and both shapes are in the message."""
    model = tmp_path / "model"
    shutil.copytree(tiny_model, model)
    config = json.loads((model / "config.json").read_text())
    config["intermediate_size"] = 48
    (model / "config.json").write_text(json.dumps(config))
    result = rollwright("train", "countdown", "--model", model, "--out", tmp_path / "run")
    assert result.code == 1
    assert "48" in result.err and "64" in result.err and re.search(r"mlp\.\w+_proj\.weight", result.err)


def test_unknown_names(train, rollwright, tiny_model, tmp_path) -> None:
    """Oracle: what was meant, exit code 2."""
    for words, meant in (
        (("--method", "dappo"), "'dapo'"),
        (("--method-options.clip-hihg", "1"), "'clip_high'"),
    ):
        result = train("--num-steps", 2, "--out", tmp_path / "run", *words)
        assert (result.code, result.err.count(f"did you mean {meant}?")) == (2, 1), result.err
    result = rollwright("train", "coutdown", "--model", tiny_model, "--out", tmp_path / "run")
    assert result.code == 2 and "did you mean 'countdown'?" in result.err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("device", ["cud", "cuda:99", "meta:x"])
def test_no_such_device(rollwright, tmp_path, device) -> None:
    """Oracle: key and given value, exit code 2, no run folder."""
    result = rollwright("train", "lake", "--device", device, "--out", tmp_path / "run")
    assert result.code == 2 and f"device: given {device!r}" in result.err, result.err
    assert not (tmp_path / "run").exists()


def test_a_folder_that_is_not_empty(train, tmp_path) -> None:
    """Oracle: the file that was there is named and stays as it was."""
    (tmp_path / "notes.txt").write_text("mine")
    result = train("--num-steps", 2, "--out", tmp_path)
    assert result.code == 1 and "not empty" in result.err and "notes.txt" in result.err
    assert (tmp_path / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("raise ZeroDivisionError('oh')", "ZeroDivisionError: oh"),
        ("return float('nan')", "returned nan"),
        ("return 'good'", "returned 'good'"),
        ("raise SystemExit(0)", "raised SystemExit: 0"),
        pytest.param("__import__('os')._exit(0)", "took its process down", marks=pytest.mark.slow),
    ],
)
def test_a_reward_that_fails_is_not_scored(train, rollwright, tmp_path, body, said) -> None:
    """Oracle: the ledger: every token failed, no reward is 0, no update was made, and the run went on."""
    rewards = tmp_path / "rewards.py"
    rewards.write_text(f"def bad(completion, **row):\n    {body}\n")
    path = tmp_path / "run"
    result = train("--num-steps", 2, "--reward", f"{rewards}:bad", "--out", path)
    assert result.code == 0
    assert "reward -" in result.out and "not scored" in result.out and "no update" in result.out
    summary = summarise(path)
    assert len(summary.steps) == 2
    for row in summary.steps:
        assert row["num_not_scored"] == row["num_rollouts"] == 8 and row["reward_mean"] is None
    assert summary.books.fates["failed"] == summary.books.spent["sampled_tokens"] > 0
    assert any(said in message for message, _ in summary.failures)
    assert said in rollwright("show", path).out


def test_a_reward_file_that_is_not_there(train, tmp_path) -> None:
    """Oracle: exit code 2 and the name."""
    (tmp_path / "r.py").write_text("def good(completion):\n    return 1.0\n")
    result = train("--num-steps", 2, "--reward", f"{tmp_path}/none.py:f")
    assert result.code == 2 and "none.py" in result.err
    result = train("--num-steps", 2, "--reward", f"{tmp_path}/r.py:goood")
    assert result.code == 2 and "did you mean 'good'?" in result.err


def test_a_row_without_its_field(rollwright, tiny_model, tmp_path) -> None:
    """Oracle: the line and the field, before anything is sampled."""
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"prompt": "1+1=", "answer": "2"}\n{"prompt": "2+2="}\n')
    words = ("--model", tiny_model, "--out", tmp_path / "run")
    result = rollwright("train", f"jsonl:{rows}", *words)
    assert result.code == 1 and "line 2" in result.err and "'answer'" in result.err
    assert not (tmp_path / "run").exists()


def _no_file_over(num_bytes: int):
    """Stand in for a full disk: the kernel refuses to let any file grow beyond this."""

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, num_bytes))

    return limit


def test_a_full_disk(process, rollwright, tmp_path) -> None:
    """Oracle: a limit of the kernel; message and exit code 1; with room again the run goes on to its end."""
    path: Path = tmp_path / "run"
    command = [*process, "--out", str(path)]
    # Room for the checkpoints, not for the journal of two hundred steps.
    command += ["--num-steps", "200"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=100, preexec_fn=_no_file_over(300_000)
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Traceback" not in done.stderr and "journal.jsonl" in done.stderr
    summary = summarise(path)
    num_done = len(summary.steps)
    assert 0 < num_done < 200 and summary.notes == []
    assert rollwright("replay", path).code == 0
    # The journal may hold the end of one step more than the metrics: its row comes when it is folded.
    result = rollwright("train", "--resume", path, "--num-steps", num_done + 2)
    assert result.code == 0, result.err
    assert len(summarise(path).steps) == num_done + 2


@pytest.mark.slow
def test_a_disk_too_full_for_a_checkpoint(process, tmp_path) -> None:
    """Oracle: as above, with no room for the first checkpoint."""
    path = tmp_path / "run"
    command = [*process, "--out", str(path)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=100, preexec_fn=_no_file_over(20_000)
    )
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "checkpoint" in done.stderr
