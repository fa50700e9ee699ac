"""Runs side by side: what is run, in which order, what happens to those that fail, and to all when we are
stopped..


"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from compare_help import plan_of

from rollwright.compare.budget import Budget
from rollwright.compare.plan import DONE, Plan, save
from rollwright.compare.reading import read_run
from rollwright.compare.result import outcomes, result_of
from rollwright.compare.run import Comparison
from rollwright.compare.sequential import SequentialTest
from rollwright.store.rows import load_rows

FAKE = (sys.executable, str(Path(__file__).with_name("fake_worker.py")))
TEST = SequentialTest()


def comparison(plan: Plan, out: Path, **more: object) -> tuple[Comparison, list[tuple[str, int, dict]]]:
    """A comparison whose workers are fakes, and the ends of its runs as they come."""
    ends: list[tuple[str, int, dict]] = []
    save(plan, out)
    made = Comparison(plan, out, TEST, on_end=lambda *end: ends.append(end), **more)
    made.command = FAKE
    return made, ends


def starts(plan: Plan, out: Path) -> dict[tuple[str, int], int]:
    """How often each run was started."""
    files = {
        (arm.label, seed): plan.folder(out, arm, seed) / "starts.txt"
        for arm in plan.arms
        for seed in plan.seeds
    }
    return {key: len(file.read_text()) if file.exists() else 0 for key, file in files.items()}


def test_all_runs_are_made_once(tmp_path: Path) -> None:
    """Oracle: the folders. Kills: a run made twice, a finished one made again, seeds of one arm first."""
    plan = plan_of("grpo@lr=0.01,dapo@lr=0.02", 2)
    made, ends = comparison(plan, tmp_path)
    rows: list[tuple[str, int]] = []
    made.on_row = lambda label, seed, row: rows.append((label, seed))
    made.run(1)
    order = [(label, seed) for label, seed, _ in ends]
    assert order == [(arm.label, seed) for seed in plan.seeds for arm in plan.arms] and not made.failed
    assert all(end == {"done": "spent"} for *_, end in ends) and rows.count(order[0]) == 5
    again, ends = comparison(plan_of("grpo@lr=0.01,dapo@lr=0.02", 3), tmp_path)
    again.run(2)
    assert {(label, seed) for label, seed, _ in ends} == {(arm.label, 2) for arm in plan.arms}
    assert set(starts(plan, tmp_path).values()) == {1}
    short = again.plan.folder(tmp_path, plan.arms[0], 1) / "metrics.jsonl"
    whole = short.read_text()
    short.write_text("".join(whole.splitlines(keepends=True)[:3]))  # it ended early: over, but no result
    third, ends = comparison(again.plan, tmp_path)
    third.run(1)
    assert ends == [] and 1 not in outcomes(third.plan, list(third.runs.values()))[plan.arms[0].label]
    short.write_text(whole)
    found = outcomes(again.plan, list(again.runs.values()))
    gaps = [found["dapo@lr=0.02"][seed] - found["grpo@lr=0.01"][seed] for seed in range(3)]
    assert gaps == pytest.approx([0.1] * 3)  # the noise of a seed is the same in both


def test_it_stops_when_it_is_decided(tmp_path: Path) -> None:
    """Oracle: hand. Kills: seeds that nobody needs, a baseline that stops while one arm is still open."""
    plan = plan_of("grpo@lr=0.01,dapo@lr=0.03,rlep@lr=0.0100", 5)
    made, ends = comparison(plan, tmp_path, is_early=True)
    made.run(1)
    num = {
        label: sum(one == label for one, *_ in ends)
        for label in ("grpo@lr=0.01", "dapo@lr=0.03", "rlep@lr=0.0100")
    }
    assert num == {"grpo@lr=0.01": 5, "dapo@lr=0.03": 4, "rlep@lr=0.0100": 5}
    both = plan_of("grpo@lr=0.01,dapo@lr=0.03", 5)
    made, ends = comparison(both, tmp_path / "two", is_early=True)
    made.run(1)
    assert len(ends) == 6 and made.decided() == {"dapo@lr=0.03"}
    result = result_of(both, list(made.runs.values()), TEST, has_bias=False)
    assert result.contrasts[0].found_at == 3 and result.contrasts[0].is_found


@pytest.mark.parametrize("trouble", ("die", "refuse", "hang"))
def test_a_run_that_fails_takes_no_other_with_it(tmp_path: Path, trouble: str) -> None:
    """Oracle: hand. Kills: a failure that ends all, one that nobody hears of, one that counts as a result."""
    plan = plan_of(f"grpo,dapo@device={trouble}", 2)
    made, ends = comparison(plan, tmp_path)
    made.run(2, silent_s=1.5 if trouble == "hang" else 60)
    why = {"die": "nothing left of memory", "refuse": "no such thing", "hang": "said nothing"}[trouble]
    label = plan.arms[1].label
    assert set(made.failed) == {(label, 0), (label, 1)} and why in made.failed[label, 0]
    assert len(ends) == 4
    result = result_of(plan, list(made.runs.values()), TEST, failed=made.failed, has_bias=False)
    assert why in result.arms[1].failed[1] and result.arms[1].final is None and result.arms[0].num_done == 2
    assert "No pair" in result.contrasts[0].sentence


def test_an_exception_stops_every_run_cleanly(tmp_path: Path) -> None:
    """Oracle: what the worker says at its end. Kills: processes that go on without anybody."""
    plan = plan_of("grpo@device=wait,dapo@device=wait", 2)
    made, ends = comparison(plan, tmp_path)

    def row(label: str, seed: int, row: dict) -> None:
        if label == plan.arms[1].label:
            raise KeyboardInterrupt

    made.on_row = row
    with pytest.raises(KeyboardInterrupt):
        made.run(2)
    assert sorted((label, str(end)) for label, _, end in ends) == [
        (arm.label, "{'stopped': True}") for arm in sorted(plan.arms, key=lambda arm: arm.label)
    ]
    assert made.flying == set() and not made.failed


# ---------------------------------------------------------------- real runs


def small(methods: str) -> Plan:
    settings = {"num_tasks": 2, "eval_tasks": 4, "checkpoint_every": 2, "device": "cpu"}
    plan = plan_of(methods, 1, num_points=3, settings=settings)
    return dataclasses.replace(plan, budget=Budget("sampled_tokens", 500.0))


def points_of(plan: Plan, path: Path) -> list[tuple]:
    """What a run's evaluations say, without the clock."""
    run = read_run(path, "x", 0, plan.budget.unit, plan.points())
    assert run.state == "done"
    return [(p.version, p.spent["sampled_tokens"], p.right, p.scored, p.greedy) for p in run.points]


def test_a_run_that_was_stopped_has_the_points_of_one_that_was_not(tmp_path: Path) -> None:
    """Oracle: the uninterrupted run. Kills: an evaluation lost or added by a resume, amounts counted from
    zero.

    The run is stopped twice: in a step that crosses no point, and right after one that does.
    """
    from rollwright.compare.worker import run
    from rollwright.config import dump_config

    plan = small("grpo:each=4")

    def job(path: Path) -> dict:
        config = dump_config(plan.config(plan.arms[0], 0))
        return {"folder": str(path), "config": config, "unit": plan.budget.unit, "points": plan.points()}

    said: list[dict] = []
    run(job(tmp_path / "whole"), said.append, threading.Event())
    assert said[-1] == {"done": "the budget of sampled_tokens is spent"}
    whole = points_of(plan, tmp_path / "whole")
    assert len(whole) >= 4 and whole[0][:2] == (0, 0)
    for stop_at in (1, whole[1][0]):
        lives = threading.Event()

        def say(row: dict, lives: threading.Event = lives, stop_at: int = stop_at) -> None:
            if row.get("version") == stop_at:
                lives.set()
                time.sleep(0.2)

        path = tmp_path / "parts"
        run(job(path), say, lives)
        assert not (path / DONE).exists()
    last: list[dict] = []
    run(job(path), last.append, threading.Event())
    assert points_of(plan, path) == whole
    kinds = [row.get("kind") for row in last]
    measured = {row["step"] for row in last[kinds.index("step") :] if row.get("kind") == "evaluation"}
    assert measured <= {point[0] for point in whole}  # what was measured before it was stopped is not again


@pytest.mark.slow
def test_a_comparison_that_was_killed_goes_on(tmp_path: Path) -> None:
    """Oracle: the comparison that was not killed. Kills: runs made again, results that depend on the kill.

    The command is killed with its workers (kill -9) while runs are under way, then goes on with --resume.
    """
    words = [
        "lake",
        "--methods",
        "grpo:each=4,dapo:each=4",
        "--budget",
        "300-tokens",
        "--seeds",
        "2",
        "--points",
        "3",
    ]
    words += ["--num-tasks", "2", "--eval-tasks", "4", "--device", "cpu", "--jobs", "2"]
    command = [sys.executable, "-m", "rollwright.cli.main", "compare"]
    subprocess.run([*command, *words, "--out", str(tmp_path / "whole")], check=True, capture_output=True)
    process = subprocess.Popen(
        [*command, *words, "--out", str(tmp_path / "killed")],
        start_new_session=True,
        stdout=subprocess.DEVNULL,
    )
    limit = time.monotonic() + 60
    while not list((tmp_path / "killed").glob("runs/*/*/journal.jsonl")) and time.monotonic() < limit:
        time.sleep(0.05)
    time.sleep(0.5)
    for pid in _children(process.pid):
        os.kill(pid, signal.SIGKILL)
    process.kill()
    process.wait()
    done = subprocess.run([*command, "--resume", str(tmp_path / "killed")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    facts = [json.loads((tmp_path / name / "result.json").read_text()) for name in ("whole", "killed")]
    assert facts[0]["contrasts"] == facts[1]["contrasts"]
    assert [arm["fates"] for arm in facts[0]["arms"]] == [arm["fates"] for arm in facts[1]["arms"]]
    metrics = load_rows(next((tmp_path / "killed").glob("runs/*/*/metrics.jsonl"))).rows
    assert [row["step"] for row in metrics if row["kind"] == "step"] == list(
        range(sum(row["kind"] == "step" for row in metrics))
    )


def _children(pid: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            found.append(int(path.parent.name))
    return found
