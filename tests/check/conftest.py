"""Clean dumps of real tiny runs: one of several turns whose sampling is cut, one whose groups branch."""

from __future__ import annotations

from pathlib import Path

import pytest

from rollwright.config import RunConfig, SamplingConfig
from rollwright.training import Training


def train(path: Path, method: str, **changes) -> Path:
    fields = {"task": "lake", "num_steps": 2, "num_tasks": 2, "threads": 1, "device": "cpu"}
    training = Training.start(RunConfig(**fields | changes, method=method), path, lambda row: None)
    try:
        assert training.run() == "all steps done"
    finally:
        training.close()
    return path


@pytest.fixture(scope="session")
def turns(tmp_path_factory: pytest.TempPathFactory) -> Path:
    options = {"sampling": SamplingConfig(top_p=0.95), "method_options": {"each": 4}, "checkpoint_every": 1}
    return train(tmp_path_factory.mktemp("check") / "turns", "grpo", **options)


@pytest.fixture(scope="session")
def branches(tmp_path_factory: pytest.TempPathFactory) -> Path:
    options = {"method_options": {"each": 4, "tau_abs": 0.01, "tau_rel": 1.0, "lookahead": 2, "tau_ed": 0.0}}
    return train(tmp_path_factory.mktemp("check") / "branches", "latr", **options)
