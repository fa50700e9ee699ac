"""Whole runs with driver async: the weights are what the journal's batches make, through every crash."""

import signal
import subprocess
import sys
import time

import pytest
import torch

from rollwright.config import RunConfig
from rollwright.events import EmitBatch, Published
from rollwright.runner import Runner
from rollwright.runner.batch import age
from rollwright.store.journal import check_replay, read
from rollwright.store.layout import JOURNAL, METRICS
from rollwright.store.parquet import open_run
from rollwright.store.rows import load_rows
from rollwright.training import Training
from rollwright.training.parts import build


class Crash(BaseException):
    """Neither caught nor handled by anyone, like a kill."""


def config(**changes):
    fields = {
        "task": "lake",
        "num_steps": 4,
        "num_tasks": 2,
        "checkpoint_every": 100,
        "threads": 1,
        "device": "cpu",
        "max_tokens": 8,
        "driver": "async",
        "method_options": {"each": 4},
    }
    return RunConfig(**{**fields, **changes})


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def retrained(folder, cfg):
    """Return the weights that a fresh learner has after the published batches of a journal, in order."""
    parts, batches = build(cfg), {}
    runner = Runner(parts.method, parts.settings)
    for event, _ in read(folder / JOURNAL):
        commands = runner.step(event)
        if isinstance(event, Published):
            batch = batches.pop(event.version - 1)
            parts.learner.update(batch.groups, batch.version)
        batches.update({c.version: c for c in commands if isinstance(c, EmitBatch)})
        for batch in batches.values():
            ages = [age(g, t.leaf, batch.version) for g in batch.groups for t in g.trajectories]
            assert max(ages) <= cfg.num_ahead + (cfg.max_carry or 0)
    runner.ledger.check()
    return weights(parts.model)


def crash_at(training, update):
    """Let the learner die at one update of this process, when it is made but not recorded."""
    learner, count = training.parts.learner, 0
    kept = learner.update

    def dying(groups, version):
        nonlocal count
        count += 1
        figures = kept(groups, version)
        if count == update:
            raise Crash
        return figures

    learner.update = dying


def test_in_turn_the_weights_are_those_of_the_inline_driver(tmp_path):
    """Other implementation: num_ahead 0, two drivers, the same weights and metrics, bit for bit.

    But for what was prefilled: which prompts find a common beginning in the cache depends on who came first.
    """
    runs = {}
    for driver in ("inline", "async"):
        training = Training.start(config(driver=driver), tmp_path / driver, lambda row: None)
        assert training.run() == "all steps done"
        rows = [row for row in load_rows(tmp_path / driver / METRICS).rows if row["kind"] == "step"]
        timed = ("spent_seconds", "spent_prefilled_tokens")
        kept = [{k: v for k, v in row.items() if k not in timed and "seconds" not in k} for row in rows]
        runs[driver] = weights(training.parts.model), kept
    assert torch.equal(runs["inline"][0], runs["async"][0])
    assert runs["inline"][1] == runs["async"][1]


@pytest.mark.parametrize(("method", "num_ahead"), [("grpo", 0), ("areal", 2), ("april", 1)])
def test_the_weights_are_what_the_journals_batches_make(tmp_path, method, num_ahead):
    """Slow reference: a fresh learner and the journal alone; evaluations on the way disturb nothing."""
    cfg = config(
        method=method,
        num_ahead=num_ahead,
        max_carry=1,
        chunk=2,
        num_updates=2,
        eval_every=2,
        eval_tasks=4,
        checkpoint_every=2,
    )
    rows = []
    training = Training.start(cfg, tmp_path / "run", rows.append)
    assert training.run() == "all steps done"
    assert torch.equal(weights(training.parts.model), retrained(tmp_path / "run", cfg))
    assert torch.equal(weights(training.parts.model), weights(training.parts.engine.model))
    kinds = [(row["kind"], row["step"]) for row in rows]
    assert kinds == sorted(kinds, key=lambda kind: (kind[1] + (kind[0] == "step"), kind[0] == "evaluation"))
    assert [step for kind, step in kinds if kind == "step"] == [0, 1, 2, 3]
    assert [step for kind, step in kinds if kind == "evaluation"] == [0, 2, 4]
    sql = "select count(*), count(distinct step) from trajectories where kind = 'train'"
    num, num_steps = open_run(tmp_path / "run").sql(sql).fetchall()[0]
    closed = sum(row["num_rollouts"] for row in rows if row["kind"] == "step")
    assert num_steps == 4 and num == closed - len(training.runner.held) * 4


def test_crashes_with_steps_ahead_train_every_batch_once(tmp_path):
    """Die twice with an update made and not recorded: the journal's batches still make the weights."""
    cfg = config(num_ahead=1, num_steps=5)
    training = Training.start(cfg, tmp_path / "run", lambda row: None)
    for update in (2, 2):
        crash_at(training, update)
        with pytest.raises(Crash):
            training.run()
        training = Training.resume(tmp_path / "run", lambda row: None)
    assert training.run() == "all steps done"
    assert torch.equal(weights(training.parts.model), retrained(tmp_path / "run", cfg))
    fates = training.runner.ledger.fates
    assert fates["held"] == fates["failed"] == fates["stale"] == 0


def test_a_learner_that_fails_leaves_no_checkpoint_of_half_an_update(tmp_path):
    """The error comes out; the newest checkpoint is the one before; the run can be resumed."""
    cfg = config(num_ahead=1, checkpoint_every=1)
    training = Training.start(cfg, tmp_path / "run", lambda row: None)
    kept, learner = training.parts.learner.update, training.parts.learner

    def failing(groups, version):
        figures = kept(groups, version)
        if version == 2:
            raise RuntimeError("out of memory")
        return figures

    learner.update = failing
    with pytest.raises(RuntimeError, match="out of memory"):
        training.run()
    assert sorted(path.name for path in training.checkpoints.iterdir())[-1] == "v00000002"
    again = Training.resume(tmp_path / "run", lambda row: None)
    assert again.run() == "all steps done"
    assert torch.equal(weights(again.parts.model), retrained(tmp_path / "run", cfg))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_kills_of_the_process_lose_nothing_that_was_acknowledged(tmp_path):
    """SIGKILL at several moments: every record before it is kept, it replays, and the weights are right."""
    words = "train lake --num-steps 6 --num-tasks 4 --chunk 4 --checkpoint-every 2 --threads 1 --num-ahead 1"
    run = [sys.executable, "-m", "rollwright.cli.main"]
    folder = tmp_path / "run"
    args = [*words.split(), "--driver", "async", "--out", str(folder)]
    for least in (5, 700, 1400):
        process = subprocess.Popen([*run, *args], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        journal = folder / JOURNAL
        until = time.monotonic() + 120
        while process.poll() is None and time.monotonic() < until:
            if journal.exists() and journal.read_bytes().count(b"\n") > least:
                break
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        process.wait()
        kept = journal.read_bytes()
        kept = kept[: kept.rfind(b"\n") + 1]
        args = ["train", "--resume", str(folder)]
    subprocess.run([*run, *args], check=True, capture_output=True)
    assert journal.read_bytes().startswith(kept)
    cfg = RunConfig(
        task="lake", num_steps=6, num_tasks=4, chunk=4, threads=1, num_ahead=1, driver="async", device="cpu"
    )
    parts = build(cfg)
    runner = Runner(parts.method, parts.settings)
    assert check_replay(journal, runner.step) > 1400
    assert runner.end_reason == "all steps done" and runner.ledger.fates["held"] == 0
    resumed = Training.resume(folder, lambda row: None)
    assert torch.equal(weights(resumed.parts.model), retrained(folder, cfg))
    resumed.close()
