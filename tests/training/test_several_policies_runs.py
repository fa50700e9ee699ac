"""Whole runs in which two policies learn: recorded, checkpointed, resumed and replayed like any other."""

from __future__ import annotations

import pytest
import torch

from rollwright.config import RunConfig
from rollwright.errors import ConfigError
from rollwright.events import EmitBatch, Published
from rollwright.runner import Runner
from rollwright.store.journal import check_replay
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
        "method": "flexmarl",
        "num_steps": 3,
        "num_tasks": 2,
        "checkpoint_every": 2,
        "keep_checkpoints": 1,
        "threads": 1,
        "device": "cpu",
        "max_tokens": 8,
        "method_options": {"each": 4},
    }
    return RunConfig(**{**fields, **changes})


def weights(training_or_parts):
    parts = getattr(training_or_parts, "parts", training_or_parts)
    return {name: flat(model) for name, model in parts.models.items()}


def flat(model) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def same(one, two) -> bool:
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


@pytest.mark.parametrize("changes", [{}, {"driver": "async", "num_ahead": 1}], ids=["inline", "async"])
def test_both_policies_learn_and_the_journal_makes_the_same_weights(tmp_path, changes):
    """Oracle: slow reference. Fresh learners given the journal's batches in order have the same weights;
    shards know who sampled what; evaluation uses both."""
    cfg = config(eval_every=3, eval_tasks=3, **changes)
    training = Training.start(cfg, tmp_path / "run", lambda row: None)
    start = weights(training)
    assert training.run() == "all steps done"
    ends = weights(training)
    assert not torch.equal(ends["policy"], ends["partner"])
    assert not any(torch.equal(start[name], ends[name]) for name in ends)
    parts, batches = build(cfg), {}
    runner = Runner(parts.method, parts.settings)

    def fold(event):
        commands = runner.step(event)
        if isinstance(event, Published):
            batch = batches.pop(event.version - 1)
            parts.learner.update(batch.groups, batch.version)
        batches.update({c.version: c for c in commands if isinstance(c, EmitBatch)})
        return commands

    assert check_replay(tmp_path / "run" / JOURNAL, fold) > 0
    assert same(weights(parts), ends)
    sql = (
        "select policy, sum(num_steps) from nodes where origin = 'sampled' and kind = 'train' group by policy"
    )
    counts = dict(open_run(tmp_path / "run").sql(sql).fetchall())
    assert set(counts) == {"policy", "partner"} and min(counts.values()) > 0
    rows = load_rows(tmp_path / "run" / METRICS).rows
    assert {row["kind"] for row in rows} == {"step", "evaluation"}
    assert all(row["learn_partner_ratio_mean"] > 0 for row in rows if row["kind"] == "step")


@pytest.mark.parametrize("at", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_a_resumed_run_goes_on_with_both(tmp_path, at):
    """Oracle: metamorphic. Die at an update that is made and not recorded, before or after a checkpoint: the
    same weights as of an uninterrupted run, in both policies."""
    whole = Training.start(config(num_steps=4), tmp_path / "whole", lambda row: None)
    whole.run()
    training = Training.start(config(num_steps=4), tmp_path / "run", lambda row: None)
    kept = training.parts.learner.update

    def dying(groups, version):
        figures = kept(groups, version)
        if version == at:
            raise Crash
        return figures

    training.parts.learner.update = dying
    with pytest.raises(Crash):
        training.run()
    again = Training.resume(tmp_path / "run", lambda row: None)
    assert again.run() == "all steps done"
    assert same(weights(again), weights(whole))
    folders = {path.name for path in (tmp_path / "run").iterdir() if path.name.startswith("checkpoints")}
    assert folders == {"checkpoints", "checkpoints-partner"}


def test_ray_trains_one_policy():
    """Oracle: hand. It says so before anything is started."""
    with pytest.raises(ConfigError, match="trains one policy"):
        build(config(driver="ray"))
