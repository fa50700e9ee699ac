"""Makes what the tests share importable, and records each simulated run once."""

from __future__ import annotations

from pathlib import Path

import pytest
from lab_help import simulated


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, object, object]]:
    """(folder, driver, recorder) of a simulated run by method; ``ahead`` is grpo two steps ahead."""
    found = {}
    for method in ("grpo", "april", "dapo"):
        folder = tmp_path_factory.mktemp(method)
        found[method] = (folder, *simulated(folder, method))
    folder = tmp_path_factory.mktemp("ahead")
    found["ahead"] = (folder, *simulated(folder, num_ahead=2))
    return found
