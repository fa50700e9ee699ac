"""What the viewer takes from a journal: rollouts that no shard holds, and who worked when."""

from __future__ import annotations

import json
import os
import shutil
import socket
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from view_help import without_shards

from rollwright.errors import JournalCorrupt, StoreError
from rollwright.lab.activity import read_activity
from rollwright.store.journal import read
from rollwright.view.follow import Follower, Watch
from rollwright.view.overview import MAX_POINTS, finish_reason, thin
from rollwright.view.run import Run
from rollwright.view.timeline import timeline


def rows(run: Run, table: str = "rollouts") -> list[list]:
    return run.lists.page(table, "", "", False, 0, 1000)["rows"]


def until(run: Run, num_rollouts: int, seconds: float = 20.0) -> None:
    """Refresh until the run shows so many rollouts."""
    deadline = time.monotonic() + seconds
    while run.lists.page("rollouts", "", "", False, 0, 0)["total"] != num_rollouts:
        assert time.monotonic() < deadline, run.status()
        time.sleep(0.02)
        run.refresh()


def test_a_run_that_died_before_its_first_shard_shows_the_same(toy: Run, toy_path: Path, tmp_path: Path):
    """Oracle: the run with its shards (metamorphic). Kills: groups numbered otherwise, fates left out."""
    wanted = rows(toy)
    run = Run(without_shards(shutil.copytree(toy_path, tmp_path / "run")))
    run.ready()
    until(run, len(wanted))
    assert rows(run) == wanted and rows(run, "groups") == rows(toy, "groups")
    for step, number, index in ((0, 0, 0), (4, 1, 2)):
        one, other = (r.rollout("train", step, number, index) for r in (run, toy))
        for side in (one, other):  # without a tokeniser only a shard has a text
            for segment in side["segments"]:
                segment.pop("text")
        assert one == other
    assert len(run.lists.page("rollouts", "list_sum(advantages) <> 99", "", False, 0, 10)["rows"]) == 10
    run.close()


def test_steps_move_from_the_journal_into_a_shard_once(toy: Run, toy_path: Path, tmp_path: Path):
    """Oracle: the finished run. Kills: a step that stands twice once its shard appears."""
    path = shutil.copytree(toy_path, tmp_path / "run")
    last = max((path / "shards").iterdir())
    last.rename(tmp_path / last.name)
    run = Run(path)
    run.ready()
    until(run, len(rows(toy)))
    assert set(run._watch.followed.closed) == {4}  # what shards hold is not kept a second time
    before = run.database.generation
    shutil.move(tmp_path / last.name, last)
    run.refresh()
    assert rows(run) == rows(toy) and run.database.generation > before
    run.refresh()
    assert run.database.generation == before + 1  # nothing more has changed
    run.close()


def test_a_running_run_is_followed(toy: Run, toy_path: Path, tmp_path: Path):
    """Oracle: the finished run's steps, as records come in. Kills: a tail that is read once only."""
    whole = (toy_path / "journal.jsonl").read_bytes()
    path = without_shards(shutil.copytree(toy_path, tmp_path / "run"))
    # The writer is this test's own parent: a process that lives, and is not the viewer.
    (path / "lock").write_text(json.dumps({"pid": os.getppid(), "host": socket.gethostname()}))
    metrics = (path / "metrics.jsonl").read_text().splitlines(keepends=True)
    (path / "metrics.jsonl").write_text("".join(metrics[:2]))
    cut = whole.index(b'"type":"Report"', len(whole) // 3)
    (path / "journal.jsonl").write_bytes(whole[:cut])  # half a record at the end, as a live writer leaves it
    run = Run(path)
    run.ready()
    assert run.state()["state"] == "running"
    deadline = time.monotonic() + 20
    while not (0 < len(rows(run)) < len(rows(toy))):
        assert time.monotonic() < deadline
        run.refresh()
        time.sleep(0.02)
    first = run.status()["generation"]
    (path / "journal.jsonl").write_bytes(whole)
    (path / "metrics.jsonl").write_text("".join(metrics))
    until(run, len(rows(toy)))
    assert rows(run) == rows(toy) and run.status()["generation"] != first
    run.close()


def test_a_finished_run_is_not_folded(toy_path: Path):
    """Oracle: hand: its shards hold all. Kills: a journal that is read, and torch loaded, for nothing."""
    run = Run(toy_path)
    run.ready()
    run.status()
    assert run._watch is None
    assert run.timeline(0.0, None)["end"] >= 0.0 and not run._watch.is_folding
    assert run.status()["notes"] == []
    run.close()


def test_a_journal_that_cannot_be_folded_is_said(toy_path: Path, tmp_path: Path):
    """Oracle: hand. Kills: rollouts left out in silence."""
    path = without_shards(shutil.copytree(toy_path, tmp_path / "run"))
    config = (path / "config.toml").read_text()
    (path / "config.toml").write_text(config.replace("view_task.py:toy", "view_task.py:gone"))
    run = Run(path)
    run.ready()
    deadline = time.monotonic() + 20
    while not any("cannot be folded" in note for note in run.status()["notes"]):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert run.timeline(0.0, None)["num_here"] > 0  # who worked when is known all the same
    run.close()


# ---------------------------------------------------------------- reading a file that grows


def test_a_follower_reads_each_record_once(toy_path: Path, tmp_path: Path):
    """Oracle: `journal.read` of the whole. Kills: a record read twice or lost at a torn line."""
    data = (toy_path / "journal.jsonl").read_bytes()
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b"")
    ends = [*range(150, len(data), len(data) // 9), len(data)]
    follower, found = None, []
    for end in ends:
        path.write_bytes(data[:end])
        follower = follower or Follower(path)
        found += list(follower.records())
    assert found == list(read(toy_path / "journal.jsonl")) and len(found) > 100


def test_damage_is_named_and_a_strange_file_refused(toy_path: Path, tmp_path: Path):
    """Oracle: hand. Kills: a damaged line passed over."""
    lines = (toy_path / "journal.jsonl").read_bytes().splitlines(keepends=True)
    bad = tmp_path / "journal.jsonl"
    bad.write_bytes(b"".join([*lines[:5], lines[5].replace(b"0", b"1", 1), *lines[6:]]))
    with pytest.raises(JournalCorrupt, match="line 6"):
        list(Follower(bad).records())
    watch = Watch(bad, None, frozenset())
    assert watch.wait(10) and "line 6" in watch.followed.error
    watch.close()
    bad.write_text("something else\n")
    with pytest.raises(StoreError):
        list(Follower(bad).records())


def test_why_a_run_ended_is_in_its_last_records(toy_path: Path, tmp_path: Path):
    """Oracle: hand, and `journal.read`. Kills: a guess from the number of steps."""
    path = toy_path / "journal.jsonl"
    assert finish_reason(path) == "all steps done"
    cut = tmp_path / "cut.jsonl"
    cut.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    assert finish_reason(cut) is None and finish_reason(tmp_path / "none") is None


def test_damaged_ends_do_not_stop_the_state(toy_path: Path, tmp_path: Path):
    """Oracle: hand. Kills: a torn last line taken for the end of the run."""
    torn = tmp_path / "torn.jsonl"
    torn.write_bytes((toy_path / "journal.jsonl").read_bytes()[:-30])
    assert finish_reason(torn) is None


# ---------------------------------------------------------------- timelines


@pytest.fixture(scope="module")
def activity(tmp_path_factory: pytest.TempPathFactory):
    """A run with times: the simulator's, since the toy run's clock stands still."""
    from rollwright.discovery import load_method
    from rollwright.drive.virtual import EngineModel, LogNormal, Model, TaskModel, VirtualDriver
    from rollwright.runner import Runner, Settings
    from rollwright.store.journal import Journal

    path = tmp_path_factory.mktemp("simulated") / "journal.jsonl"
    runner = Runner(load_method("grpo"), Settings(
        seed=1, tasks=tuple(f"t/{k}" for k in range(40)), num_steps=5, num_tasks=3, context=2048,
        max_tokens=1500, chunk=64,
    ))  # fmt: skip
    model = Model(
        engine=EngineModel(num_workers=1, num_slots=16), tasks=TaskModel(response=LogNormal(100, 1))
    )
    with Journal.open(path) as journal:
        VirtualDriver(runner, model, journal=journal).run()
    return read_activity(path)


def test_every_piece_of_work_has_its_place(activity):
    """Oracle: the activity itself. Kills: work in the wrong part, two pieces over each other in a lane."""
    whole = timeline(activity)
    spans = [
        span
        for lane in whole["lanes"]
        if lane["kind"] not in ("learner", "reporting")
        for span in lane["spans"]
    ]
    assert whole["is_whole"] and len(spans) == len(activity.work) > 50
    for lane in whole["lanes"]:
        ends = [(began, ended) for began, ended, *_ in sorted(lane["spans"])]
        assert all(b[0] >= a[1] for a, b in pairwise(ends)), lane["name"]
    assert len(whole["lanes"][0]["spans"]) == len(activity.updates) == 5
    middle = activity.last_at / 2
    part = timeline(activity, middle, middle + activity.last_at / 10)
    wanted = [w for w in activity.work if w.began <= part["until"] and w.ended >= part["since"]]
    assert part["num_here"] == len(wanted) < len(activity.work)


def test_curves_count_what_is_in_flight(activity):
    """Oracle: a slow count at each time. Kills: a curve that is shifted or scaled."""
    whole = timeline(activity)
    for kind in ("sample", "grade"):
        work = [w for w in activity.work if w.kind == kind]
        for place in range(0, 241, 16):
            at = whole["times"][place]
            slow = sum(w.began <= at < w.ended for w in work)
            assert whole["curves"][kind][place] == slow, (kind, at)
    sampled = sum(w.num_tokens for w in activity.work)
    mean = np.trapezoid(whole["tokens_per_second"], whole["times"])
    assert mean == pytest.approx(sampled, rel=0.1)


def test_a_part_outside_the_run_is_cut_to_it(activity):
    """Oracle: hand. Kills: a division by nothing for an old link."""
    found = timeline(activity, 1e9, 2e9)
    assert found["since"] == found["until"] == activity.last_at and found["num_here"] == 0
    from rollwright.lab.activity import Activity

    empty = timeline(Activity())
    assert empty["lanes"][0]["spans"] == [] and empty["end"] == 0.0


def test_curves_are_thinned_by_means():
    """Oracle: closed form. Kills: every tenth point, which loses what lies between."""
    found = thin([[k, float(k % 2)] for k in range(4 * MAX_POINTS)], 1)
    assert len(found) == MAX_POINTS and all(value == 0.5 for _, value in found)
    assert thin([[1, 2.0]], 1) == [[1, 2.0]]
