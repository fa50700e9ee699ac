"""Each mutant of the list is killed by its tests: what the suite claims to catch, it catches."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.parametrize("room", ["core", "torch"])
@pytest.mark.parametrize("every", [8, pytest.param(1, marks=pytest.mark.slow)])
def test_mutants_are_killed(room, every):
    """Oracle: the list's own; an eighth of it, and in the long tests all."""
    command = [sys.executable, str(ROOT / "tools" / "mutants.py"), "--room", room, "--every", str(every)]
    found = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert found.returncode == 0, found.stdout + found.stderr
    assert "killed" in found.stdout


def test_every_mutation_applies(mutants):
    """Oracle: enumeration: the old text stands once in its file."""
    for mutant in tomllib.loads(mutants.LIST.read_text())["mutant"]:
        text = (ROOT / "src" / "rollwright" / mutant["file"]).read_text()
        assert text.count(mutant["old"]) == 1, mutant["name"]


@pytest.fixture
def mutants(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import mutants

    return mutants


def test_a_stale_mutation_is_an_error(tmp_path, mutants):
    """The runner says how often the old text occurs."""
    stale = {"file": "ledger.py", "old": "no such text", "new": "", "name": "stale", "tests": []}
    assert mutants.mutate(stale, tmp_path / "a") == "the old text occurs 0 times in ledger.py, not once"
    gone = {**stale, "file": "gone.py"}
    assert mutants.mutate(gone, tmp_path / "b") == "gone.py does not exist"
