"""Whole runs of a tiny model through the command line: train, stop, resume, show, replay, eval."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from rollwright.events import Sampled
from rollwright.lab.summary import summarise
from rollwright.store.journal import read
from rollwright.store.rows import load_rows


def rows_of(path: Path) -> list[dict]:
    """Rows of metrics without what depends on the clock."""
    rows = load_rows(path / "metrics.jsonl").rows
    return [{name: value for name, value in row.items() if "seconds" not in name} for row in rows]


@pytest.fixture
def trained(train, tmp_path) -> Path:
    """A run of five steps with evaluations."""
    path = tmp_path / "whole"
    words = ("--num-steps", 5, "--eval-every", 2, "--eval-tasks", 5, "--eval-samples", 2, "--out", path)
    assert train(*words).code == 0
    return path


def test_a_whole_run(rollwright, trained, tmp_path) -> None:
    """Oracle: the run folder's own books, its replay, and a second look at the same weights by eval."""
    rows = rows_of(trained)
    assert [(row["kind"], row["step"]) for row in rows] == [
        *(("evaluation", 0), ("step", 0), ("step", 1), ("evaluation", 2), ("step", 2), ("step", 3)),
        *(("evaluation", 4), ("step", 4), ("evaluation", 5)),
    ]
    summary = summarise(trained)
    assert (summary.state, len(summary.curve), len(summary.lengths)) == ("finished", 5, 40)
    assert (len(summary.steps), len(summary.evaluations)) == (5, 4)
    assert sum(summary.books.fates.values()) == summary.books.spent["sampled_tokens"]
    result = rollwright("replay", trained)
    assert result.code == 0 and "byte for byte" in result.out
    png = tmp_path / "a.png"
    assert rollwright("show", trained, "--png", png).code == 0 and png.stat().st_size > 10_000
    words = ("--num", 5, "--samples", 2, "--seed", 3, "--threads", 1, "--json")
    measured = json.loads(rollwright("eval", trained, *words).out)
    last = rows[-1]
    assert last["sampled_num_tokens"] != 2 * last["greedy_num_tokens"]  # else nothing tells them apart
    for name in ("sampled", "greedy"):
        for key in ("success", "reward", "length", "num_rollouts", "num_tokens"):
            assert measured[name][key] == last[f"{name}_{key}"], (name, key)
    text = rollwright("eval", trained, *words[:-1]).out
    for part in ("v00000005 on countdown", "sampled", "greedy", "not scored"):
        assert part in text


def test_a_run_made_longer_is_the_long_run(train, rollwright, trained, tmp_path) -> None:
    """Oracle: metamorphic: 3 steps, then --resume to 5, has the rows of 5 steps in one go."""
    path = tmp_path / "parts"
    words = ("--eval-every", 2, "--eval-tasks", 5, "--eval-samples", 2, "--out", path)
    assert train("--num-steps", 3, *words).code == 0
    result = rollwright("train", "--resume", path, "--num-steps", 5)
    assert result.code == 0 and "step 4/5" in result.out and "step 3/" not in result.out
    # The short run measured its last policy, too.
    mine = [row for row in rows_of(path) if (row["kind"], row["step"]) != ("evaluation", 3)]
    assert mine == rows_of(trained)
    assert rollwright("replay", path).code == 0


def test_ctrl_c_says_how_to_go_on(process, trained, tmp_path) -> None:
    """Oracle: the printed command itself, run; the rows of the run that was never stopped."""
    path = tmp_path / "stopped"
    words = ("--num-steps", "5", "--eval-every", "2", "--eval-tasks", "5", "--eval-samples", "2")
    command = [*process, *words, "--out", str(path)]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for line in running.stdout:
        if line.startswith("step 2/"):
            running.send_signal(signal.SIGINT)
            break
    out, err = running.communicate(timeout=60)
    assert running.returncode == 130, err
    assert "Traceback" not in err and "press Ctrl-C again" in err
    resume = re.search(r"Go on with: rollwright (.*)", out)[1].split()
    assert summarise(path).state == "stopped"
    done = subprocess.run([*process[:3], *resume], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert rows_of(path) == rows_of(trained)


def test_a_budget_ends_it_with_checkpoint_and_evaluation(train, tmp_path) -> None:
    """Oracle: the ledger: 3 steps of 8 rollouts. Kills: a policy that is neither kept nor measured."""
    path = tmp_path / "run"
    words = ("--budget.rollouts", 24, "--eval-every", 50, "--eval-tasks", 2, "--out", path)
    result = train(*words)
    assert result.code == 0 and "the budget of rollouts is spent" in result.out
    assert [row["step"] for row in rows_of(path) if row["kind"] == "evaluation"] == [0, 3]
    assert sorted(p.name for p in (path / "checkpoints").iterdir()) == ["v00000002", "v00000003"]


def test_show_while_it_runs_and_after_a_crash(train, rollwright, tmp_path, monkeypatch) -> None:
    """Oracle: the runner's own ledger at that moment; nothing is in a shard yet."""
    from rollwright.training import Training

    path, seen = tmp_path / "run", []
    kept = Training._row

    def row(self, row) -> None:
        kept(self, row)
        if row["kind"] == "step" and row["step"] == 2:
            self.journal.flush()
            seen.append((summarise(path), dict(self.runner.ledger.fates)))
            shutil.copytree(path, tmp_path / "crashed")

    monkeypatch.setattr(Training, "_row", row)
    assert train("--num-steps", 4, "--out", path).code == 0
    ((summary, fates),) = seen
    assert summary.notes == [] and not list((tmp_path / "crashed" / "shards").iterdir())
    assert summary.books.fates == fates
    assert [point.step for point in summary.curve] == [0, 1, 2]
    assert all(rollout.response is not None for rollout in summary.longest)
    crashed = rollwright("show", tmp_path / "crashed")
    assert crashed.code == 0 and "stopped after 3 of 4 steps" in crashed.out


def test_show_after_a_crash_in_the_middle_of_a_step(train, tmp_path, monkeypatch) -> None:
    """Oracle: the tokens of the journal's own events. Kills: figures as of the last finished step."""
    from rollwright.training import Training

    path, crashed = tmp_path / "run", tmp_path / "crashed"
    kept = Training._row

    def row(self, row) -> None:
        kept(self, row)
        if row["kind"] == "step" and row["step"] == 0:
            shutil.copytree(path, crashed)

    monkeypatch.setattr(Training, "_row", row)
    assert train("--num-steps", 2, "--out", path).code == 0
    journal = crashed / "journal.jsonl"
    num = journal.read_bytes().count(b"\n")
    whole = (path / "journal.jsonl").read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(whole[: num + 6]) + b"half a rec")

    events = [event for event, _ in read(journal)]
    tokens = [len(event.tokens) for event in events if isinstance(event, Sampled)]
    books = summarise(crashed).books
    before = rows_of(crashed)[-1]["spent_sampled_tokens"]
    assert books.spent["sampled_tokens"] == sum(tokens) > before
    assert books.fates["held"] == sum(tokens) - before


def test_the_second_writer_is_refused(train, rollwright, tmp_path) -> None:
    """Oracle: the lock. Kills: two writers in one folder."""
    from rollwright.store.run import RunFolder

    path = tmp_path / "run"
    assert train("--num-steps", 1, "--out", path).code == 0
    with RunFolder.open(path):
        result = rollwright("train", "--resume", path, "--num-steps", 2)
    assert result.code == 1 and "is being written by this process" in result.err
