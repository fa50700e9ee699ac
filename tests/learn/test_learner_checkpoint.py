"""Checkpoints: exact resume, torn folders, a full disk."""

from __future__ import annotations

import dataclasses
import signal
from contextlib import contextmanager

import pytest
import torch
from learn_help import mixed_groups, tiny_model

from rollwright.engine.checkpoint import load_model
from rollwright.errors import StoreError
from rollwright.learn import checkpoint
from rollwright.learn.checkpoint import checkpoints, damage, load_checkpoint, newest, save_checkpoint
from rollwright.learn.config import LearnerConfig
from rollwright.learn.learner import Learner
from rollwright.stages.objective.ppo_clip import PPOClip
from rollwright.stages.reduce.token_mean import TokenMean

CFG = LearnerConfig(
    lr=1e-2, weight_decay=0.01, num_updates=2, warmup_updates=3, schedule="cosine", total_updates=12
)


def new_learner(kl: float = 0.0, seed: int = 0) -> Learner:
    return Learner(tiny_model(seed, torch.float32), PPOClip(kl=kl), TokenMean(), CFG)


def train(learner: Learner, num: int) -> Learner:
    for _ in range(num):
        groups = mixed_groups(learner.model, learner.version)
        learner.update(groups, learner.version)
    return learner


def weights(learner: Learner) -> list[torch.Tensor]:
    return [p.detach().clone() for p in learner.model.parameters()]


@pytest.mark.parametrize("kl", [0.0, 0.05])
def test_resume_is_bit_exact(tmp_path, kl):
    """Oracle: six updates in one go. Mutants: leave out the moments, the step count or the reference."""
    whole = train(new_learner(kl), 6)
    save_checkpoint(tmp_path, train(new_learner(kl), 3), {"journal": 17})
    resumed = new_learner(kl, seed=1)  # other weights, other reference: all must come from the checkpoint
    assert load_checkpoint(newest(tmp_path), resumed) == {"journal": 17}
    assert resumed.version == 3 and resumed.num_steps == 6
    train(resumed, 3)
    assert all(torch.equal(a, b) for a, b in zip(weights(whole), weights(resumed), strict=True))


def test_checkpoint_is_a_model(tmp_path):
    """Oracle: the engine's own loader gives the learner's weights."""
    learner = train(new_learner(), 1)
    path = save_checkpoint(tmp_path, learner)
    loaded = load_model(path)
    assert all(torch.equal(a, b) for a, b in zip(weights(learner), loaded.parameters(), strict=True))


def test_keeps_the_newest(tmp_path):
    """Oracle: the names that are left; no partial folder stays."""
    learner = new_learner()
    for _ in range(4):
        save_checkpoint(tmp_path, train(learner, 1), keep=2)
    assert [p.name for p in checkpoints(tmp_path)] == ["v00000003", "v00000004"]
    save_checkpoint(tmp_path, learner, {"again": 1}, keep=2)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["v00000003", "v00000004"]
    assert load_checkpoint(newest(tmp_path), learner) == {"again": 1}


@pytest.mark.parametrize("file", ["model.safetensors", "optimizer.safetensors", "state.json", "config.json"])
@pytest.mark.parametrize("harm", ["cut", "flip", "remove"])
def test_torn_checkpoint_is_never_loaded(tmp_path, file, harm):
    """Oracle: the one before it is found; loading the torn one is refused with the learner unchanged."""
    learner = new_learner()
    good = save_checkpoint(tmp_path, train(learner, 1))
    torn = save_checkpoint(tmp_path, train(learner, 1))
    data = bytearray((torn / file).read_bytes())
    if harm == "remove":
        (torn / file).unlink()
    else:
        data[len(data) // 2] ^= 1
        (torn / file).write_bytes(data[: len(data) // 2] if harm == "cut" else data)
    if (file, harm) != ("state.json", "flip"):
        assert damage(torn) is not None
        assert newest(tmp_path) == good
        before = weights(learner)
        with pytest.raises(StoreError, match="damaged"):
            load_checkpoint(torn, learner)
        assert all(torch.equal(a, b) for a, b in zip(before, weights(learner), strict=True))


def test_nothing_whole_is_an_error_nothing_at_all_is_none(tmp_path):
    """Case G02's spirit: never start from scratch in silence. Oracle: the error."""
    assert newest(tmp_path) is None
    path = save_checkpoint(tmp_path, new_learner())
    (path / "state.json").unlink()
    with pytest.raises(StoreError, match="no whole checkpoint"):
        newest(tmp_path)


def test_crash_before_the_rename_leaves_no_checkpoint(tmp_path, monkeypatch):
    """Oracle: a crash at the last moment before the rename; the next save cleans up."""
    learner = train(new_learner(), 1)
    save_checkpoint(tmp_path, learner)

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    train(learner, 1)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "_put_in_place", crash)
        patch.setattr(checkpoint.shutil, "rmtree", lambda *a, **k: None)
        with pytest.raises(KeyboardInterrupt):
            save_checkpoint(tmp_path, learner)
    assert (tmp_path / ".partial-v00000002").exists()
    assert [p.name for p in checkpoints(tmp_path)] == ["v00000001"]
    save_checkpoint(tmp_path, learner)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["v00000001", "v00000002"]


@contextmanager
def no_file_beyond(num_bytes: int):
    """Let the kernel refuse to write any file beyond a size, as a full disk does."""
    resource = pytest.importorskip("resource", reason="the kernel's file size limit is a Unix thing")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)


@pytest.mark.parametrize("limit", [0, 9000, 20000])
def test_disk_that_takes_no_more(tmp_path, limit):
    """Oracle: the kernel refuses bytes beyond a limit, in the model's or in the optimizer's file; the
    message says what to do and the earlier checkpoint is whole. Mutant: write in place."""
    learner = train(new_learner(), 1)
    save_checkpoint(tmp_path, learner)
    train(learner, 1)
    with no_file_beyond(limit), pytest.raises(StoreError, match="could not be written") as error:
        save_checkpoint(tmp_path, learner)
    assert "Make room" in str(error.value)
    assert [p.name for p in tmp_path.iterdir()] == ["v00000001"]
    assert damage(tmp_path / "v00000001") is None
    save_checkpoint(tmp_path, learner)
    assert newest(tmp_path).name == "v00000002"


def test_checkpoint_of_another_model(tmp_path):
    """Oracle: the message names a tensor and both shapes; the learner is unchanged."""
    path = save_checkpoint(tmp_path, new_learner())
    other = new_learner()
    cfg = dataclasses.replace(other.model.cfg, num_layers=1)
    smaller = Learner(type(other.model)(cfg), PPOClip(), TokenMean(), CFG)
    with pytest.raises(StoreError, match="another model"):
        load_checkpoint(path, smaller)
    with pytest.raises(StoreError, match="no reference"):
        load_checkpoint(path, new_learner(kl=0.1))
