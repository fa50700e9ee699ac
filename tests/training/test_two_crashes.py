"""Crashes of real runs before and between checkpoints: every batch is trained exactly once."""

import pytest
import torch

from rollwright.config import RunConfig
from rollwright.training import Training


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
        "method_options": {"each": 4},
    }
    return RunConfig(**{**fields, **changes})


def weights(training):
    return torch.cat([p.detach().flatten() for p in training.parts.model.parameters()])


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


def test_two_crashes_train_every_batch_once(tmp_path):
    """Metamorphic: die at the second batch, then at the third; the final weights are the same, bit for bit.

    The resumed run is given the second batch again, so the journal holds it twice before it was published;
    the last run trains both batches again from the journal, since no checkpoint came between.
    """
    whole = Training.start(config(), tmp_path / "whole", lambda row: None)
    assert whole.run() == "all steps done"

    training = Training.start(config(), tmp_path / "run", lambda row: None)
    for update in (2, 2):
        crash_at(training, update)
        with pytest.raises(Crash):
            training.run()
        training = Training.resume(tmp_path / "run", lambda row: None)
    assert training.run() == "all steps done"
    assert torch.equal(weights(training), weights(whole))
    assert training.runner.ledger.fates == whole.runner.ledger.fates


def test_a_crash_before_the_first_update_is_recorded_can_be_resumed(tmp_path):
    """Metamorphic: nothing was published yet, so the resumed engine begins at the version it has."""
    whole = Training.start(config(num_steps=1), tmp_path / "whole", lambda row: None)
    assert whole.run() == "all steps done"

    training = Training.start(config(num_steps=1), tmp_path / "run", lambda row: None)
    crash_at(training, 1)
    with pytest.raises(Crash):
        training.run()
    training = Training.resume(tmp_path / "run", lambda row: None)
    assert training.run() == "all steps done"
    assert torch.equal(weights(training), weights(whole))
