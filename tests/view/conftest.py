"""Runs that the viewer's tests share; each is written once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from view_help import hostile, record

from rollwright.view.run import Run


@pytest.fixture(scope="session")
def toy_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished DAPO run of the toy task in three shards."""
    return record(tmp_path_factory.mktemp("toy") / "run")


@pytest.fixture(scope="session")
def toy(toy_path: Path) -> Iterator[Run]:
    run = Run(toy_path)
    run.ready()
    yield run
    run.close()


@pytest.fixture(scope="session")
def hostile_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A hand-made run with a branched group and hostile texts."""
    return hostile(tmp_path_factory.mktemp("hostile") / "run")


@pytest.fixture(scope="session")
def odd(hostile_path: Path) -> Iterator[Run]:
    run = Run(hostile_path)
    run.ready()
    yield run
    run.close()
