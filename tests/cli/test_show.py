"""The data behind `rollwright show`, its tables, its JSON and its picture."""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections import Counter

import numpy as np
import pytest

from rollwright.lab.plots import draw
from rollwright.lab.rollouts import read_notes
from rollwright.lab.summary import summarise, writer_pid
from rollwright.store.journal import read
from rollwright.tree import Origin


def _rollouts(recorded):
    """Slow reference: every fresh trajectory of the closed groups, straight from the tree."""
    for closed in recorded.groups:
        for trajectory in closed.group.trajectories:
            path = closed.group.path(trajectory.leaf)
            tokens = sum(num for node, num in path if node.origin is Origin.SAMPLED)
            yield closed.step, closed.group.id, trajectory, tokens


def test_the_books_are_the_ledger(toy_run) -> None:
    """Oracle: the runner's own ledger. Kills: fates that do not add up, reasons left out."""
    ledger = toy_run.runner.ledger
    books = summarise(toy_run.path).books
    assert books.fates == ledger.fates
    assert books.reasons == ledger.reasons and books.reasons
    assert {unit: amount for unit, amount in books.spent.items() if unit != "seconds"} == {
        unit: amount for unit, amount in ledger.spent.items() if unit != "seconds"
    }
    assert sum(books.fates.values()) == books.spent["sampled_tokens"]


def test_curve_and_lengths(toy_run) -> None:
    """Oracle: slow reference over the closed groups. Kills: a mean over rollouts instead of groups."""
    summary = summarise(toy_run.path)
    by_group: dict[tuple[int, str], list[bool]] = {}
    for step, group, trajectory, _ in _rollouts(toy_run):
        by_group.setdefault((step, group), []).append(trajectory.status == "right")
    for point in summary.curve:
        shares = [np.mean(right) for (step, _), right in by_group.items() if step == point.step]
        assert point.success == pytest.approx(np.mean(shares)) and point.num_groups == len(shares)
        assert point.low <= point.success <= point.high
    assert len(summary.curve) == 12
    expected = Counter((step, tokens) for step, _, _, tokens in _rollouts(toy_run))
    assert Counter(map(tuple, summary.lengths.tolist())) == expected


def test_longest_and_slowest(toy_run) -> None:
    """Oracle: slow reference: sorting all trajectories; seconds from the journal's own events."""
    summary = summarise(toy_run.path, 5)
    assert [r.tokens for r in summary.longest] == sorted((t for *_, t in _rollouts(toy_run)), reverse=True)[
        :5
    ]
    seconds = read_notes(toy_run.path / "journal.jsonl").seconds
    at = {event.ask: event.at for event, _ in read(toy_run.path / "journal.jsonl") if hasattr(event, "ask")}
    for _, group, trajectory, _ in _rollouts(toy_run):
        # In one turn, ask 0 of a sample is its tokens and ask 1 its grade.
        name = f"{group}/{trajectory.index}"
        assert seconds[name] == at[f"{name}:1"] - at[f"{group}/root"]
    assert len(seconds) == len(list(_rollouts(toy_run)))
    assert [r.seconds for r in summary.slowest] == sorted(seconds.values(), reverse=True)[:5]
    known = {(g, t.index): (n, t) for _, g, t, n in _rollouts(toy_run)}
    for rollout in summary.longest:
        tokens, trajectory = known[rollout.group, rollout.index]
        assert (rollout.tokens, rollout.status, rollout.reward) == (
            tokens,
            trajectory.status,
            trajectory.reward,
        )
        assert len(rollout.response) == tokens and rollout.prompt


def test_a_finished_run_needs_no_fold(toy_run, monkeypatch) -> None:
    """Oracle: the fold is not called. Kills: seconds of folding for a run that is all in shards."""
    monkeypatch.setattr("rollwright.lab.summary.fold_tail", None)
    summary = summarise(toy_run.path)
    assert (summary.state, summary.notes) == ("finished", [])
    assert summary.state_text == "finished: all steps done (12 steps)"


def test_reading_changes_nothing(toy_run) -> None:
    """Oracle: every file's bytes before and after."""
    before = {p: p.read_bytes() for p in toy_run.path.rglob("*") if p.is_file()}
    summarise(toy_run.path)
    assert {p: p.read_bytes() for p in toy_run.path.rglob("*") if p.is_file()} == before


def test_what_was_not_scored_is_shown_with_its_reason(tmp_path, rollwright, recorder) -> None:
    """Oracle: the runner's ledger and step reports. Kills: an unscored rollout counted as wrong."""
    recorded = recorder(tmp_path / "run", "grpo", bad="4", num_steps=3)
    summary = summarise(recorded.path)
    num = sum(report.metrics["num_not_scored"] for report in recorded.reports)
    assert num > 0
    # Each is tried once more before it is given up.
    assert summary.failures == [("grader: ValueError: toy grader cannot read this", 2 * num)]
    by_group: dict[tuple[int, str], list[bool]] = {}
    for step, group, trajectory, _ in _rollouts(recorded):
        if trajectory.reward is not None:
            by_group.setdefault((step, group), []).append(trajectory.status == "right")
    for point in summary.curve:
        shares = [np.mean(right) for (step, _), right in by_group.items() if step == point.step]
        assert (point.success, point.num_groups) == (pytest.approx(np.mean(shares)), len(shares))
    out = rollwright("show", recorded.path).out
    assert f"{2 * num} × grader: ValueError: toy grader cannot read this" in out
    assert "not_scored:grader_error" in out


def test_the_tables(toy_run, rollwright) -> None:
    """Oracle: numbers of the ledger, in the text."""
    result = rollwright("show", toy_run.path)
    ledger = toy_run.runner.ledger
    assert result.code == 0
    for fate in ("trained", "filtered"):
        assert f"{ledger.fates[fate]:,}" in result.out
    for word in ("finished: all steps done", "zero_variance", "median", "Longest rollouts", "reward_mean"):
        assert word in result.out


def test_json_is_strict_and_complete(toy_run, rollwright) -> None:
    """Oracle: the summary itself, read back. Kills: NaN, numpy values or paths that JSON cannot hold."""
    result = rollwright("show", toy_run.path, "--json", "--rollouts", 1)
    facts = json.loads(result.out, parse_constant=lambda word: pytest.fail(word))
    summary = summarise(toy_run.path, 1)
    assert facts["books"]["fates"] == summary.books.fates
    assert facts["lengths"] == summary.lengths.tolist()
    assert facts["curve"][0]["success"] == summary.curve[0].success
    assert facts["config"]["method"] == "dapo" and len(facts["longest"]) == 1


def test_the_picture(toy_run, rollwright, tmp_path) -> None:
    """Oracle: a PNG of that size whose pixels are not all one colour; its parts were looked at by eye."""
    from matplotlib.image import imread

    target = tmp_path / "new" / "a.png"
    assert rollwright("show", toy_run.path, "--png", target).code == 0
    pixels = imread(target)
    assert pixels.shape[:2] == (728, 1430) and pixels.std() > 0.05


def test_a_picture_that_cannot_be_written(toy_run, rollwright, tmp_path) -> None:
    """Oracle: exit code 1 and the reason."""
    (tmp_path / "file").write_text("")
    result = rollwright("show", toy_run.path, "--png", tmp_path / "file" / "a.png")
    assert result.code == 1 and "cannot write the picture" in result.err


def test_a_run_that_has_just_begun(toy_run, rollwright, tmp_path) -> None:
    """Oracle: no step, no tokens, no crash; the picture says so too."""
    path = tmp_path / "run"
    path.mkdir()
    shutil.copy(toy_run.path / "config.toml", path)
    summary = summarise(path)
    assert (summary.steps, summary.curve, sum(summary.books.fates.values())) == ([], [], 0)
    assert summary.state == "stopped"
    draw(summary, tmp_path / "a.png")
    assert rollwright("show", path).code == 0


def test_a_journal_that_cannot_be_folded_is_said(toy_run, rollwright, tmp_path) -> None:
    """Oracle: the toy task is no task of the registry, so an unfinished run of it cannot be folded."""
    path = tmp_path / "run"
    shutil.copytree(toy_run.path, path)
    lines = (path / "journal.jsonl").read_bytes().splitlines(keepends=True)
    (path / "journal.jsonl").write_bytes(b"".join(lines[: len(lines) // 2]))
    result = rollwright("show", path)
    assert result.code == 0
    assert "cannot be folded" in result.out and "rollwright train --resume" in result.out


def test_a_damaged_journal_is_named(toy_run, rollwright, tmp_path) -> None:
    """Oracle: the line that was damaged. Kills: a traceback, or figures as if nothing were wrong."""
    path = tmp_path / "run"
    shutil.copytree(toy_run.path, path)
    lines = (path / "journal.jsonl").read_bytes().splitlines(keepends=True)
    lines[5] = lines[5].replace(b"{", b"[", 1)
    (path / "journal.jsonl").write_bytes(b"".join(lines))
    result = rollwright("show", path)
    assert result.code == 0 and "line 6" in result.out
    assert "Longest rollouts" in result.out


def test_no_run(rollwright, tmp_path) -> None:
    """Oracle: exit code 1 and the name of what is missing."""
    result = rollwright("show", tmp_path)
    assert result.code == 1 and "config.toml" in result.err


def test_who_writes_it(tmp_path) -> None:
    """Oracle: real pids: the parent of this process lives, pid 2²² + 1 cannot."""
    lock = tmp_path / "lock"
    assert writer_pid(tmp_path) is None
    for pid, expected in ((os.getppid(), os.getppid()), (os.getpid(), None), (4194305, None)):
        lock.write_text(json.dumps({"pid": pid, "host": socket.gethostname()}))
        assert writer_pid(tmp_path) == expected
    lock.write_text(json.dumps({"pid": os.getppid(), "host": "elsewhere"}))
    assert writer_pid(tmp_path) is None


def test_a_process_that_outlives_its_run_does_not_write_it(tmp_path) -> None:
    """Oracle: a lock of this process, seen as if by another. Kills: the pid left in a lock that is free."""
    from rollwright.store.lock import WriterLock

    with WriterLock(tmp_path):
        assert json.loads((tmp_path / "lock").read_text())["pid"] == os.getpid()
    assert (tmp_path / "lock").read_text() == ""
